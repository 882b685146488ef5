"""The page on dialects is what the program itself says."""

from __future__ import annotations

from pathlib import Path

from dialects_page import dialects_page

from causerie.providers.dialects import DIALECTS

PAGE = Path(__file__).parents[2] / "docs" / "reference/dialects.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == dialects_page(), "run `make docs`"


def test_every_dialect_has_its_column() -> None:
    for line in dialects_page().splitlines():
        if line.startswith("| `") and "the provider answers" not in line:
            assert line.count(" | ") == len(DIALECTS)
