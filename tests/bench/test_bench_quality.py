"""The benchmark of answers judges calls as the leaderboard describes them."""

from __future__ import annotations

import json
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
FOLDER = "bfcl_eval/data"
QUESTION = {
    "id": "simple_python_0",
    "question": [[{"role": "user", "content": "Book two seats to Oslo."}]],
    "function": [
        {
            "name": "trains.book",
            "description": "Book seats.",
            "parameters": {
                "type": "dict",
                "properties": {
                    "city": {"type": "string"},
                    "seats": {"type": "integer", "optional": True},
                    "price": {"type": "float"},
                    "when": {"type": "dict", "properties": {"day": {"type": "any"}}},
                    "rows": {"type": "tuple", "items": {"type": "integer"}},
                },
                "required": ["city"],
            },
        }
    ],
}
ANSWER = {
    "id": "simple_python_0",
    "ground_truth": [
        {
            "trains.book": {
                "city": ["Oslo", "Oslo, Norway"],
                "seats": [2],
                "price": ["", 9.5],
                "when": ["", {"day": ["Monday", ""]}],
                "rows": ["", [1, 2]],
            }
        }
    ],
}
GOOD = {"city": "oslo", "seats": 2}


@pytest.fixture
def bfcl(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("quality.bfcl")


@pytest.fixture
def case(bfcl: Any, tmp_path: Path) -> Any:
    wheel = tmp_path / "bfcl_eval-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as package:
        for name, line in (("", QUESTION), ("possible_answer/", ANSWER)):
            package.writestr(f"{FOLDER}/{name}BFCL_v4_simple_python.json", json.dumps(line))
    assert bfcl.fetch(tmp_path) == wheel
    (case,) = bfcl.cases(wheel, "simple_python", 5)
    return case


def test_the_types_of_python_become_those_of_json_schema(case: Any) -> None:
    function = case.tools[0]["function"]
    assert function["name"] == "trains_book"
    parameters = function["parameters"]
    assert parameters["type"] == "object"
    kinds = {name: each.get("type") for name, each in parameters["properties"].items()}
    assert kinds == {
        "city": "string",
        "seats": "integer",
        "price": "number",
        "when": "object",
        "rows": "array",
    }
    assert parameters["properties"]["when"]["properties"]["day"] == {}
    assert "optional" not in parameters["properties"]["seats"]


@pytest.mark.parametrize(
    "more",
    [{}, {"city": "OSLO, Norway"}, {"price": 9.5}, {"when": {"day": "monday"}}, {"rows": [1, 2]}],
)
def test_a_listed_value_is_right(bfcl: Any, case: Any, more: dict[str, Any]) -> None:
    assert bfcl.is_right(case, [("trains_book", GOOD | more)])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("trains_cancel", GOOD),
        ("trains_book", {"city": "Oslo"}),
        ("trains_book", GOOD | {"seats": 3}),
        ("trains_book", GOOD | {"seats": "2"}),
        ("trains_book", GOOD | {"seats": True}),
        ("trains_book", GOOD | {"class": 1}),
        ("trains_book", GOOD | {"rows": [2, 1]}),
        ("trains_book", GOOD | {"when": {"hour": 1}}),
    ],
)
def test_anything_else_is_wrong(bfcl: Any, case: Any, name: str, arguments: dict[str, Any]) -> None:
    assert not bfcl.is_right(case, [(name, arguments)])


def test_there_are_as_many_calls_as_expected(bfcl: Any, case: Any) -> None:
    call = ("trains_book", GOOD)
    assert bfcl.is_right(case, [call])
    assert not bfcl.is_right(case, [])
    assert not bfcl.is_right(case, [call, call])


@pytest.mark.parametrize(
    ("category", "without", "with_one"),
    [("live_relevance", False, True), ("irrelevance", True, False)],
)
def test_relevance_is_whether_there_is_a_call(
    bfcl: Any, tmp_path: Path, category: str, without: bool, with_one: bool
) -> None:
    wheel = tmp_path / "bfcl_eval-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as package:
        package.writestr(f"{FOLDER}/BFCL_v4_{category}.json", json.dumps(QUESTION))
    (case,) = bfcl.cases(wheel, category, 5)
    assert bfcl.is_right(case, []) is without
    assert bfcl.is_right(case, [("trains_book", GOOD)]) is with_one


def test_a_reply_that_is_known_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    sides = import_module("quality.sides")
    asked = []

    def ask(root: str, body: Any) -> Any:
        asked.append(root)
        return sides.Reply("Oslo", [("f", "{}")], "stop")

    monkeypatch.setattr(sides, "ask", ask)
    file = tmp_path / "replies.jsonl"
    first = sides.Asked({"service": "http://a"}, file).reply("service", "group 1", {})
    again = sides.Asked({"service": "http://a"}, file).reply("service", "group 1", {})
    assert asked == ["http://a"]
    assert again == sides.Reply("Oslo", [["f", "{}"]], "stop")
    assert first.content == again.content


def test_a_reply_that_was_being_written_when_a_run_ended_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    sides = import_module("quality.sides")
    monkeypatch.setattr(sides, "ask", lambda root, body: sides.Reply("Oslo"))
    file = tmp_path / "replies.jsonl"
    for task in ("first", "second"):
        sides.Asked({"service": "http://a"}, file).reply("service", task, {})
    whole = file.read_text()
    file.write_text(whole[:-5])
    asked = sides.Asked({"service": "http://a"}, file)
    assert list(asked.known) == ["service first"]
    asked.reply("service", "second", {})
    assert file.read_text() == whole
