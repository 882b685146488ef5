"""The syntax of the source, parsed and walked once for all tests that ask about it.

They are marked with ``READS_SOURCE``, by which one process runs all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "causerie"
READS_SOURCE = pytest.mark.xdist_group("source")
_KEPT = (ast.Call, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Raise)

Function = ast.FunctionDef | ast.AsyncFunctionDef
N = TypeVar("N", bound=ast.AST)


@cache
def trees() -> Mapping[str, ast.Module]:
    """Return the modules by the names of their files in the package."""
    return {
        str(file.relative_to(SOURCE)): ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(SOURCE.rglob("*.py"))
    }


@cache
def _nodes() -> list[tuple[str, ast.AST]]:
    return [
        (name, node)
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, _KEPT)
    ]


def nodes(*kinds: type[N]) -> Iterator[tuple[str, N]]:
    """Yield calls, classes or what is raised, with the file that has them."""
    assert set(kinds) <= set(_KEPT), kinds
    return ((name, node) for name, node in _nodes() if isinstance(node, kinds))


def functions() -> Iterator[tuple[str, Function]]:
    """Yield functions and methods, with the file that has them."""
    return ((name, node) for name, node in _nodes() if isinstance(node, Function))
