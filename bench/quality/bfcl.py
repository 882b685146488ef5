"""Single-turn cases of the Berkeley Function Calling Leaderboard (v4), and how a reply is judged.

The data is in the Python package ``bfcl-eval``, of which only the data is used. A case is right if
the function is the expected one, every required argument is there, and every argument has one of
the values that its answer lists. A case of ``irrelevance`` is right without a call, and one of
``relevance`` with any. ``live`` cases are what people asked, the others were written for the test.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = "bfcl-eval==2026.3.23"
CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
)

_FOLDER = "bfcl_eval/data"
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
_LEFT_OUT = ""  # in a list of answers: the argument may be left out
_CLOSE = 1e-6

Call = tuple[str, Mapping[str, Any]]
"""A function's name and its arguments."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question, its ``tools``, and the expected calls with the values each argument may have.

    Without ``expected`` any call is right.
    """

    id: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    expected: Sequence[tuple[str, Mapping[str, Sequence[Any]]]] | None


def fetch(folder: Path) -> Path:
    """Return the package's wheel in ``folder``; it is downloaded if it is not there."""
    found = sorted(folder.glob("bfcl_eval-*.whl"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--dest", str(folder), PACKAGE], check=True)
        found = sorted(folder.glob("bfcl_eval-*.whl"))
    return found[-1]


def cases(wheel: Path, category: str, count: int) -> list[Case]:
    """Return the first ``count`` cases of a category."""
    name = f"BFCL_v4_{category}.json"
    with zipfile.ZipFile(wheel) as package:
        questions = _lines(package.read(f"{_FOLDER}/{name}"))[:count]
        if category.endswith("irrelevance"):
            return [_case(one, []) for one in questions]
        if category.endswith("relevance"):
            return [_case(one, None) for one in questions]
        listed = _lines(package.read(f"{_FOLDER}/possible_answer/{name}"))
    answers = {one["id"]: one["ground_truth"] for one in listed}
    return [_case(one, answers[one["id"]]) for one in questions]


def is_right(case: Case, calls: Sequence[Call]) -> bool:
    """Return whether these calls are the expected ones, in any order."""
    if case.expected is None:
        return bool(calls)
    left = list(calls)
    if len(left) != len(case.expected):
        return False
    for name, values in case.expected:
        match = next((one for one in left if _fits(case, one, name, values)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _case(question: Mapping[str, Any], truth: Sequence[Mapping[str, Any]] | None) -> Case:
    expected = truth and [(_name(name), values) for one in truth for name, values in one.items()]
    return Case(question["id"], question["question"][0], _tools(question["function"]), expected)


def _tools(functions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": _name(one["name"]),
                "description": one["description"],
                "parameters": _schema(one["parameters"]),
            },
        }
        for one in functions
    ]


def _name(name: str) -> str:
    """Return a function's name as the API allows it: without dots."""
    return name.replace(".", "_")


def _schema(given: Any) -> Any:
    """Return a JSON Schema of a description that has the types of Python."""
    if isinstance(given, list):
        return [_schema(one) for one in given]
    if not isinstance(given, dict):
        return given
    schema = {key: _schema(value) for key, value in given.items() if key != "optional"}
    kind = schema.get("type")
    if isinstance(kind, str):
        if kind == "any":
            del schema["type"]
        else:
            schema["type"] = _TYPES.get(kind, kind)
    return schema


def _fits(case: Case, call: Call, name: str, values: Mapping[str, Sequence[Any]]) -> bool:
    called, arguments = call
    if called != name or not set(arguments) <= set(values):
        return False
    return all(
        _matches(arguments[key], allowed) if key in arguments else _LEFT_OUT in allowed
        for key, allowed in values.items()
    )


def _matches(value: Any, allowed: Sequence[Any]) -> bool:
    return any(_equal(value, one) for one in allowed)


def _equal(value: Any, expected: Any) -> bool:
    """Compare as the leaderboard does: texts without case, spaces and punctuation."""
    if isinstance(value, str) and isinstance(expected, str):
        return _letters(value) == _letters(expected)
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return abs(value - expected) <= _CLOSE * max(1.0, abs(expected))
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_equal, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):  # of which each value is a list
        return set(value) <= set(expected) and all(
            _matches(value[key], allowed) if key in value else _LEFT_OUT in allowed
            for key, allowed in expected.items()
        )
    return bool(value == expected)


def _letters(text: str) -> str:
    return "".join(char for char in text.lower() if char not in " ,./-_*^'\"")


def _lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.decode().splitlines() if line.strip()]
