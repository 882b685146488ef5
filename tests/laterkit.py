"""Packages that a few tests use, imported when they do.

Each process of a run imports every module of tests, and most run none of these.
"""

from __future__ import annotations

import importlib
from typing import Any


class _Later:
    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # whether this is a test, asked of each name of a module
            raise AttributeError(name)
        return getattr(importlib.import_module(self._package), name)


def later(package: str) -> Any:
    """Return what stands for a package, and imports it once something of it is asked for."""
    return _Later(package)
