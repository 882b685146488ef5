"""A worker process as its parent sees it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager

import pytest
from memberkit import memory_of

from causerie.composition import worker_process
from causerie.errors import StoreUnavailable
from causerie.workers import pool, process
from causerie.workers.channel import Channel
from causerie.workers.layout import WORDS
from causerie.workers.messages import Carried, Message, ParentAnswer, WorkerQuestion
from causerie.workers.process import WorkerHandle, WorkerListeners
from causerie.workers.questions import Questions
from causerie.workers.state import PARENT, SharedState

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_BEAT_SECONDS", 0.01)


NoMoreFiles = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def no_more_files() -> NoMoreFiles:
    """While it runs this process can open no further file."""

    @contextmanager
    def full() -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)  # the lowest number that is free
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return full


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


async def test_a_connection_that_finds_no_room_is_lost_alone(no_more_files: NoMoreFiles) -> None:
    """Else its request would be answered on the next connection, to another client."""
    (ours, theirs), (client, other) = socket.socketpair(), socket.socketpair()
    came: list[tuple[Message, socket.socket | None]] = []
    sender = Channel(ours, lambda *_: None, lambda: None)
    receiver = Channel(theirs, lambda *message: came.append(message), lambda: None)
    with other:
        sender.send(Carried(b"lost"), client)
        with no_more_files():
            receiver._readable()
        assert other.recv(1) == b""  # its client sees that at once
    client, other = socket.socketpair()
    sender.send(Carried(b"kept"), client)
    receiver._readable()
    ((message, connection),) = came
    assert message == Carried(b"kept")
    assert connection is not None
    with other, connection:
        other.send(b"?")
        assert connection.recv(1) == b"?"
    sender.close()
    receiver.close()


async def test_who_finds_no_room_is_accepted_later(
    no_more_files: NoMoreFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the parent would ask for them all the time, and do nothing but that."""
    monkeypatch.setattr(pool, "_NO_ROOM_SECONDS", 0.01)
    accepted = asyncio.get_running_loop().create_future()
    tries = 0

    class Adopting:
        async def adopt(self, client: socket.socket, requests: bytes) -> None:
            client.close()
            accepted.set_result(requests)

    class Counting(pool.WorkerPool):
        def _accept(self, listener: socket.socket) -> None:
            nonlocal tries
            tries += 1
            super()._accept(listener)

    with memory_of(WORDS) as memory, socket.create_server(("127.0.0.1", 0)) as listener:
        workers = Counting(
            1, (), SharedState(memory, PARENT), observed=lambda _: None, drain_seconds=1
        )
        async with workers.accepting(listener, Adopting()):
            with socket.create_connection(listener.getsockname()):
                with no_more_files():
                    for _ in range(20):
                        await asyncio.sleep(0)
                assert tries == 1
                assert await accepted == b""


def test_a_worker_waits_for_nobody_who_has_stopped_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it does not go on, and the one in its place does not either."""
    said = 0

    async def talk(*_: int) -> None:
        nonlocal said
        for _ in range(200):
            sys.stderr.write("x" * 999 + "\n")
            said += 1

    read, write = os.pipe()
    os.set_blocking(write, False)  # so that a worker that heeds it fails, and does not hang
    before = {number: signal.getsignal(number) for number in STOPS}
    with os.fdopen(read), os.fdopen(write, "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        monkeypatch.setattr(worker_process, "_run", talk)
        try:
            worker_process.main(0, 0, 1)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    assert said == 200


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
    with pytest.raises(StoreUnavailable):  # who asks later waits no longer
        await questions.ask("accounts", b"four")
    await asyncio.sleep(0)  # those that have ended are taken off in the next turn of the loop
    assert questions.waiting == 0
