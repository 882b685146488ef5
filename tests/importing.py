"""Imports what the tests import, and collects none of them.

A plugin of pytest, which itself compiles them: ``python -m pytest -p importing --collect-only``.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem() -> list[pytest.Item]:
    """Make nothing of what a module has."""
    return []


def pytest_collection_finish() -> None:
    """Have Hypothesis note constants of modules and characters of UTF-8, as each process would."""
    _drawn()


@settings(max_examples=1, database=None)
@given(st.text(st.characters(codec="utf-8")))
def _drawn(text: str) -> None:
    del text
