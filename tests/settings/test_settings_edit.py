"""A table put into a file that people wrote: everything else stays as it was."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.settings.edit import CannotEdit, by_hand, with_table

TEXT = """\
# top
[server]
port = 1 # p

[[providers]]
name = "a"   # first
base_url = "http://a/v1"
[providers.timeouts]
connect = 1.0
# the models of a
[[providers.models]]
id = "x" # keep
note = '''
# no comment
'''
supported_parameters = [
  "seed", # why
]
context_length = 5  # guessed

# the second
[[providers]]
name = "b"
base_url = "http://b/v1"

# after
[logging]
level = "info"
"""
VALUES: dict[str, object] = {"context_length": 99, "supported_parameters": ["n", "stop"]}


def lines_gone(before: str, after: str) -> list[str]:
    left = after.split("\n")
    return [line for line in before.split("\n") if line not in left]


def test_a_new_table_stands_behind_those_of_its_owner() -> None:
    edited = with_table(TEXT, ("providers", 0, "models"), {"id": "y", **VALUES})
    assert lines_gone(TEXT, edited) == []
    added = '[[providers.models]]\nid = "y"\ncontext_length = 99\n'
    assert f'5  # guessed\n\n{added}supported_parameters = ["n", "stop"]\n\n# the second' in edited
    other = with_table(TEXT, ("providers", 1, "models"), {"id": "y", **VALUES})
    assert '\n\n[[providers.models]]\nid = "y"' in other.split("http://b/v1")[1].split("# after")[0]


def test_a_known_table_gets_new_values_in_their_old_places() -> None:
    edited = with_table(
        TEXT,
        ("providers", 0, "models"),
        {"id": "x", **VALUES, "probed": "2026-11-21"},
        remarks={"probed": "3 yes;\n2 no"},
    )
    gone = ["supported_parameters = [", '  "seed", # why', "]", "context_length = 5  # guessed"]
    assert lines_gone(TEXT, edited) == gone
    assert 'id = "x" # keep\n' in edited
    assert "context_length = 99  # guessed\n" in edited
    assert 'supported_parameters = ["n", "stop"]\n' in edited
    assert 'probed = "2026-11-21"  # 3 yes; 2 no\n\n# the second' in edited


def test_again_changes_nothing() -> None:
    once = with_table(TEXT, ("providers", 1, "models"), {"id": "y", **VALUES})
    assert with_table(once, ("providers", 1, "models"), {"id": "y", **VALUES}) == once


def test_long_lists_are_wrapped() -> None:
    names = [f"parameter_{number}" for number in range(30)]
    edited = with_table(TEXT, ("providers", 1, "models"), {"id": "y", "names": names})
    assert max(map(len, edited.split("\n"))) <= 100
    assert tomllib.loads(edited)["providers"][1]["models"][0]["names"] == names


def test_an_owner_may_be_the_file_itself() -> None:
    place = {"name": "c", "base_url": "http://c/v1", "key": {"env": "C_KEY"}}
    edited = with_table(TEXT, ("providers",), place, key="base_url")
    assert tomllib.loads(edited)["providers"][2] == place
    assert with_table("", ("providers",), place, key="base_url").startswith("[[providers]]\n")
    assert edited.startswith(TEXT.rstrip("\n"))


@pytest.mark.parametrize(
    "text",
    [
        'providers = [{ name = "a", models = [{ id = "x" }] }]\n',
        '[[providers]]\nname = "a"\nmodels = [{ id = "x" }]\n',
        '[[providers]]\nname = "a"\nmodels = 3\n',
    ],
)
def test_what_cannot_be_edited_safely_is_left(text: str) -> None:
    with pytest.raises(CannotEdit):
        with_table(text, ("providers", 0, "models"), {"id": "y", **VALUES})


def test_the_table_can_be_put_in_by_hand() -> None:
    text = by_hand(("providers", "models"), {"id": "y", **VALUES})
    assert tomllib.loads(text)["providers"]["models"] == [{"id": "y", **VALUES}]


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
TABLE = st.dictionaries(
    st.sampled_from(["context_length", "supported_parameters", "thinking", "probed", "note"]),
    st.one_of(st.integers(0, 9), WORDS, st.booleans(), st.lists(WORDS, max_size=9)),
)


@given(st.sampled_from([0, 1]), st.sampled_from(["x", "y"]), TABLE, WORDS)
def test_what_comes_out_holds_what_was_asked_for(
    owner: int, id: str, table: dict[str, Any], remark: str
) -> None:
    values = {"id": id, **table}
    edited = with_table(TEXT, ("providers", owner, "models"), values, remarks={"probed": remark})
    before, after = tomllib.loads(TEXT), tomllib.loads(edited)
    (found,) = [one for one in after["providers"][owner]["models"] if one["id"] == id]
    assert found.items() >= values.items()
    after["providers"][owner].pop("models")
    before["providers"][owner].pop("models", None)
    assert after == before
