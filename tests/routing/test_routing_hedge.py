"""A second target where the first is slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from routingkit import (
    ASK,
    BROKEN,
    PROMPT,
    REPLY,
    Scripted,
    begun,
    in_turn,
    router,
    streamed,
)

from causerie.errors import InvalidRequest
from causerie.protocol.events import (
    Batch,
    Event,
    TextDelta,
    Usage,
)
from causerie.routing.context import RetryBudget
from causerie.routing.router import Router
from causerie.routing.target_selector import SLOWER


@dataclass
class Slow(Scripted):
    """Says nothing before ``gate``."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def _events(self, start: int, counts: list[int]) -> AsyncIterator[Batch]:
        await self.gate.wait()
        async for batch in super()._events(start, counts):
            yield batch


async def hedged(way: Router, count: int) -> tuple[list[Event], str]:
    async with begun(way.generate(in_turn(count), ASK, 0.0)) as execution:
        return await streamed(execution), execution.served_by


async def test_where_the_first_is_slow_a_second_is_asked_and_the_first_is_left() -> None:
    slow, quick = Slow(REPLY), Scripted(REPLY)
    way = router(slow, quick)
    said, served_by = await hedged(way, 2)
    assert said == [*REPLY, Usage(PROMPT, 7)]
    assert served_by == "t1"
    assert (slow.open, quick.open) == (0, 0)
    assert [status.in_flight for status in way.status()] == [0, 0]
    assert way.status()[0].state == "up"


async def test_if_the_second_fails_the_first_is_waited_for() -> None:
    slow, bad = Slow(REPLY), Scripted([BROKEN])
    way = router(slow, bad)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(hedged(way, 2))
        await bad.begun.wait()
        slow.gate.set()
    assert asking.result()[1] == "t0"


async def test_a_wrong_request_is_told_so_at_once_whoever_else_was_asked() -> None:
    wrong, slow = Slow([TextDelta(""), InvalidRequest("No.")]), Slow(REPLY)
    way = router(wrong, slow)
    asking = asyncio.ensure_future(hedged(way, 2))
    await slow.begun.wait()
    wrong.gate.set()
    async with asyncio.timeout(60):
        with pytest.raises(InvalidRequest):
            await asking
    assert (wrong.open, slow.open) == (0, 0)
    assert [status.in_flight for status in way.status()] == [0, 0]


async def test_second_requests_are_a_bounded_share() -> None:
    quick = Scripted(REPLY)
    slow = Slow(REPLY)
    way = router(slow, quick)
    served = []
    for _ in range(2):
        served.append((await hedged(way, 2))[1])
    assert served == ["t1", "t1"]
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(hedged(way, 2))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not asking.done()  # the share is used up: the first is waited for
        slow.gate.set()
    assert asking.result()[1] == "t0"


async def test_leaving_while_two_are_asked_frees_both() -> None:
    slow, other = Slow(REPLY), Slow(REPLY)
    way = router(slow, other)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(hedged(way, 2))
        await other.begun.wait()
        asking.cancel()
    assert (slow.open, other.open) == (0, 0)
    assert [status.in_flight for status in way.status()] == [0, 0]


async def test_everybody_who_was_asked_is_told_of() -> None:
    slow, quick = Slow(REPLY), Scripted(REPLY)
    async with begun(router(slow, quick).generate(in_turn(2), ASK, 0.0)) as execution:
        assert [(one.target, one.failure) for one in execution.tried] == [
            ("t0", SLOWER),
            ("t1", ""),
        ]


async def test_a_second_one_that_failed_is_not_asked_again() -> None:
    slow, bad, good = Slow([TextDelta(""), BROKEN]), Scripted([BROKEN]), Scripted(REPLY)
    way = router(slow, bad, good)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(hedged(way, 3))
        await bad.begun.wait()
        slow.gate.set()
    assert asking.result() == ([*REPLY, Usage(PROMPT, 7)], "t2")
    assert len(bad.asked) == 1


async def test_without_room_in_the_budget_nobody_is_asked_besides() -> None:
    slow, quick = Slow(REPLY), Scripted(REPLY)
    way = router(slow, quick, budget=RetryBudget(attempts=1))
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(hedged(way, 2))
        await slow.begun.wait()
        slow.gate.set()
    assert asking.result()[1] == "t0"
    assert quick.asked == []
