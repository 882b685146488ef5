"""Checks of providers in addition to the requests they get."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from routingkit import (
    BROKEN,
    FULL,
    REPLY,
    Clock,
    Scripted,
    router,
    told,
)

from causerie.errors import UpstreamFailed
from causerie.routing.circuit_breaker import THRESHOLD
from causerie.routing.target_state import Check, checking_health, examine


async def test_checks_find_what_is_gone_and_what_is_back() -> None:
    clock = Clock()
    way = router(Scripted(REPLY), Scripted(REPLY), clock=clock)
    there = [True]

    async def ask() -> None:
        if not there[0]:
            raise UpstreamFailed("Gone.")

    check = Check(ask, 1.0, ["t0"])
    target_state = way.target_state("t0")
    assert target_state is not None
    there_was = there[0] = False
    for _ in range(THRESHOLD):
        there_was = await examine(check, [target_state], was_there=there_was)
    assert [status.state for status in way.status()] == ["down", "up"]
    there[0] = True
    there_was = await examine(check, [target_state], was_there=there_was)
    assert way.status()[0].state == "half_open"  # one request may find out
    assert way.status()[0].failures == THRESHOLD


async def test_checks_run_by_themselves_and_end_with_their_block() -> None:
    way = router(Scripted(REPLY))
    asked = asyncio.Event()

    async def ask() -> None:
        asked.set()

    way.target_state("t0")
    async with checking_health(way.target_state, [Check(ask, 0.001, ["t0"])]):
        async with asyncio.timeout(60):
            await asked.wait()
    assert len(asyncio.all_tasks()) == 1


async def test_where_requests_are_answered_nothing_is_asked() -> None:
    way = router(Scripted(REPLY))
    asked = 0
    pauses: asyncio.Queue[float] = asyncio.Queue()
    turns: asyncio.Queue[None] = asyncio.Queue()

    async def ask() -> None:
        nonlocal asked
        asked += 1

    async def pause(seconds: float) -> None:
        pauses.put_nowait(seconds)
        await turns.get()

    async with checking_health(way.target_state, [Check(ask, 10.0, ["t0"])], pause):
        for _ in range(10):
            assert 8 <= await pauses.get() <= 12
            await told(way, 1)
            turns.put_nowait(None)
        await pauses.get()
        assert asked == 0
        turns.put_nowait(None)
        await pauses.get()
        assert asked == 1


async def test_answering_checks_do_not_make_a_broken_target_be_tried_sooner() -> None:
    clock = Clock()
    way = router(Scripted([BROKEN]), Scripted(REPLY), clock=clock)
    for _ in range(THRESHOLD):
        await told(way, 2)

    async def ask() -> None:
        pass

    target_state = way.target_state("t0")
    assert target_state is not None
    assert await examine(Check(ask, 1.0, ["t0"]), [target_state], was_there=True)
    assert way.status()[0].state == "down"


async def test_a_check_that_is_refused_counts_one_that_finds_no_room_does_not() -> None:
    way = router(Scripted(REPLY))
    target_state = way.target_state("t0")
    assert target_state is not None

    async def forbidden() -> None:
        raise UpstreamFailed("No.", metadata={"upstream_status": 403})

    async def full() -> None:
        raise FULL

    assert await examine(Check(full, 1.0, ["t0"]), [target_state], was_there=True)
    assert way.status()[0].state == "full"
    for _ in range(THRESHOLD):
        assert not await examine(Check(forbidden, 1.0, ["t0"]), [target_state], was_there=True)
    assert way.status()[0].state == "down"


async def test_a_dead_target_stays_down_until_a_check_succeeds() -> None:
    clock = Clock()
    dead, good = Scripted([BROKEN]), Scripted(REPLY)
    way = router(dead, good, clock=clock)
    there = False

    async def ask() -> None:
        if not there:
            raise UpstreamFailed("Gone.")

    check, target_state = Check(ask, 15.0, ["t0"]), way.target_state("t0")
    assert target_state is not None
    assert not await examine(check, [target_state], was_there=True)
    for _ in range(100):
        clock.now += 15
        assert way.status()[0].state == "down"
        await told(way, 2)
    assert dead.asked == []
    there, dead.script = True, REPLY
    await examine(check, [target_state], was_there=False)
    assert way.status()[0].state == "half_open"
    await told(way, 2)
    assert len(dead.asked) == 1
    assert way.status()[0].state == "up"


@given(st.lists(st.sampled_from(["ask", "answer", "fail", "check", "gone", "soon", "late"])))
def test_no_target_is_up_that_has_only_failed(steps: list[str]) -> None:
    async def walk() -> None:
        clock = Clock()
        one, good = Scripted(REPLY), Scripted(REPLY)
        way = router(one, good, clock=clock)
        target_state = way.target_state("t0")
        assert target_state is not None
        there = gone = False

        async def ask() -> None:
            if not there:
                raise UpstreamFailed("Gone.")

        for step in steps:
            match step:
                case "ask":
                    before, refused = len(one.asked), gone and target_state.status().state == "down"
                    await told(way, 2)
                    assert not refused or len(one.asked) == before
                    gone = gone and target_state.breaker.failures > 0
                case "answer" | "fail":
                    one.script = REPLY if step == "answer" else [BROKEN]
                case "check" | "gone":
                    there, gone = step == "check", step == "gone"
                    await examine(Check(ask, 15.0, ["t0"]), [target_state], was_there=False)
                case "soon" | "late":
                    clock.now += 20 if step == "soon" else 400
            status, target_stats = target_state.status(), target_state.target_stats()
            assert target_stats.up == (status.state == "up")
            shares = (target_stats.uptime, target_stats.uptime_half_hour, target_stats.uptime_day)
            assert not target_stats.up or 0.0 not in shares

    asyncio.run(walk())
