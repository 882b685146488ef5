"""The page on reasoning is what the program itself says."""

from __future__ import annotations

from pathlib import Path

from reasoning_page import ASKED, reasoning_page

from causerie.providers.dialects import DIALECTS

PAGE = Path(__file__).parents[2] / "docs" / "reference/reasoning.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reasoning_page(), "run `make docs`"


def test_every_dialect_has_every_row() -> None:
    sections = reasoning_page().split("\n### `")[1:]
    assert [section.split("`")[0] for section in sections] == list(DIALECTS)
    for section in sections:
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        assert len(rows) == len(ASKED)
