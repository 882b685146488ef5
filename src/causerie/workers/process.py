"""One worker process, as its parent sees it: started, spoken to, watched, ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from causerie.workers.channel import Channel
from causerie.workers.messages import (
    Beat,
    Carried,
    Commit,
    Leave,
    Message,
    Observed,
    ParentAnswer,
    Prepare,
    PrepareOutcome,
    Stop,
    Subject,
    WorkerQuestion,
)
from causerie.workers.shared_memory import SharedMemory

log = structlog.get_logger(__name__)

_BEAT_SECONDS = 1.0
_SILENT_BEATS = 5  # longer than a process waits for the lock of the shared memory
_START_BEATS = 120  # until it is ready: a machine may be busy while it is loaded
_END_SECONDS = 3.0


class WorkerSession(Protocol):
    """Answers the questions of one worker process about one subject."""

    async def answer(self, data: bytes) -> bytes:
        """Return the answer; never fails. It may be cancelled."""
        ...

    def tell(self, data: bytes) -> None:
        """Take what has no answer."""
        ...

    async def close(self) -> None:
        """The process has ended: give back what it had asked for."""
        ...


Sessions = Mapping[Subject, Callable[[], WorkerSession]]
"""Begins to answer a worker process, by what it asks about."""


@dataclass(frozen=True, slots=True)
class WorkerListeners:
    """Receivers of what a worker process sends.

    ``carried`` gets connections that it passes back, ``observed`` what it has counted, and
    ``sessions`` answer its questions.
    """

    carried: Callable[[socket.socket, bytes], None]
    observed: Callable[[Observed], None]
    sessions: Sessions = field(default_factory=dict)


class WorkerHandle:
    """The process with the number ``member``. It ends with its channel, so it never outlives us."""

    def __init__(
        self,
        member: int,
        process: asyncio.subprocess.Process,
        end: socket.socket,
        listeners: WorkerListeners,
    ) -> None:
        self.member = member
        self.ready = False
        self.prepared = 0  # the number of its newest configuration
        self._process = process
        self._listeners = listeners
        self._sessions = {subject: begin() for subject, begin in listeners.sessions.items()}
        self._questions: set[asyncio.Task[None]] = set()
        self._answers: dict[int, asyncio.Future[PrepareOutcome]] = {}
        self._silent = 0  # beats since it was last heard
        self._gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._channel = Channel(end, self._received, self._lost)

    @classmethod
    async def start(
        cls,
        member: int,
        command: Sequence[str],
        memory: SharedMemory,
        listeners: WorkerListeners,
    ) -> WorkerHandle:
        """Start it; ``command`` gets the descriptors of channel and memory, and the number."""
        ours, theirs = socket.socketpair()
        with theirs:
            passed = (theirs.fileno(), memory.descriptor)
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    *map(str, (*passed, member)),
                    pass_fds=passed,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    start_new_session=True,  # signals of a terminal are for the parent
                )
            except BaseException:
                ours.close()
                raise
        return cls(member, process, ours, listeners)

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    def deal(self, client: socket.socket, requests: bytes = b"") -> None:
        """Give it a connection."""
        self._channel.send(Carried(requests), client)

    async def prepare(self, message: Prepare) -> PrepareOutcome:
        """Have a configuration made ready; raise :class:`ConnectionError` if the process ends."""
        answer: asyncio.Future[PrepareOutcome] = asyncio.get_running_loop().create_future()
        if self._gone.is_set():
            raise ConnectionError("the worker process has ended")
        self._answers[message.number] = answer
        self._channel.send(message)
        try:
            outcome = await answer
        finally:
            del self._answers[message.number]
        if not outcome.problems:
            self.prepared = message.number
        return outcome

    def commit(self, number: int) -> None:
        """Have it serve by a configuration that it has prepared."""
        self._channel.send(Commit(number))

    def leave(self) -> None:
        """Have it end each connection with its next answer."""
        self._channel.send(Leave())

    def stop(self, *, hurry: bool = False) -> None:
        """Have it end when its work has."""
        self._channel.send(Stop(hurry))

    async def ended(self) -> str:
        """Wait for its end, or until it does not go on; return why, in a few words."""
        while not self._gone.is_set():
            self._channel.send(Beat())
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_SECONDS):
                    await self._gone.wait()
            self._silent += 1  # not by the clock: where this process was paused, nothing was read
            most = _SILENT_BEATS if self.ready else _START_BEATS
            if self._silent > most:
                return f"it has not answered for {most * _BEAT_SECONDS:g} s"
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                code = await self._process.wait()
                return f"it ended with the signal {-code}" if code < 0 else f"its status was {code}"
        return "it has closed its channel"

    async def end(self) -> None:
        """End it now, and wait until it has ended."""
        self.ready = False
        self._channel.close()
        self._lost()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await self._end_session()

    async def wait(self) -> None:
        """Return when the process has ended."""
        await self._process.wait()

    def kill(self) -> None:
        """End it without a word."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def _end_session(self) -> None:
        """Nobody waits for answers any more."""
        for task in self._questions:
            task.cancel()
        if self._questions:
            await asyncio.wait(self._questions)
        for session in self._sessions.values():
            await session.close()

    def _asked(self, session: WorkerSession, question: WorkerQuestion) -> None:
        if not question.number:
            session.tell(question.body)
            return
        task = self._loop.create_task(self._answer(session, question))
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    async def _answer(self, session: WorkerSession, question: WorkerQuestion) -> None:
        self._channel.send(ParentAnswer(question.number, await session.answer(question.body)))

    def _lost(self) -> None:
        """Nothing comes from it any more."""
        self._gone.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the worker process has ended"))

    def _received(self, message: Message, connection: socket.socket | None) -> None:
        self._silent = 0
        if connection is not None:
            assert isinstance(message, Carried)
            self._listeners.carried(connection, message.requests)
        elif isinstance(message, WorkerQuestion):
            self._asked(self._sessions[message.subject], message)
        elif isinstance(message, Observed):
            self._listeners.observed(message)
        elif isinstance(message, PrepareOutcome):
            answer = self._answers.get(message.number)
            if answer is not None and not answer.done():
                answer.set_result(message)
