"""The page on known providers is what the program itself says."""

from __future__ import annotations

from pathlib import Path

from providers_page import providers_page

from causerie.providers.dialects import KNOWN_PROVIDERS

PAGE = Path(__file__).parents[2] / "docs" / "reference/providers.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == providers_page(), "run `make docs`"


def test_every_known_provider_has_its_row() -> None:
    rows = [line for line in providers_page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(KNOWN_PROVIDERS) + 2  # with the heads of two tables
