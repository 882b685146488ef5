"""The shape of the source: short functions, telling names, a docstring for each file.

Who may import whom is held by test_rooms.py.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "causerie"
FILES = sorted(SOURCE.rglob("*.py"))
MAX_FUNCTION = 50
VAGUE = {"utils", "util", "helpers", "helper", "manager", "common", "misc", "tools_misc"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def named(file: Path) -> str:
    return str(file.relative_to(SOURCE))


@cache
def trees() -> dict[str, ast.Module]:
    return {named(file): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


@cache
def nodes() -> list[tuple[str, Function | ast.Raise]]:
    """Functions and what is raised, with the file that has them."""
    return [
        (name, node)
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, Function | ast.Raise)
    ]


def test_a_name_tells_what_is_in_a_file() -> None:
    assert FILES
    vague = [named(file) for file in FILES if file.stem in VAGUE]
    assert not vague, "name each file after what is in it"


def test_a_file_says_what_it_is_for() -> None:
    silent = [name for name, tree in trees().items() if not ast.get_docstring(tree)]
    assert not silent, "no docstring: say what each is for, and what it does not know"


def test_a_function_fits_on_a_screen() -> None:
    long = {
        f"{name}:{node.lineno}: {node.name}": length
        for name, node in nodes()
        if isinstance(node, Function)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION
    }
    assert not long, f"more than {MAX_FUNCTION} lines: name their steps and make them functions"


def test_nothing_is_left_for_later() -> None:
    later = [
        f"{name}:{node.lineno}"
        for name, node in nodes()
        if isinstance(node, ast.Raise)
        and node.exc is not None
        and ast.unparse(node.exc).startswith("NotImplementedError")
    ]
    assert not later, "not there yet; leave each out until it is"
