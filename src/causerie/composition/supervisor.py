"""Worker processes: each is the whole service, and all accept at one address.

A supervisor binds the address, starts the workers with it, replaces one that ends, and passes
reloads and stops on. It answers no request. Workers share nothing with each other but what replicas
on several machines share: the database, and Valkey for what is counted together.

Supervisor and worker have a socket pair. The worker writes lines of JSON there: once a link for
the owner, once that it is ready, then a beat each second. The end of the stream tells the worker
that its supervisor has ended, however suddenly; it then stops as after a signal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from causerie.composition.control import ControlFailed, answering, asked
from causerie.composition.reloading import ReloadOutcome
from causerie.composition.service_facts import ServiceFacts
from causerie.composition.signals import hangups, reloaded
from causerie.composition.startup import CannotStart, StartWatcher, bound_sockets
from causerie.composition.worker_place import Exposition, WorkerPlace, WorkerReport
from causerie.edge.ownership import owned
from causerie.edge.server import Bound, stop_signals
from causerie.metering.merged import counts, merged
from causerie.settings import Settings
from causerie.settings.environment import WORKER, runtime_folder, variables
from causerie.settings.workers import worker_count

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=msgspec.Struct)

_SILENT_SECONDS = 15.0  # after which a worker counts as hung, and is replaced
_ASK_SECONDS = 60.0
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 30.0
_STABLE_SECONDS = 60.0
_STOP_SECONDS = 15.0  # beyond the time that running answers have


@dataclass(eq=False)
class _Worker:
    """A worker that runs."""

    number: int
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ready: bool = False
    metrics: str = ""
    """As they were when they were last asked for."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


async def supervise(
    settings: Settings,
    arguments: Sequence[str],
    watcher: StartWatcher,
    first_link: Callable[[str], None],
) -> None:
    """Keep the workers running until a signal comes.

    ``arguments`` are those of the command line, with which each worker starts. ``first_link`` gets
    the token that makes the owner's account, if there is none. Raises :class:`CannotStart` where
    the address cannot be had, and ends with the status of a worker that does not start.
    """
    with ExitStack() as stack:
        await Supervisor(
            worker_count(settings.server),
            arguments,
            bound_sockets(settings, stack),
            settings.server.drain_seconds + settings.server.shutdown_delay_seconds,
            watcher,
            first_link,
        ).run()


