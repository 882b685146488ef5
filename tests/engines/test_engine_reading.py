"""Texts that are read into tokens, and those who leave meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from causerie.engines import supervised
from causerie.engines.base import EngineFailed
from causerie.engines.supervised import TokenizeLimit


class Child:
    """Reads until it is told to be done."""

    def __init__(self) -> None:
        self.reading = 0
        self.done = asyncio.Event()

    async def read(self) -> str:
        self.reading += 1
        await self.done.wait()
        return "read"


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("size", "places"), [(10, supervised._AT_ONCE), (1_000_000, supervised._LONG_AT_ONCE)]
)
async def test_those_who_leave_keep_their_places_until_their_texts_are_read(
    size: int, places: int
) -> None:
    child, readings = Child(), TokenizeLimit()
    askers = [asyncio.create_task(readings.of(size, child.read)) for _ in range(3 * places)]
    await settled()
    for asker in askers[: 2 * places]:
        asker.cancel()
    await settled()
    assert child.reading == places
    child.done.set()
    assert await asyncio.gather(*askers[2 * places :]) == ["read"] * places
    assert child.reading == 2 * places


async def test_short_texts_pass_long_ones_by() -> None:
    child, readings = Child(), TokenizeLimit()
    long = [asyncio.create_task(readings.of(1_000_000, child.read)) for _ in range(100)]
    await settled()

    async def short() -> str:
        return "short"

    async with asyncio.timeout(60):
        assert await readings.of(10, short) == "short"
    for asker in long:
        asker.cancel()
    child.done.set()
    await settled()


async def test_a_failure_gives_the_place_back() -> None:
    readings = TokenizeLimit()

    async def fail() -> None:
        raise EngineFailed("gone")

    async with asyncio.timeout(60):
        for _ in range(2 * supervised._AT_ONCE):
            with pytest.raises(EngineFailed):
                await readings.of(10, fail)
