"""The tables of the page on scale are those that the arithmetic gives."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_tables_are_what_the_costs_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    found = import_module("how_far")
    page = (ROOT / "docs" / "internals" / "how-far-it-goes.md").read_text()
    for table in (found.bare, found.with_accounts):
        assert "\n".join(table(found.Costs())) in page
