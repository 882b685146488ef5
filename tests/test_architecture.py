"""The shape of the source: short functions, telling names, a docstring for each file.

Who may import whom is held by test_rooms.py.
"""

from __future__ import annotations

import ast

from sourcekit import READS_SOURCE, functions, nodes, trees

MAX_FUNCTION = 50
VAGUE = {"utils", "util", "helpers", "helper", "manager", "common", "misc", "tools_misc"}

pytestmark = READS_SOURCE


def test_a_name_tells_what_is_in_a_file() -> None:
    assert trees()
    vague = [name for name in trees() if name.rpartition("/")[2].removesuffix(".py") in VAGUE]
    assert not vague, "name each file after what is in it"


def test_a_file_says_what_it_is_for() -> None:
    silent = [name for name, tree in trees().items() if not ast.get_docstring(tree)]
    assert not silent, "no docstring: say what each is for, and what it does not know"


def test_a_function_fits_on_a_screen() -> None:
    long = {
        f"{name}:{node.lineno}: {node.name}": length
        for name, node in functions()
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION
    }
    assert not long, f"more than {MAX_FUNCTION} lines: name their steps and make them functions"


def test_nothing_is_left_for_later() -> None:
    later = [
        f"{name}:{node.lineno}"
        for name, node in nodes(ast.Raise)
        if node.exc is not None and ast.unparse(node.exc).startswith("NotImplementedError")
    ]
    assert not later, "not there yet; leave each out until it is"
