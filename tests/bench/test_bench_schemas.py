"""The benchmark of real decodings counts right, and goes on behind what it has."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from chatkit import Unchecked

from causerie.engines.registry import FakeEngine, FakeScript

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("schema_decodings")


def corpus(bench: Any, folder: Path) -> list[Any]:
    schemas = {
        "fits.json": {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
        "long.json": {"type": "array", "items": {"const": "x" * 200}, "minItems": 1},
        "never.json": {"type": "string", "$ref": "https://example.com/other"},
        "three.json": {
            "type": "array",
            "items": {"type": "boolean"},
            "minItems": 3,
            "uniqueItems": True,
        },
    }
    for name, schema in schemas.items():
        (folder / name).write_text(json.dumps(schema))
    return list(bench.cases(folder))


async def test_each_schema_is_decoded_once_and_counted(bench: Any, tmp_path: Path) -> None:
    found = corpus(bench, tmp_path)
    engine = FakeEngine("m", FakeScript(['{"a": 1}', "[]", "[]", "[true, true, true]"] * 9))
    results = tmp_path / "results.jsonl"
    counts = await bench.decode(engine, found[:2], results, 100)
    assert counts == {"valid": 1, "cut": 1}
    counts = await bench.decode(engine, found, results, 100)
    assert counts == {"valid": 1, "cut": 1, "refused": 2}
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert [line["name"] for line in lines] == sorted({line["name"] for line in lines})
    assert lines[0]["text"] == '{"a": 1}'
    assert "at most 2 items can differ" in lines[-1]["reason"]


async def test_the_other_implementation_is_asked_too(bench: Any) -> None:
    case = bench.Case("n", {"type": "integer"})
    assert "jsonschema" in bench._other(case, '"a"')
    assert bench._other(case, "1") is None


async def test_documents_are_written_at_random(bench: Any, tmp_path: Path) -> None:
    found = corpus(bench, tmp_path)
    writer, results = bench.RandomWriter("m"), tmp_path / "results.jsonl"
    counts = await bench.decode(writer, found, results, 1000, at_once=2)
    assert counts == {"valid": 2, "refused": 2}


MASKBENCH: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "counted.json": (
        {"type": "string", "pattern": r"^(\S+\s){0,99}\S+$", "maxLength": 700},
        ["a bus stop and a train station " * 3 + "here"],
        ["a" * 701],
    ),
    "fits.json": (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]},
        [{"a": 1}, {"b": 0, "a": 1}, {"a": 1, "c": 2}, {"a": 1.0}],
        [{"a": "x"}, {}],
    ),
    "late.json": (
        {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        [[1, 2]],
        [[1, 1]],
    ),
    "never.json": ({"type": "string", "enum": []}, ["x"], []),
    "overlap.json": (
        {"oneOf": [{}, {"type": "array", "minItems": 1, "items": {"oneOf": [{}, {"const": "a"}]}}]},
        [["a"]],
        [[1]],
    ),
}


async def test_documents_are_judged_and_a_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    schemas = import_module("schemas")
    folder, results = tmp_path / "data", tmp_path / "results.jsonl"
    folder.mkdir()
    for name, (schema, valid, invalid) in MASKBENCH.items():
        tests = [{"data": one, "valid": one in valid} for one in (*valid, *invalid)]
        (folder / name).write_text(json.dumps({"schema": schema, "tests": tests}))
    found = list(schemas.cases(folder))
    await schemas.measure(found[:1], Unchecked(), None, results)
    outcomes = await schemas.measure(found, Unchecked(), None, results)
    counted, fits, late, never, overlap = outcomes
    assert overlap.verdicts == {"OVERLAP": 1}
    assert fits.verdicts == {"ADMITTED": 1, "ORDER": 1, "UNNAMED": 1, "SPELLED": 1}
    assert (fits.invalid, fits.late, fits.wrong) == (2, 0, [])
    assert (late.verdicts, late.invalid, late.late) == ({"ADMITTED": 1}, 1, 1)
    assert (late.watched, counted.watched) == (1, 1)
    assert (counted.verdicts, counted.late) == ({"ADMITTED": 1}, 1)
    assert "no document" in never.reason
    assert [json.loads(line)["name"] for line in results.read_text().splitlines()] == [*MASKBENCH]
    lines = list(schemas.report(outcomes, verbose=False))
    assert lines[0] == "5 schemas, 1 refused (20.00 %), 2 checked at the end"
    assert "7 valid documents" in lines
    assert "5 invalid documents, 0 admitted, 2 by the grammar only" in lines
    assert "       2 of these are found while they are written" in lines
