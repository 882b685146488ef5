"""No input of any public entry costs much: drawn by cost, for every place of every entry.

A bounded selection of what ``bench/loop_delay.py --draw`` draws. One that fails names a line that
``--replay`` sends again.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from casekit import each_of
from costkit import Search
from entrykit import entries
from hostilekit import (
    FAMILIES,
    TEXTS,
    VALUES,
    Case,
    Entry,
    build,
    draw,
    drawing,
    each_family,
    every_place,
    shrink,
)
from loopkit import BOUND_SECONDS, Watch

_SEED = "26"
_SECONDS = 60.0
# Inputs that once cost too much, each of another kind.
_FOUND = (
    "query/console/catalog; fields.max=down:6",
    "model.router; model=resembling:40",
    "list.models; data.0.pricing.prompt=up:6",
    "list.models; data=more:300; data.0.pricing.prompt=down:6",
    "schema.format; schema=anchored:66/pattern:3; document=keys:30/letters:3",
    "schema.tool; schema=overlapping:60/enum:40/words:20",
    "schema.format; schema=unique:400; document=list:4000",
    "reply.gathered; events=list:100000; chunk.choices.0.delta.content=letters:500",
    "pool.events; events.0.token_ids=list:3000000",
)


async def _sent(_: Any) -> int:
    return 200


def _entry() -> Entry:
    usual = {"a": "x", "b": [{"c": 1}]}
    return Entry("some", usual, _sent, every_place(usual, tuple(FAMILIES)), most=10_000)


def test_a_line_names_a_case_wholly() -> None:
    rng, entry = random.Random(_SEED), _entry()
    for case in [draw(entry, rng) for _ in range(500)]:
        again = Case.parse(str(case))
        assert again == case
        assert msgspec.json.encode(entry.input(again)) == msgspec.json.encode(entry.input(case))


def test_the_same_seed_draws_the_same() -> None:
    one, other = (drawing(_entry(), random.Random(_SEED)) for _ in range(2))
    assert [next(one) for _ in range(100)] == [next(other) for _ in range(100)]


def test_each_place_gets_each_family() -> None:
    entry = _entry()
    drawn = {
        (case.parts[0].place, case.parts[0].chain[0][0])
        for case in each_family(entry, random.Random(_SEED))
    }
    assert drawn == {(place, family) for place in entry.places for family in FAMILIES}


@each_of("family", FAMILIES)
def test_inputs_are_about_as_large_as_their_weight(family: str) -> None:
    """A case that is drawn within a budget of bytes must not be larger by orders of magnitude."""
    for size in (size for size in FAMILIES[family].sizes if size <= 1_000):
        case = Case("some", _entry_part(family, size))
        made = msgspec.json.encode(build(case.parts[0].chain, "x"))
        assert len(made) <= 60 * case.weight + 400, size


def _entry_part(family: str, size: int) -> Any:
    return Case.parse(f"some; a={family}:{size}").parts


async def test_a_finding_is_made_smaller_while_it_is_one() -> None:
    async def fails(case: Case) -> bool:
        return any(
            name == "keys" and size >= 100 for part in case.parts for name, size in part.chain
        )

    case = Case.parse("some; a=letters:1000; b=list:8/keys:10000/letters:64; b.0=deep:2")
    [part] = (await shrink(case, fails, tries=500)).parts
    [(name, size)] = part.chain
    assert (part.place, name) == ("b", "keys")
    assert 100 <= size < 100 * 8 / 7


def test_leaves_end_a_chain() -> None:
    assert all(FAMILIES[name].leaf for name in TEXTS)
    assert not any(FAMILIES[name].leaf for name in VALUES)


async def test_a_hold_of_the_loop_is_found() -> None:
    """The watch itself works: it is used by tests of time alone, which seldom run."""
    watch = Watch()
    with watch.looking():
        asyncio.get_running_loop().call_soon(sum, range(10_000_000))
        await asyncio.sleep(0)
    assert watch.longest > BOUND_SECONDS
    assert "sum" in watch.what


@pytest.mark.timing
async def test_nothing_that_is_sent_costs_much(tmp_path: Path) -> None:
    async with entries(tmp_path) as every:
        search = Search(every)
        known = [await search.report(Case.parse(line)) for line in _FOUND]
        drawn = [each async for each in search.findings(_SEED, _SECONDS)]
    assert not [*filter(None, known), *drawn], "\n".join([*filter(None, known), *drawn])
