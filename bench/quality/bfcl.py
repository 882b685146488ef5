"""Single-turn cases of the Berkeley Function Calling Leaderboard (v4), and which calls are right.

The data is in the Python package ``bfcl-eval``, of which only the data is used. A case is right if
its calls are the expected ones (:mod:`quality.scoring`), one of ``irrelevance`` without a call, and
one of ``relevance`` with any. ``live`` cases are what people asked, the others were written for the
test. Not here: ``simple_java`` and ``simple_javascript``, whose arguments are expressions of these
languages, written as texts.
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

from quality.scoring import Call, Parameters, Values, are_right

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


@dataclass(frozen=True, slots=True)
class Case:
    """A question, its ``tools``, and the expected calls with the values each argument may have.

    Without ``expected`` any call is right.
    """

    id: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    functions: Mapping[str, Parameters]
    """Parameters by the function's name, as the leaderboard describes them."""
    expected: Sequence[tuple[str, Values]] | None


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
    return are_right(calls, case.expected, case.functions)


def _case(question: Mapping[str, Any], truth: Sequence[Mapping[str, Any]] | None) -> Case:
    expected: list[tuple[str, Values]] | None = None
    if truth is not None:
        expected = [(_name(name), values) for one in truth for name, values in one.items()]
    described = question["function"]
    functions = {_name(one["name"]): one["parameters"] for one in described}
    return Case(question["id"], question["question"][0], _tools(described), functions, expected)


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


def _lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.decode().splitlines() if line.strip()]
