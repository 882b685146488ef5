"""A worker process as its parent sees it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from causerie.errors import StoreUnavailable
from causerie.workers import process
from causerie.workers.channel import Channel
from causerie.workers.messages import Carried, Message, ParentAnswer, WorkerQuestion
from causerie.workers.process import WorkerHandle, WorkerListeners
from causerie.workers.questions import Questions


@pytest.fixture(autouse=True)
def _quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_BEAT_SECONDS", 0.01)


@asynccontextmanager
async def watched(
    beat: Callable[[Message, Channel], None],
) -> AsyncIterator[tuple[WorkerHandle, asyncio.Task[str]]]:
    """A process whose end of the channel is ``beat``, and the parent's wait for its end."""
    ours, theirs = socket.socketpair()
    child = await asyncio.create_subprocess_exec("sleep", "600")
    handle = WorkerHandle(1, child, ours, WorkerListeners(lambda *_: None, lambda _: None))
    worker = Channel(theirs, lambda message, _: beat(message, worker), lambda: None)
    ended = asyncio.create_task(handle.ended())
    try:
        async with asyncio.timeout(60):
            yield handle, ended
    finally:
        handle.kill()
        worker.close()
        await ended
        await handle.end()


async def test_a_worker_that_is_slow_to_start_is_waited_for() -> None:
    """Else a busy machine starts it again and again."""
    beats = asyncio.Semaphore(0)
    async with watched(lambda *_: beats.release()) as (handle, ended):
        for _ in range(10):
            await beats.acquire()
        assert not ended.done()
        handle.ready = True
        assert await ended == "it has not answered for 0.05 s"


async def test_a_parent_that_was_paused_takes_no_worker_for_silent() -> None:
    """It reads nothing meanwhile, and its clock goes on."""
    beats = asyncio.Semaphore(0)

    def answer(message: Message, worker: Channel) -> None:
        asyncio.get_running_loop().call_later(0.001, worker.send, message)
        beats.release()

    async with watched(answer) as (handle, ended):
        handle.ready = True
        await beats.acquire()
        time.sleep(0.2)  # noqa: ASYNC251 - the pause: the event loop must not go on either
        for _ in range(20):
            await beats.acquire()
        assert not ended.done()


async def test_children_of_a_process_do_not_get_the_connections_that_it_got() -> None:
    """Else a connection stays open when the process that has it is killed."""
    (ours, theirs), (client, other) = socket.socketpair(), socket.socketpair()
    came: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
    sender = Channel(ours, lambda *_: None, lambda: None)
    receiver = Channel(theirs, lambda _, connection: came.set_result(connection), lambda: None)
    sender.send(Carried(), client)
    with other, await came as connection:
        assert not connection.get_inheritable()
    sender.close()
    receiver.close()


async def test_a_question_that_nobody_waits_for_is_forgotten() -> None:
    sent: list[WorkerQuestion] = []
    questions = Questions(sent.append)
    waits = asyncio.ensure_future(questions.ask("accounts", b"one"))
    waits.cancel()
    await asyncio.wait([waits])
    answered = questions.ask("engines", b"two")
    questions.answered(ParentAnswer(sent[0].number, b"late"))
    questions.answered(ParentAnswer(sent[1].number, b"2"))
    assert await answered == b"2"
    lost = questions.ask("accounts", b"three")
    questions.end()
    with pytest.raises(StoreUnavailable):
        await lost
    await asyncio.sleep(0)  # those that have ended are taken off in the next turn of the loop
    assert questions.waiting == 0
