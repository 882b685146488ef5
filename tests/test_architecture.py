"""The shape of the house: small files, short functions, a word on what each is for.

Who may import whom is held by test_rooms.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "causerie"
FILES = sorted(SOURCE.rglob("*.py"))
MAX_FILE = 600
MAX_FUNCTION = 50
VAGUE = {"utils", "util", "helpers", "helper", "manager", "common", "misc", "tools_misc"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def named(file: Path) -> str:
    return str(file.relative_to(SOURCE))


def functions(file: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_file_is_about_one_thing(file: Path) -> None:
    lines = len(file.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE, (
        f"{named(file)} has {lines} lines, more than {MAX_FILE}: find the second noun in it "
        "and give it a file of its own"
    )
    assert file.stem not in VAGUE, f"{named(file)}: name the file after what is in it"


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_file_says_what_it_is_for(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), (
        f"{named(file)} has no docstring: say what it is for, and what it does not know"
    )


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_function_fits_on_a_screen(file: Path) -> None:
    for function in functions(file):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        assert length <= MAX_FUNCTION, (
            f"{named(file)}:{function.lineno}: {function.name} has {length} lines, more than "
            f"{MAX_FUNCTION}: name its steps and make them functions"
        )


@pytest.mark.parametrize("file", FILES, ids=named)
def test_nothing_is_left_for_later(file: Path) -> None:
    for function in functions(file):
        for node in ast.walk(function):
            if isinstance(node, ast.Raise) and node.exc is not None:
                name = ast.unparse(node.exc)
                assert not name.startswith("NotImplementedError"), (
                    f"{named(file)}:{node.lineno}: {function.name} is not there yet; "
                    "leave it out until it is"
                )
