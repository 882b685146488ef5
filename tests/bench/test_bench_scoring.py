"""The benchmark of answers scores arguments by type and value, as the leaderboard does."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
TYPES: dict[str, dict[str, Any]] = {
    "name": {"type": "string"},
    "count": {"type": "integer"},
    "price": {"type": "float"},
    "flag": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "sizes": {"type": "tuple", "items": {"type": "float"}},
    "rows": {"type": "array", "items": {"type": "dict"}},
    "box": {"type": "dict"},
    "thing": {"type": "any"},
}
LEFT_OUT = ""


@pytest.fixture
def scoring(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("quality.scoring")


def is_right(
    scoring: Any, name: str, value: Any, allowed: list[Any], required: tuple[str, ...] = ()
) -> bool:
    """Whether a call with one argument is the expected one; ``None`` leaves it out."""
    functions = {"f": {"properties": TYPES, "required": list(required)}}
    arguments = {} if value is None else {name: value}
    return bool(scoring.are_right([("f", arguments)], [("f", {name: allowed})], functions))


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("name", "New-York, N.Y.", ["x", "new york ny"]),
        ("name", "it's", ['it"s']),
        ("name", "", [LEFT_OUT, "x"]),
        ("name", 5, [5]),  # its type is listed
        ("count", 3, [2, 3]),
        ("count", "n", ["n"]),  # the name of a variable
        ("price", 3, [3.0]),
        ("price", 3.0, [3]),
        ("flag", False, [False]),
        ("tags", ["A b", "c."], [["x"], ["ab", "C"]]),
        ("tags", [], [LEFT_OUT]),
        ("sizes", [1], [[1]]),
        ("sizes", [1.5, 2.0], [[1.5, 2.0]]),
        ("rows", [{"a": 1}, {"a": "X Y"}], [[{"a": [1, 2]}, {"a": ["xy"]}]]),
        ("box", {"a": "X y"}, [{"a": ["xy"]}]),
        ("box", {}, [{"a": ["x", LEFT_OUT]}]),
        ("box", {"a": [1]}, [{"b": [1]}, {"a": [[1]]}]),
        ("thing", "a", ["A"]),
        ("thing", 4, [4]),
        ("name", None, ["x", LEFT_OUT]),
    ],
)
def test_right(scoring: Any, name: str, value: Any, allowed: list[Any]) -> None:
    assert is_right(scoring, name, value, allowed)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("name", "York", ["New York"]),
        ("name", 5, ["5"]),
        ("name", "5", [5]),
        ("name", None, ["x"]),
        ("count", 3.0, [3]),
        ("count", True, [1]),
        ("count", "3", [3]),
        ("count", "N", ["n"]),
        ("price", 3.1, [3.0]),
        ("flag", 1, [True]),
        ("flag", "true", [True]),
        ("tags", ["b", "a"], [["a", "b"]]),
        ("tags", "ab", [["ab"]]),
        ("tags", [1], [["1"]]),
        ("sizes", [1], [[1.0]]),  # types are strict inside a list
        ("rows", [{"a": 1}, {"a": 1}], [[{"a": [1]}]]),
        ("rows", [{"a": 2}], [[{"a": [1]}]]),
        ("rows", ["a"], [[{"a": [1]}]]),
        ("box", {}, [{"a": ["x"]}]),
        ("box", {"b": 1}, [{"a": ["x", LEFT_OUT]}]),
        ("box", {"a": "x"}, [LEFT_OUT]),
        ("other", "x", ["x"]),
    ],
)
def test_wrong(scoring: Any, name: str, value: Any, allowed: list[Any]) -> None:
    assert not is_right(scoring, name, value, allowed)


def test_a_required_argument_is_there_even_if_it_may_be_empty(scoring: Any) -> None:
    assert not is_right(scoring, "name", None, ["x", LEFT_OUT], required=("name",))


@pytest.mark.parametrize(
    ("cities", "right"),
    [
        (["oslo", "rome"], True),
        (["rome", "oslo"], True),
        (["rome", "rome"], False),
        (["oslo"], False),
        (["oslo", "rome", "rome"], False),
    ],
)
def test_several_calls_are_right_in_any_order(scoring: Any, cities: list[str], right: bool) -> None:
    functions = {"f": {"properties": TYPES, "required": ["name"]}}
    expected = [("f", {"name": ["Oslo"]}), ("f", {"name": ["Rome"]})]
    calls = [("f", {"name": city}) for city in cities]
    assert scoring.are_right(calls, expected, functions) is right
    assert not scoring.are_right([("g", each) for _, each in calls], expected, functions)
