"""Long work beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from causerie.runtime.offload import offload


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
    waiting = asyncio.create_task(offload(ended.append, False))
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