class Supervisor:
    """Starts ``count`` workers, replaces those that end, and passes reloads and stops on."""

    def __init__(
        self,
        count: int,
        arguments: Sequence[str],
        bound: Bound,
        drain_seconds: float,
        watcher: StartWatcher,
        first_link: Callable[[str], None],
    ) -> None:
        self._count = count
        self._arguments = arguments
        self._bound = bound
        self._drain_seconds = drain_seconds
        self._watcher = watcher
        self._first_link = first_link
        self._changed = asyncio.Event()  # whether a worker has become ready
        self._workers: dict[int, _Worker] = {}
        self._restarts = 0
        self._past = ""  # the counts of workers that have ended
        self._started = False
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        self._failure: int | None = None
        self._socket = Path()

    async def run(self) -> None:
        """Supervise until a signal comes, or a worker does not start."""
        loop, folder = asyncio.get_running_loop(), runtime_folder(variables())
        with hangups() as hangup, stop_signals(loop, self._stop, self._hurry):
            async with (
                answering(folder, self._answer) as path,
                owned(reloaded(hangup, self.reload)),
            ):
                if path is None:
                    raise CannotStart("server.workers: several processes need a control socket")
                self._socket = path
                await self._supervise()
        if self._failure is not None:
            raise SystemExit(self._failure)

    async def _supervise(self) -> None:
        async with asyncio.TaskGroup() as group:
            keeping = [group.create_task(self._keep(1))]
            ready = group.create_task(self._announce(group, keeping))
            await self._stop.wait()
            if self._failure is None:
                self._watcher.stopping()
            await self._end()
            for task in (ready, *keeping):
                task.cancel()

    async def _announce(self, group: asyncio.TaskGroup, keeping: list[asyncio.Task[None]]) -> None:
        """Start the other workers when the first one is ready: it prepares what all share."""
        await self._until_ready(1)
        keeping += [group.create_task(self._keep(n)) for n in range(2, self._count + 1)]
        await self._until_ready(self._count)
        self._started = True
        host, port = self._bound.service.getsockname()[:2]
        self._watcher.ready(host, port)

    async def _until_ready(self, count: int) -> None:
        while sum(each.ready for each in self._workers.values()) < count:
            self._changed = asyncio.Event()
            await self._changed.wait()

    # Workers.

    async def _keep(self, number: int) -> None:
        """Keep one worker running, for ever."""
        pause, loop = _FIRST_PAUSE, asyncio.get_running_loop()
        while not self._stop.is_set():
            began = loop.time()
            status, was_ready = await self._run(number)
            if self._stop.is_set():
                return
            if not (was_ready or self._started):
                self._failure = status or 1
                self._stop.set()
                return
            self._restarts += 1
            log.warning("worker process ended", worker=number, status=status)
            if loop.time() - began > _STABLE_SECONDS:
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _run(self, number: int) -> tuple[int, bool]:
        """Follow a worker from start to end; return its exit status, and if it was ready."""
        worker = await self._start(number)
        self._workers[number] = worker
        try:
            async with owned(self._listen(worker)):
                return await worker.process.wait(), worker.ready
        finally:
            del self._workers[number]
            self._past = counts([self._past, worker.metrics])
            worker.writer.close()
            worker.ended.set()
            if worker.process.returncode is None:
                worker.signal(signal.SIGKILL)

    async def _start(self, number: int) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            metrics = self._bound.metrics
            place = WorkerPlace(
                number=number,
                count=self._count,
                restarts=self._restarts,
                channel=theirs.fileno(),
                service=self._bound.service.fileno(),
                metrics=None if metrics is None else metrics.fileno(),
                supervisor=str(self._socket),
            )
            passed = [place.channel, place.service, place.metrics]
            process = await asyncio.create_subprocess_exec(
                # -P: nothing in the working directory is taken for a module.
                *(sys.executable, "-P", "-m", "causerie", *self._arguments),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[each for each in passed if each is not None],
                env={**variables(), WORKER: msgspec.json.encode(place).decode()},
                start_new_session=True,  # the terminal's signals are for the supervisor
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return _Worker(number, process, reader, writer)

    async def _listen(self, worker: _Worker) -> None:
        while line := await self._line(worker):
            report = msgspec.json.decode(line, type=WorkerReport)
            if report.first_link is not None:
                self._first_link(report.first_link)
            if report.ready:
                worker.ready = True
                log.info("worker process ready", worker=worker.number, pid=worker.process.pid)
                self._changed.set()

    async def _line(self, worker: _Worker) -> bytes:
        """Return the next line of a worker; kill one whose event loop stands still for long."""
        try:
            async with asyncio.timeout(_SILENT_SECONDS if worker.ready else None):
                return await worker.reader.readline()
        except TimeoutError:
            log.error("worker process hangs and is killed", worker=worker.number)
            worker.signal(signal.SIGKILL)
        except ConnectionError:
            pass  # it has ended
        return b""

    async def _end(self) -> None:
        """Stop all workers, and wait until they have ended."""
        running = list(self._workers.values())
        for each in running:
            each.signal(signal.SIGTERM)
        async with owned(self._hasten(running)):
            ends = [asyncio.ensure_future(each.ended.wait()) for each in running]  # noqa: TID251 - awaited below
            if ends:
                await asyncio.wait(ends, timeout=self._drain_seconds + _STOP_SECONDS)
        for each in running:
            each.signal(signal.SIGKILL)

    async def _hasten(self, running: Sequence[_Worker]) -> None:
        await self._hurry.wait()
        for each in running:
            each.signal(signal.SIGTERM)  # the second one

    # Questions of commands and of workers.

    async def _answer(self, wanted: str) -> msgspec.Struct:
        """Answer a request to the control socket; raise :class:`ValueError` if it is not known."""
        if wanted == "metrics":
            return Exposition(await self._metrics())
        if wanted == "reload":
            return await self.reload()
        if wanted in ("facts", "stop"):
            facts = [answer for _, answer in await self._ask_all("facts", ServiceFacts)]
            if wanted == "stop":
                self._stop.set()
            first = facts[0] if facts else ServiceFacts(0, None, "")
            return msgspec.structs.replace(first, pid=os.getpid())
        raise ValueError(f"nobody knows how to {wanted[:40]}")

    async def reload(self) -> ReloadOutcome:
        """Have all workers read their configuration anew, and return the outcome of all."""
        outcomes = [answer for _, answer in await self._ask_all("reload", ReloadOutcome)]
        problems = dict.fromkeys(problem for each in outcomes for problem in each.problems)
        if problems or not outcomes:
            return ReloadOutcome(problems=tuple(problems) or ("no worker process answers",))
        return outcomes[0]

    async def _metrics(self) -> str:
        for worker, answer in await self._ask_all("metrics", Exposition):
            worker.metrics = answer.text
        running = list(self._workers.values())
        return merged(
            [each.metrics for each in running],
            self._past,
            workers=sum(each.ready for each in running),
            restarts=self._restarts,
        )

    async def _ask_all(self, wanted: str, kind: type[T]) -> list[tuple[_Worker, T]]:
        """Return the workers that answer, and their answers."""
        folder = self._socket.with_suffix(".workers")
        asking = [each for _, each in sorted(self._workers.items()) if each.ready]
        answers = await asyncio.gather(
            *(
                asyncio.to_thread(
                    asked, folder / f"{each.process.pid}.sock", wanted, kind, _ASK_SECONDS
                )
                for each in asking
            ),
            return_exceptions=True,
        )
        found = []
        for worker, answer in zip(asking, answers, strict=True):
            if isinstance(answer, ControlFailed):
                log.warning("worker process does not answer", worker=worker.number, why=str(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append((worker, answer))
        return found
