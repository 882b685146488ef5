"""Long work beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from functools import partial

import pytest
from casekit import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.http.event_loop import FairThreads, offload, work_of


async def test_who_is_cancelled_goes_on_once_the_work_has_ended() -> None:
    """The thread would go on with what its caller has left, and maybe changes."""
    started, release = threading.Event(), threading.Event()
    ended: list[bool] = []

    def work() -> None:
        started.set()
        assert release.wait(60)
        ended.append(True)

    task = asyncio.create_task(offload(work))
    await asyncio.to_thread(started.wait)
    for _ in range(2):  # the second one hits the wait itself
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not task.done()
    waiting = asyncio.create_task(offload(ended.append, False))  # one at a time for each caller
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):  # at once: it has not started
        await waiting
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


async def test_what_fails_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await offload(lambda: 1 // 0)


async def test_a_caller_with_much_large_work_keeps_nobody_else_waiting() -> None:
    release = threading.Event()

    async def work_for(caller: str, work: partial[bool]) -> bool:
        work_of.set(caller)
        return await offload(work)

    greedy = [asyncio.create_task(work_for("greedy", partial(release.wait, 60))) for _ in range(10)]
    await asyncio.sleep(0)
    try:
        assert await work_for("other", partial(bool, 1))  # while none of them has ended
        assert not any(task.done() for task in greedy)
    finally:
        release.set()
        await asyncio.gather(*greedy)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=24), st.integers(1, 3))
def test_callers_take_turns(jobs: list[str], threads: int) -> None:
    """None has two jobs under way, and none begins a second one before all that wait began one."""
    lock, gate = threading.Lock(), threading.Semaphore(0)
    started, running = list[str](), list[str]()

    def work(caller: str) -> None:
        with lock:
            assert caller not in running
            started.append(caller)
            running.append(caller)
        assert gate.acquire(timeout=60)
        with lock:
            running.remove(caller)

    fair = FairThreads(threads)
    made: list[Future[None]] = [fair.submit(each, partial(work, each)) for each in jobs]
    for _ in jobs:
        gate.release()
    for each in made:
        each.result(60)
    assert sorted(started) == sorted(jobs)
    if threads == 1:
        rounds = [started.index(caller) for caller in dict.fromkeys(jobs)]
        assert max(rounds) < len(rounds)  # each had its turn before one had a second
