"""The page on dialects is what the program itself says."""

from __future__ import annotations

from pathlib import Path

from dialects_page import dialects_page

from causerie.providers.dialects import DIALECTS

PAGE = Path(__file__).parents[2] / "docs" / "reference/dialects.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == dialects_page(), "run `make docs`"


def test_every_difference_names_each_dialect_once() -> None:
    differences = dialects_page().partition("## How they differ")[2].partition("## Parameters")[0]
    tables = differences.strip().split("\n\n")
    assert len(tables) > 10
    for table in tables:
        named = [
            name.strip().strip("`")
            for row in table.splitlines()[2:]
            for name in row.rsplit(" | ", 1)[1].removesuffix(" |").split(",")
        ]
        assert sorted(named) == sorted(DIALECTS)


def test_every_parameter_has_a_column_for_each_dialect() -> None:
    parameters = dialects_page().partition("## Parameters")[2].partition("## Fields")[0]
    rows = [line for line in parameters.splitlines() if line.startswith("| `")]
    assert len(rows) > 10
    for row in rows:
        assert row.count(" | ") == len(DIALECTS)
