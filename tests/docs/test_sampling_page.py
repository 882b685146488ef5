"""The page on recommended sampling is what the program itself says."""

from __future__ import annotations

from pathlib import Path

from sampling_page import sampling_page

from causerie.engines.sampling import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "reference/sampling.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == sampling_page(), "run `make docs`"


def test_every_row_names_its_source() -> None:
    rows = [line for line in sampling_page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(FAMILIES) + sum(one.without_thinking is not None for one in FAMILIES)
    assert all(row.rsplit("|", 2)[1].strip() for row in rows)
