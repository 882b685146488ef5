"""Line numbers of TOML keys, compared with what the parser reads."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.settings.toml import KeyPath, line_numbers, of_nearest

TEXT = '''\
top = 1 # [not] = "a table"
"quoted key" = """
inner = 1
[server]
\\""" still inside
"""
[server]
port = 2
list = [
  1, # = ]
  "]", { a = 1 },
]
a.b.c = 3
[[models]]
id = "x"
[models.options]
deep = { x = 1 }
[[models]]
id = "y"
text = \'\'\'
id = "z"\'\'\'
[models.options."a.b"]
c = 1
'''


def test_lines() -> None:
    found = line_numbers(TEXT)
    assert found == {
        ("top",): 1,
        ("quoted key",): 2,
        ("server",): 7,
        ("server", "port"): 8,
        ("server", "list"): 9,
        ("server", "list", 2): 11,
        ("server", "a"): 13,
        ("server", "a", "b"): 13,
        ("server", "a", "b", "c"): 13,
        ("models",): 14,
        ("models", 0): 14,
        ("models", 0, "id"): 15,
        ("models", 0, "options"): 16,
        ("models", 0, "options", "deep"): 17,
        ("models", 1): 18,
        ("models", 1, "id"): 19,
        ("models", 1, "text"): 20,
        ("models", 1, "options", "a.b"): 22,
        ("models", 1, "options", "a.b", "c"): 23,
    }


def test_tables_in_lists() -> None:
    text = 'a = [ { x = "," }, # , {\n  { y = [1, { z = 1 }], w = 2 },\n\n  1, { x = 1 } ]\nb = 1\n'
    assert line_numbers(text) == {
        ("a",): 1,
        ("a", 0): 1,
        ("a", 1): 2,
        ("a", 3): 4,
        ("b",): 5,
    }


def test_what_is_not_there_is_where_it_would_stand() -> None:
    found = line_numbers(TEXT)
    assert of_nearest(("models", 1, "ref"), found) == 18
    assert of_nearest(("models", 0, "options", "deep", "x"), found) == 17
    assert of_nearest(("engines", "load_seconds"), found) is None


def paths(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key)
            yield from paths(item, (*path, key))


NAMES = st.sampled_from(["a", "b-1", "c_2", "server"])
VALUES = st.sampled_from(
    ["1", '"x = 1"', "'[t]'", "[1, [2]]", '"""\nk = 1\n"""', "'''\n[z]\n'''", "[\n 1,\n 2, # ]\n]"]
)


@given(st.lists(st.tuples(NAMES, NAMES, VALUES), max_size=8))
def test_every_key_that_the_parser_reads_has_a_line(entries: list[tuple[str, str, str]]) -> None:
    tables: dict[str, dict[str, str]] = {}
    for table, key, value in entries:
        tables.setdefault(table, {})[key] = value
    lines = []
    for table, keys in tables.items():
        lines += [f"[{table}]", *(f"{key} = {value}" for key, value in keys.items())]
    text = "\n".join(lines)
    found = line_numbers(text)
    assert set(found) == set(paths(tomllib.loads(text)))
    for path, number in found.items():
        assert str(path[-1]) in text.split("\n")[number - 1]


@pytest.mark.parametrize("text", ["", "\n\n# only a comment\n"])
def test_nothing(text: str) -> None:
    assert line_numbers(text) == {}
