"""A supervised child: started, restarted with back-off, stopped for good."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from causerie.engines import supervised as module
from causerie.engines.base import EngineFailed, EngineState
from causerie.engines.supervised import EngineSupervisor, GivenUp


class Child:
    def __init__(self) -> None:
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stopped = 0

    async def ended(self) -> str:
        return await asyncio.shield(self.end)

    async def stop(self) -> None:
        self.stopped += 1


class Nursery:
    """Spawns children, or fails as told; waits only as long as the test lets it."""

    def __init__(self, failures: Sequence[str | Exception | None] = ()) -> None:
        self.failures = list(failures)
        self.children: list[Child] = []
        self.waits: list[float] = []
        self.go = asyncio.Semaphore(0)
        self.spawned = asyncio.Semaphore(0)

    async def spawn(self) -> Child:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise EngineFailed(failure) if isinstance(failure, str) else failure
        self.children.append(Child())
        self.spawned.release()
        return self.children[-1]

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await self.go.acquire()

    def supervisor(self) -> EngineSupervisor[Any]:
        return EngineSupervisor("m", self.spawn, self.sleep)


def seen(watched: EngineSupervisor[Any]) -> tuple[EngineState, Any]:
    return watched.state, watched.child


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_child_is_there_only_while_it_is_ready() -> None:
    nursery = Nursery()
    watched = nursery.supervisor()
    assert seen(watched) == (EngineState.ABSENT, None)
    await watched.start()
    assert seen(watched) == (EngineState.READY, nursery.children[0])
    await watched.stop()
    assert seen(watched) == (EngineState.ABSENT, None)
    assert nursery.children[0].stopped == 1


async def test_a_first_start_that_fails_is_told_and_not_repeated() -> None:
    nursery = Nursery(["no memory"])
    watched = nursery.supervisor()
    with pytest.raises(EngineFailed, match="no memory"):
        await watched.start()
    assert (watched.state, watched.detail) == (EngineState.FAILED, "no memory")
    assert not watched.restarting
    assert nursery.waits == []


async def test_an_ended_child_is_started_again() -> None:
    nursery = Nursery()
    watched = nursery.supervisor()
    await watched.start()
    nursery.children[0].end.set_result("signal 9")
    await settled()
    assert (watched.state, watched.detail, watched.child) == (EngineState.FAILED, "signal 9", None)
    assert watched.restarting
    assert watched.retry_after() >= 1
    assert nursery.children[0].stopped == 1
    nursery.go.release()
    await settled()
    assert (watched.state, watched.detail, watched.restarts) == (EngineState.READY, "", 1)
    assert seen(watched)[1] is nursery.children[1]
    assert not watched.restarting
    await watched.stop()
    assert nursery.children[1].stopped == 1


async def test_a_restart_that_breaks_on_a_fault_of_ours_is_tried_again() -> None:
    nursery = Nursery([None, ValueError("not foreseen")])
    watched = nursery.supervisor()
    await watched.start()
    nursery.children[0].end.set_result("died")
    nursery.go.release()
    await settled()
    assert watched.detail == "the start failed: ValueError"
    assert watched.restarting
    nursery.go.release()
    await settled()
    assert seen(watched) == (EngineState.READY, nursery.children[1])
    await watched.stop()


async def test_a_child_that_nothing_can_be_made_of_is_not_started_again() -> None:
    nursery = Nursery([None, GivenUp("the weights are gone")])
    watched = nursery.supervisor()
    await watched.start()
    nursery.children[0].end.set_result("signal 9")
    nursery.go.release()
    await settled()
    assert seen(watched) == (EngineState.ABSENT, None)
    assert (watched.detail, watched.restarting) == ("the weights are gone", False)
    await watched.stop()


async def test_the_delay_doubles_up_to_half_a_minute() -> None:
    nursery = Nursery([None, *(["still broken"] * 10)])
    watched = nursery.supervisor()
    await watched.start()
    nursery.children[0].end.set_result("signal 11")
    for _ in range(11):
        nursery.go.release()
    await settled()
    await asyncio.wait_for(nursery.spawned.acquire(), 60)  # the first start
    await asyncio.wait_for(nursery.spawned.acquire(), 60)
    assert watched.restarts == 11
    expected = [min(0.2 * 2**n, 30.0) for n in range(11)]
    assert nursery.waits == [pytest.approx(seconds, rel=0.21) for seconds in expected]
    await watched.stop()


async def test_a_child_that_has_worked_starts_the_delay_anew() -> None:
    nursery = Nursery()
    watched = nursery.supervisor()
    await watched.start()
    for run, works in enumerate((False, False, True, False)):
        if works:
            watched.has_answered = True
        nursery.children[run].end.set_result("signal 9")
        nursery.go.release()
        await settled()
    assert nursery.waits == [pytest.approx(seconds, rel=0.21) for seconds in (0.2, 0.4, 0.2, 0.4)]
    await watched.stop()


async def test_a_child_that_ran_for_a_minute_starts_the_delay_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Clock:
        now = 0.0

        @classmethod
        def monotonic(cls) -> float:
            return cls.now

    monkeypatch.setattr(module, "time", Clock)
    nursery = Nursery()
    watched = nursery.supervisor()
    await watched.start()
    for run, lasted in enumerate((1.0, 1.0, 61.0)):
        Clock.now += lasted
        nursery.children[run].end.set_result("signal 11")
        nursery.go.release()
        await settled()
    assert nursery.waits == [pytest.approx(seconds, rel=0.21) for seconds in (0.2, 0.4, 0.2)]
    await watched.stop()


async def test_a_stop_ends_the_waiting_for_a_restart() -> None:
    nursery = Nursery()
    watched = nursery.supervisor()
    await watched.start()
    nursery.children[0].end.set_result("signal 9")
    await settled()
    await watched.stop()
    assert watched.state is EngineState.ABSENT
    assert len(nursery.children) == 1


async def test_a_cancelled_start_leaves_nothing() -> None:
    begun = asyncio.Event()
    undone = asyncio.Event()

    async def spawn() -> Child:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            undone.set()
        raise AssertionError

    watched: EngineSupervisor[Any] = EngineSupervisor("m", spawn)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watched.start())
        await begun.wait()
        assert seen(watched) == (EngineState.LOADING, None)
        task.cancel()
    assert undone.is_set()
    assert seen(watched) == (EngineState.ABSENT, None)
