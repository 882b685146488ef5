"""A worker process as its parent sees it."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from causerie.workers import process
from causerie.workers.channel import Channel
from causerie.workers.messages import Message
from causerie.workers.process import WorkerHandle


async def test_a_worker_that_is_slow_to_start_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a busy machine starts it again and again."""
    monkeypatch.setattr(process, "_BEAT_SECONDS", 0.01)
    ours, theirs = socket.socketpair()
    child = await asyncio.create_subprocess_exec("sleep", "600")
    handle = WorkerHandle(1, child, ours, lambda *_: None, lambda _: None)
    beats = asyncio.Semaphore(0)
    worker = Channel(theirs, lambda *_: beats.release(), lambda: None)
    ended = asyncio.create_task(handle.ended())
    async with asyncio.timeout(60):
        for _ in range(10):
            await beats.acquire()
        assert not ended.done()
        handle.ready = True
        assert await ended == "it has not answered for 0.05 s"
    child.kill()
    worker.close()
    await handle.end()


async def test_a_parent_that_was_paused_takes_no_worker_for_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads nothing meanwhile, and its clock goes on."""
    monkeypatch.setattr(process, "_BEAT_SECONDS", 0.01)
    ours, theirs = socket.socketpair()
    child = await asyncio.create_subprocess_exec("sleep", "600")
    handle = WorkerHandle(1, child, ours, lambda *_: None, lambda _: None)
    beats = asyncio.Semaphore(0)

    def answer(message: Message, _: socket.socket | None) -> None:
        asyncio.get_running_loop().call_later(0.001, worker.send, message)
        beats.release()

    worker = Channel(theirs, answer, lambda: None)
    ended = asyncio.create_task(handle.ended())
    await beats.acquire()
    time.sleep(0.2)  # noqa: ASYNC251 - before an answer; nothing in this process goes on
    async with asyncio.timeout(60):
        for _ in range(20):
            await beats.acquire()
    assert not ended.done()
    child.kill()
    worker.close()
    assert await ended == "it ended with the signal 9"
    await handle.end()
