"""The class of each call: whether its client can run it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st
from waiting import eventually

from causerie.chat.call_check import (
    MAX_ARGUMENTS,
    MAX_SCHEMA,
    MOST_WAITING,
    SAMPLE_SECONDS,
    CallChecker,
    Calls,
    call_class,
)
from causerie.http.tasks import owned
from causerie.protocol.request import Tool
from causerie.protocol.targets import CallClass

WEATHER = Tool(
    "weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city"],
    },
)
TIME = Tool("time", {})
TOOLS = (WEATHER, TIME)


@each_of(
    ("name", "arguments", "expected"),
    [
        ("weather", '{"city": "Bonn", "days": 2}', "fine"),
        ("weather", '{"city": "Bonn", "unit": "K"}', "fine"),  # the schema leaves it open
        ("time", "{}", "fine"),
        ("wether", '{"city": "Bonn"}', "unknown_name"),
        ("wether", '{"city": ', "unknown_name"),
        ("weather", '{"city": "Bonn"', "invalid_json"),
        ("weather", "", "invalid_json"),
        ("weather", '{"city": NaN}', "invalid_json"),
        ("weather", "[" * 100_000, "invalid_json"),
        ("weather", "{}", "schema_mismatch"),
        ("weather", '{"city": 7}', "schema_mismatch"),
        ("weather", '{"city": "Bonn", "days": 0}', "schema_mismatch"),
        ("time", '"{}"', "schema_mismatch"),  # an object as a string
        ("time", "null", "schema_mismatch"),
        ("weather", '{"city": "' + "o" * MAX_ARGUMENTS + '"}', "unchecked"),
    ],
)
def test_classes(name: str, arguments: str, expected: CallClass) -> None:
    assert call_class(name, arguments, TOOLS) == expected


@pytest.mark.parametrize(
    "parameters",
    [
        {"$ref": "https://example.org/other.json"},
        {"type": "object", "description": "o" * MAX_SCHEMA},
    ],
)
def test_a_schema_that_cannot_be_checked(parameters: dict[str, object]) -> None:
    assert call_class("f", "{}", [Tool("f", parameters)]) == "unchecked"


def test_work_is_bounded() -> None:
    """Each item tries all alternatives: too many steps, which says nothing against the call."""
    one_of = [{"type": "array", "maxItems": 0, "items": {"const": n}} for n in range(200)]
    rows = {"type": "array", "items": {"anyOf": [*one_of, {"type": "integer"}]}}
    tool = Tool("f", {"type": "object", "properties": {"rows": rows}})
    assert call_class("f", json.dumps({"rows": [1] * 10}), [tool]) == "fine"
    assert call_class("f", json.dumps({"rows": [1] * 10_000}), [tool]) == "unchecked"


@given(st.text(max_size=40))
def test_every_text_has_a_class(text: str) -> None:
    assert call_class("time", text, TOOLS) in {"fine", "invalid_json", "schema_mismatch"}


async def until(holds: Callable[[], bool]) -> None:
    async def now() -> bool:
        return holds()

    await eventually(now, 10)


class Counts:
    """What a checker has counted, by target."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, CallClass]] = Counter()

    def __call__(self, target: str, classes: Sequence[CallClass]) -> None:
        self.seen.update((target, one) for one in classes)


def delivered(*calls: tuple[str, str]) -> Callable[[], Calls]:
    return lambda: calls


async def test_all_of_own_models_and_a_sample_of_others() -> None:
    counts, now = Counts(), [0.0]
    checker = CallChecker(counts, lambda target: target == "own", lambda: now[0])
    good, bad = ("time", "{}"), ("weather", "{}")
    async with owned(checker.run()):
        for _ in range(3):
            checker.take("own", delivered(good, bad), TOOLS)
            checker.take("north/m", delivered(), TOOLS)  # text is no part of the sample
            checker.take("north/m", delivered(bad), TOOLS)
        checker.take("south/m", delivered(good), TOOLS)
        now[0] += SAMPLE_SECONDS
        checker.take("north/m", delivered(good), TOOLS)
        await until(lambda: counts.seen.total() == 9)
    assert counts.seen == {
        ("own", "fine"): 3,
        ("own", "schema_mismatch"): 3,
        ("north/m", "schema_mismatch"): 1,
        ("north/m", "fine"): 1,
        ("south/m", "fine"): 1,
    }


async def test_what_waits_is_bounded() -> None:
    counts = Counts()
    checker = CallChecker(counts, lambda _: True)
    for _ in range(MOST_WAITING + 5):  # nobody works
        checker.take("own", delivered(("time", "{}")), TOOLS)
    assert counts.seen == {("own", "unchecked"): 5}
    async with owned(checker.run()):
        await until(lambda: counts.seen["own", "fine"] == MOST_WAITING)


async def test_a_fault_of_the_check_does_not_end_it() -> None:
    counts, broken = Counts(), [True]

    def count(target: str, classes: Sequence[CallClass]) -> None:
        if broken.pop():
            raise LookupError
        counts(target, classes)

    checker = CallChecker(count, lambda _: True)
    async with owned(checker.run()) as working:
        checker.take("own", delivered(("time", "{}")), TOOLS)
        await until(lambda: not broken)
        broken.append(False)
        checker.take("own", delivered(("time", "{}")), TOOLS)
        await until(lambda: counts.seen.total() == 1)
        assert not working.done()


async def test_the_loop_goes_on_meanwhile() -> None:
    """The check runs in another thread: the loop has turns while it works."""
    counts = Counts()
    checker = CallChecker(counts, lambda _: True)
    rows = Tool("f", {"type": "object", "properties": {"rows": {"items": {"type": "integer"}}}})
    turns = 0
    async with owned(checker.run()):
        checker.take("own", delivered(("f", json.dumps({"rows": [1] * 40_000}))), [rows])
        while not counts.seen:
            await asyncio.sleep(0)
            turns += 1
    assert turns > 3
    assert counts.seen == {("own", "fine"): 1}
