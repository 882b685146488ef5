"""Time of schemas from the request to the verdict, ordinary and hostile ones.

python bench/constraint_compile.py [--vocabulary model.gguf]

Prints median, 99th percentile and worst in milliseconds, and how long an
ordinary schema waits while hostile ones are being compiled.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterable
from pathlib import Path

from causerie.chat.compiler import Compiler, Vocabulary
from causerie.chat.schema import prepare
from causerie.errors import ServiceError

READER = "causerie.engines.weights.vocabulary:read_vocabulary"
Schema = dict[str, object]


def ordinary(count: int) -> list[Schema]:
    """Schemas as applications write them; no two are the same."""
    return [_ordinary(number) for number in range(count)]


def _ordinary(number: int) -> Schema:
    kinds: list[Schema] = [
        {"type": "string", "description": "A name."},
        {"type": "integer", "minimum": 0, "maximum": 100 + number},
        {"type": "array", "items": {"type": "string", "maxLength": 200}, "maxItems": 10},
        {"enum": ["low", "medium", "high"]},
        {"type": "string", "format": "date-time"},
        {"anyOf": [{"type": "number"}, {"type": "null"}]},
        {"type": "string", "pattern": "^[A-Z]{2,3}-[0-9]{1,6}$"},
        {"type": "array", "items": {"$ref": "#/$defs/item"}},
        {"type": "boolean"},
    ]
    names = [f"field_{number}_{at}" for at in range(4 + number % 20)]
    item: Schema = {
        "type": "object",
        "properties": {"title": {"type": "string"}, "parts": {"type": "array", "items": kinds[7]}},
        "required": ["title"],
    }
    return {
        "type": "object",
        "title": f"Answer {number}",
        "properties": {name: kinds[at % len(kinds)] for at, name in enumerate(names)},
        "required": names[::2],
        "additionalProperties": False,
        "$defs": {"item": item},
    }


def hostile() -> dict[str, Schema]:
    """Schemas that cost much to compile or to follow."""
    spread = [
        {"anyOf": [{"type": "object", "properties": {f"a{i}_{j}": {}}} for j in range(10)]}
        for i in range(8)
    ]
    recursive: Schema = {
        "type": "object",
        "properties": {f"p{at}": {"$ref": f"#/$defs/d{at}"} for at in range(300)},
    }
    return {
        "exponential pattern": {"type": "string", "pattern": "(a|b)*a(a|b){30}c"},
        "many starts": {"type": "string", "pattern": "(.*a){40}"},
        "100,000 repeats": {"type": "string", "pattern": "^(ab?c{1,9}){1,100000}$"},
        "nested repeats": {"type": "string", "pattern": "^(((a{1,999}){1,999}){1,999}){1,999}$"},
        "maxLength 100,000": {"type": "string", "maxLength": 100_000},
        "9,000 properties": {
            "type": "object",
            "properties": {f"p{at}": {"type": "string"} for at in range(9_000)},
        },
        "19,000 constants": {"enum": [f"value {at}" for at in range(19_000)]},
        "allOf of anyOf": {"allOf": spread},
        "300 recursive definitions": {
            **recursive,
            "$defs": {f"d{at}": recursive for at in range(300)},
        },
        "multiples of a prime": {"type": "integer", "multipleOf": 999_983},
        "four megabytes": {"enum": ["x" * 1_000 + str(at) for at in range(4_000)]},
    }


async def _verdict(compiler: Compiler, schema: Schema, vocabulary: str | None) -> tuple[float, str]:
    """Milliseconds from schema to verdict, and the verdict."""
    began = time.perf_counter()
    try:
        grammar = "%llguidance {}\nstart: %json " + prepare(schema, param="schema").text
        await compiler.check(grammar, Vocabulary(vocabulary), param="schema")
        verdict = "enforced"
    except ServiceError as failure:
        verdict = failure.message[:100]
    return (time.perf_counter() - began) * 1e3, verdict


def _row(name: str, times: Iterable[float]) -> None:
    ordered = sorted(times)
    late = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(
        f"{name:34} median {statistics.median(ordered):8.1f} ms   p99 {late:8.1f} ms   "
        f"worst {ordered[-1]:8.1f} ms"
    )


async def measure(vocabulary: str | None) -> None:
    """Run and print everything."""
    compiler = Compiler(reader=READER if vocabulary else "")
    try:
        first = (f'start: "{one}"' for one in "ab")  # each worker reads the vocabulary
        known = Vocabulary(vocabulary)
        await asyncio.gather(*(compiler.check(one, known, param="schema") for one in first))
        times = [(await _verdict(compiler, one, vocabulary))[0] for one in ordinary(100)]
        _row("100 ordinary schemas", times)
        again = [(await _verdict(compiler, one, vocabulary))[0] for one in ordinary(100)]
        _row("the same again", again)
        costs = []
        for name, schema in hostile().items():
            cost, verdict = await _verdict(compiler, schema, vocabulary)
            costs.append(cost)
            print(f"  {name:32} {cost:8.1f} ms   {verdict}")
        _row(f"{len(costs)} hostile schemas", costs)
        await _alongside(compiler, vocabulary)
    finally:
        await compiler.stop()


async def _alongside(compiler: Compiler, vocabulary: str | None) -> None:
    """Ordinary schemas while another client sends slow ones, one after the other."""
    over = asyncio.Event()

    async def attack() -> None:
        prime = 999_983
        while not over.is_set():
            prime += 2
            await _verdict(compiler, {"type": "integer", "multipleOf": prime}, vocabulary)

    async with asyncio.TaskGroup() as group:
        group.create_task(attack())
        schemas = [{**one, "$comment": "", "minProperties": 0} for one in ordinary(200)[100:]]
        times = [(await _verdict(compiler, one, vocabulary))[0] for one in schemas]
        over.set()
    _row("100 ordinary alongside an attack", times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vocabulary", type=Path, help="a model file (GGUF); bytes without")
    path = parser.parse_args().vocabulary
    asyncio.run(measure(str(path.resolve()) if path else None))


if __name__ == "__main__":
    main()
