"""How long a worker process may say nothing: little while it serves, long while it starts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from causerie.workers import process
from causerie.workers.process import WorkerHandle
from causerie.workers.shared_memory import SharedMemory

SAYS_NOTHING = (sys.executable, "-c", "import sys, time; time.sleep(600)")


@pytest.fixture
async def worker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkerHandle]:
    """A process that has said nothing for longer than one that serves may."""
    monkeypatch.setattr(process, "_BEAT_SECONDS", 0.01)
    memory = SharedMemory.create(1)
    one = await WorkerHandle.start(1, SAYS_NOTHING, memory, lambda *_: None, lambda _: None)
    one._heard -= process._SILENT_SECONDS + 1
    try:
        yield one
    finally:
        one.kill()
        await one.end()
        memory.close()


async def test_a_worker_that_serves_and_says_nothing_has_ended(worker: WorkerHandle) -> None:
    worker.ready = True
    assert await worker.ended() == "it has not answered for 5 s"


async def test_a_worker_that_starts_may_say_nothing(worker: WorkerHandle) -> None:
    with pytest.raises(TimeoutError):  # at the first beat it would have ended
        async with asyncio.timeout(0.3):
            await worker.ended()
