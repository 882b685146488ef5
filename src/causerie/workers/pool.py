"""The worker processes of a service: one starts in the place of one that ends.

Connections are accepted here and dealt out in turn. One
that a worker passes back is answered by the parent, and so are all while no worker is ready.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from causerie.errors import StoreUnavailable
from causerie.workers.layout import Places
from causerie.workers.messages import Observed, Prepare, PrepareOutcome
from causerie.workers.process import Sessions, WorkerHandle, WorkerListeners
from causerie.workers.state import SharedState

log = structlog.get_logger(__name__)

_ACCEPTED_TOGETHER = 64
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NO_ROOM_SECONDS = 0.2
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 30.0
_STABLE_SECONDS = 60.0
_STOP_SECONDS = 15.0  # beyond the time that running answers have


class Adopting(Protocol):
    """The connections of the parent's own edge."""

    async def adopt(self, client: socket.socket, requests: bytes) -> None: ...


class WorkerPool:
    """``count`` processes, started by ``command``; see :meth:`WorkerHandle.start`.

    ``observed`` gets what they have counted, and each has ``sessions`` that answer what it asks.
    What a process that ends had under way is taken off the ``state``. At a stop they have
    ``drain_seconds``.
    """

    def __init__(
        self,
        count: int,
        command: Sequence[str],
        state: SharedState,
        *,
        observed: Callable[[Observed], None],
        sessions: Sessions | None = None,
        drain_seconds: float,
    ) -> None:
        self._members = range(1, count + 1)  # the parent is 0
        self._command = command
        self._state = state
        self._listeners = WorkerListeners(self._carried, observed, sessions or {})
        self._drain_seconds = drain_seconds
        self._workers: dict[int, WorkerHandle] = {}
        self._next = 0
        self._stopping = False
        self._current = Prepare(0, b"", Places())
        self._prepared: Prepare | None = None
        self._all_ready = asyncio.Event()
        self._adopt: Callable[[socket.socket, bytes], None] | None = None
        self.restarts = 0

    @property
    def answering(self) -> int:
        """Return how many processes are ready."""
        return sum(one.ready for one in self._workers.values())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the processes running; a configuration must be there."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._keep(member)) for member in self._members]
            try:
                yield
            finally:
                self._stopping = True
                for task in tasks:
                    task.cancel()

    # Configuration.

    def begin_with(self, configuration: bytes, places: Places) -> None:
        """Set the configuration that workers start with."""
        self._current = Prepare(self._current.number + 1, configuration, places)

    async def prepare(self, configuration: bytes, places: Places) -> Sequence[str]:
        """Have all workers make a configuration ready; return what keeps them from it."""
        wanted = self._prepared = Prepare(self._current.number + 1, configuration, places)
        ready = [one for one in self._workers.values() if one.ready]
        outcomes = await asyncio.gather(
            *(worker.prepare(wanted) for worker in ready), return_exceptions=True
        )
        problems: dict[str, None] = {}
        for outcome in outcomes:
            if isinstance(outcome, PrepareOutcome):
                problems |= dict.fromkeys(outcome.problems)
            elif not isinstance(outcome, ConnectionError):  # whose successor is asked anew
                raise outcome
        return list(problems)

    def commit(self) -> None:
        """Have all workers serve by the configuration that was prepared last."""
        assert self._prepared is not None
        self._current, self._prepared = self._prepared, None
        for worker in self._workers.values():
            if worker.prepared == self._current.number:
                worker.commit(self._current.number)
            elif worker.ready:  # since others were asked; its successor begins with this one
                worker.kill()

    # Connections.

    def hand_over(self, client: socket.socket, requests: bytes) -> None:
        """Deal a connection to the next worker; the parent keeps it while there is none.

        At a stop too: a worker whose work is done ends, with all that it was dealt last.
        """
        ready = [] if self._stopping else [one for one in self._workers.values() if one.ready]
        if ready:
            self._next = (self._next + 1) % len(ready)
            ready[self._next].deal(client, requests)
        else:
            self._carried(client, requests)

    @asynccontextmanager
    async def accepting(
        self, listener: socket.socket, connections: Adopting
    ) -> AsyncIterator[None]:
        """Accept while the block runs."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        async with asyncio.TaskGroup() as group:

            def adopt(client: socket.socket, requests: bytes) -> None:
                group.create_task(connections.adopt(client, requests))

            self._adopt = adopt
            loop.add_reader(listener, self._accept, listener)
            try:
                yield
            finally:
                loop.remove_reader(listener)
                self._adopt = None

    def leave(self) -> None:
        """Have all workers end each connection with its next answer."""
        for worker in self._workers.values():
            worker.leave()

    async def drained(self, hurry: asyncio.Event) -> None:
        """Wait until all workers have ended; with ``hurry`` they end what runs."""
        self._stopping = True
        running = list(self._workers.values())
        for worker in running:
            worker.stop()
        async with asyncio.TaskGroup() as group:
            ends = [group.create_task(worker.wait()) for worker in running]
            hurried = group.create_task(self._hurried(hurry, running))
            if ends:
                limit = self._drain_seconds + _STOP_SECONDS
                await asyncio.wait(ends, timeout=limit)
            hurried.cancel()
            for worker in running:
                worker.kill()  # whoever has not ended by then

    @staticmethod
    async def _hurried(hurry: asyncio.Event, running: Sequence[WorkerHandle]) -> None:
        await hurry.wait()
        for worker in running:
            worker.stop(hurry=True)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_TOGETHER):
            try:
                client, _ = listener.accept()
            except OSError as error:  # nobody is there any more
                if error.errno in _NO_ROOM:
                    self._accept_later(listener, error)
                return
            self.hand_over(client, b"")

    def _accept_later(self, listener: socket.socket, error: OSError) -> None:
        """Leave who comes in the queue of the system for a moment: asking again finds no room."""
        log.warning("connections are not accepted for now", why=error.strerror)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(_NO_ROOM_SECONDS, self._accept_again, listener)

    def _accept_again(self, listener: socket.socket) -> None:
        if self._adopt is not None:  # else it has ended meanwhile
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _carried(self, client: socket.socket, requests: bytes) -> None:
        if self._adopt is None:
            client.close()
        else:
            self._adopt(client, requests)

    # Processes.

    async def ready(self) -> None:
        """Return when all workers answer."""
        await self._all_ready.wait()

    async def _keep(self, member: int) -> None:
        pause, loop = _FIRST_PAUSE, asyncio.get_running_loop()
        while not self._stopping:
            began = loop.time()
            try:
                why = await self._one(member)
            except OSError as error:
                why = f"it could not be started: {error.strerror or error}"
            if self._stopping:
                return
            if loop.time() - began > _STABLE_SECONDS:
                pause = _FIRST_PAUSE
            self.restarts += 1
            log.warning("worker process ended", worker=member, why=why)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _one(self, member: int) -> str:
        """Start a process, give it work, and wait for its end; return why it ended."""
        memory = self._state.memory
        worker = await WorkerHandle.start(member, self._command, memory, self._listeners)
        self._workers[member] = worker
        try:
            async with asyncio.TaskGroup() as group:
                beginning = group.create_task(self._begin(worker))
                why = await worker.ended()
                beginning.cancel()
            return why
        finally:
            del self._workers[member]
            await worker.end()
            await self._forget(member)

    async def _forget(self, member: int) -> None:
        """Take back what a process that has ended had under way."""
        while True:
            try:
                self._state.forget(member)
            except StoreUnavailable:  # yet another process has been stopped, and will be ended
                await asyncio.sleep(_FIRST_PAUSE)
            else:
                return

    async def _begin(self, worker: WorkerHandle) -> None:
        """Have it serve by the configuration in force, which may change meanwhile."""
        wanted = None
        while wanted is not self._current:
            wanted = self._current
            try:
                prepared = await worker.prepare(wanted)
            except ConnectionError:
                return
            if prepared.problems:
                log.error("worker process cannot serve", problems=list(prepared.problems))
                worker.kill()
                return
        worker.commit(wanted.number)
        worker.ready = True
        log.info("worker process ready", worker=worker.member, pid=worker.pid)
        if self.answering == len(self._members):
            self._all_ready.set()
