"""Supervisor of worker processes: each is the whole service, all accept at one address.

A supervisor binds the address, starts the workers, each with a socket of its own there,
replaces one that ends, and passes reloads and stops on. It answers no request. Workers share
nothing with each other but what replicas on several machines share: the database, and Valkey
for what is counted together.

Supervisor and worker have a socket pair. The worker writes lines of JSON there: once a link for
the owner, once that it is ready, then a beat each second. The end of the stream tells the
worker that its supervisor has ended, however suddenly; it then stops as after a signal. What
commands ask of the service is asked of each worker, at a control socket beside the
supervisor's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from causerie.composition.control import (
    ControlFailed,
    ServiceFacts,
    WorkerPlace,
    WorkerReport,
    answering,
    asked,
    worker_socket,
)
from causerie.composition.reloading import ReloadOutcome
from causerie.composition.startup import (
    CannotStart,
    StartAnnouncer,
    bound_sockets,
    hangups,
    reloaded,
)
from causerie.http.server import Bound, reserved_socket, socket_beside, stop_signals
from causerie.http.tasks import happens, owned
from causerie.observe.metrics import counts, merged
from causerie.settings.environment import WORKER, runtime_folder, variables
from causerie.settings.load import Loaded
from causerie.settings.rules import worker_count

log = structlog.get_logger(__name__)

T = TypeVar("T")

_OWN_DESCRIPTORS = ("/dev/stdin", "/dev/fd", "/proc/self/fd")
_SILENT_SECONDS = 7.5  # a worker that is silent for twice as long hangs, and is replaced
_RELOAD_SECONDS = 60.0
_ASK_SECONDS = 3.0
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 30.0
_STABLE_SECONDS = 60.0
_STOP_SECONDS = 15.0  # beyond the time that running answers have


@dataclass(eq=False)
class _Worker:
    number: int
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ready: bool = False
    outdated: bool = False
    """True if it may have read its configuration before the last reload."""
    metrics: str = ""
    """The worker's metrics as they were when they were last asked for."""

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


async def supervise(loaded: Loaded, arguments: Sequence[str], announcer: StartAnnouncer) -> None:
    """Keep the workers running until a signal; they start with ``arguments``.

    Raises :class:`CannotStart`.
    """
    if (file := loaded.file) is not None and (
        file.is_fifo() or any(map(file.is_relative_to, _OWN_DESCRIPTORS))
    ):
        raise CannotStart(f"{file} is a pipe, which one process can read: each worker needs a file")
    with ExitStack() as stack:
        bound = bound_sockets(loaded.settings, stack, reserved_socket)
        await Supervisor(loaded, arguments, bound, announcer).run()


@dataclass(eq=False)
class Supervisor:
    """Starts the workers, replaces those that end, and passes reloads and stops on."""

    _loaded: Loaded
    _arguments: Sequence[str]
    _listeners: Bound
    _announcer: StartAnnouncer

    def __post_init__(self) -> None:
        server = self._loaded.settings.server
        self._worker_count = worker_count(server)
        self._stop_seconds = server.drain_seconds + server.shutdown_delay_seconds + _STOP_SECONDS
        self._worker_ready_event = asyncio.Event()  # whether a worker has become ready
        self._workers_by_number: dict[int, _Worker] = {}
        self._restart_count = 0
        self._ended_metrics = ""  # the counts of workers that have ended
        self._has_started_all_workers = False
        self._stop_event, self._immediate_stop_event = asyncio.Event(), asyncio.Event()
        self._exit_status: int | None = None
        self._control_socket_path = Path()

    async def run(self) -> None:
        """Supervise until a signal comes, or a worker does not start."""
        loop, folder = asyncio.get_running_loop(), runtime_folder(variables())
        with hangups() as hangup, stop_signals(loop, self._stop_event, self._immediate_stop_event):
            async with (
                answering(folder, self._answer_control_command) as path,
                owned(reloaded(hangup, self.reload)),
            ):
                if path is None:
                    why = f"workers need control sockets, which {folder} cannot have"
                    raise CannotStart(f"{why}; name a folder in XDG_RUNTIME_DIR")
                self._control_socket_path = path
                try:
                    await self._supervise_workers()
                finally:
                    # Those of killed workers are left.
                    for number in range(1, self._worker_count + 1):
                        worker_socket(path, number).unlink(missing_ok=True)
        if self._exit_status is not None:
            raise SystemExit(self._exit_status)

    async def _supervise_workers(self) -> None:
        async with asyncio.TaskGroup() as group:
            keeping = [group.create_task(self._keep_running(1))]
            starting = group.create_task(self._add_workers(group, keeping))
            await self._stop_event.wait()
            starting.cancel()
            if self._exit_status is None:
                self._announcer.stopping()
            self._signal_workers(signal.SIGTERM)

            async def hasten() -> None:
                await self._immediate_stop_event.wait()
                # A second SIGTERM might be merged with one that waits.
                self._signal_workers(signal.SIGINT)

            async with owned(hasten()):
                await asyncio.wait(keeping, timeout=self._stop_seconds)
            self._signal_workers(signal.SIGKILL)

    async def _add_workers(self, group: asyncio.TaskGroup, tasks: list[asyncio.Task[None]]) -> None:
        # The first worker prepares what all share, so the others start after it.
        await self._wait_until_ready(1)
        tasks += [
            group.create_task(self._keep_running(n)) for n in range(2, self._worker_count + 1)
        ]
        await self._wait_until_ready(self._worker_count)
        self._has_started_all_workers = True
        self._announcer.ready(*self._listeners.service.getsockname()[:2])

    async def _wait_until_ready(self, worker_count: int) -> None:
        while sum(each.ready for each in self._workers_by_number.values()) < worker_count:
            self._worker_ready_event.clear()
            await self._worker_ready_event.wait()

    def _signal_workers(self, signal_number: int) -> None:
        for each in self._workers_by_number.values():
            each.signal(signal_number)

    async def _keep_running(self, worker_number: int) -> None:
        pause, loop = _FIRST_PAUSE, asyncio.get_running_loop()
        while not self._stop_event.is_set():
            began = loop.time()
            status, was_ready = await self._run_worker_for_status_and_readiness(worker_number)
            if self._stop_event.is_set():
                return
            if not (was_ready or self._has_started_all_workers):
                self._exit_status = max(status, 1)  # below 0: a signal has ended it
                self._stop_event.set()
                return
            self._restart_count += 1
            log.warning("worker process ended", worker=worker_number, status=status)
            if loop.time() - began > _STABLE_SECONDS:
                pause = _FIRST_PAUSE
            await happens(self._stop_event, pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _run_worker_for_status_and_readiness(self, worker_number: int) -> tuple[int, bool]:
        try:
            worker = await self._start_worker(worker_number)
        except OSError as error:
            log.error("worker process cannot be started", worker=worker_number, why=str(error))
            return 1, False
        self._workers_by_number[worker_number] = worker
        if self._stop_event.is_set():
            worker.signal(signal.SIGTERM)
        try:
            async with owned(self._handle_reports(worker)):
                return await worker.process.wait(), worker.ready
        finally:
            del self._workers_by_number[worker_number]
            self._ended_metrics = counts([self._ended_metrics, worker.metrics])
            worker.writer.close()
            if worker.process.returncode is None:
                worker.signal(signal.SIGKILL)

    async def _start_worker(self, worker_number: int) -> _Worker:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        reserved = [
            each for each in (self._listeners.service, self._listeners.metrics) if each is not None
        ]
        with ExitStack() as stack:  # the worker alone keeps them: others go on when it ends
            stack.enter_context(theirs)
            sockets = [stack.enter_context(socket_beside(each)).fileno() for each in reserved]
            place = WorkerPlace(
                number=worker_number,
                count=self._worker_count,
                restarts=self._restart_count,
                channel=theirs.fileno(),
                sockets=sockets,
                supervisor=str(self._control_socket_path),
            )
            process = await asyncio.create_subprocess_exec(
                # -P: nothing in the working directory is taken for a module.
                *(sys.executable, "-P", "-m", "causerie", *self._arguments),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[place.channel, *sockets],
                env={**variables(), WORKER: msgspec.json.encode(place).decode()},
                start_new_session=True,  # the terminal's signals are for the supervisor
            )
        return _Worker(worker_number, process, reader, writer)

    async def _handle_reports(self, worker: _Worker) -> None:
        # A worker that is killed may leave half a line.
        while (line := await self._read_report_bytes_or_kill(worker)).endswith(b"\n"):
            report = msgspec.json.decode(line, type=WorkerReport)
            if report.first_link is not None:
                self._announcer.first_link(report.first_link)
            if report.ready:
                worker.ready = True
                log.info("worker process ready", worker=worker.number, pid=worker.process.pid)
                self._worker_ready_event.set()
                if worker.outdated:
                    await self._ask_worker(worker, "reload", ReloadOutcome, _RELOAD_SECONDS)

    async def _read_report_bytes_or_kill(self, worker: _Worker) -> bytes:
        # Two waits: where all of the service stood still, as in a paused container, the first
        # one ends at once when it goes on.
        for _ in range(2):
            try:
                async with asyncio.timeout(_SILENT_SECONDS if worker.ready else None):
                    return await worker.reader.readline()
            except TimeoutError:
                continue
            except ConnectionError:
                return b""  # it has ended
        log.error("worker process hangs and is killed", worker=worker.number)
        worker.signal(signal.SIGKILL)
        return b""

    async def _answer_control_command(self, command: str) -> object:
        if command == "metrics":
            for worker, answer in await self._ask_all("metrics", str, _ASK_SECONDS):
                worker.metrics = answer
            running = list(self._workers_by_number.values())
            texts, ready = [each.metrics for each in running], sum(each.ready for each in running)
            return merged(texts, self._ended_metrics, workers=ready, restarts=self._restart_count)
        if command == "reload":
            return await self.reload()
        if command in ("facts", "stop"):
            if command == "stop":
                self._stop_event.set()
            file = str(self._loaded.file.absolute()) if self._loaded.file else None
            address = "{}:{}".format(*self._listeners.service.getsockname()[:2])
            answers = await self._ask_all("facts", ServiceFacts, _ASK_SECONDS)
            models = answers[0][1].models if answers else ()
            return ServiceFacts(os.getpid(), file, address, models)
        raise ValueError(f"nobody knows how to {command[:40]}")

    async def reload(self) -> ReloadOutcome:
        """Have all workers read their configuration anew, and return the outcome of all."""
        for each in self._workers_by_number.values():
            each.outdated = not each.ready
        answers = await self._ask_all("reload", ReloadOutcome, _RELOAD_SECONDS)
        outcomes = [answer for _, answer in answers]
        problems = dict.fromkeys(problem for each in outcomes for problem in each.problems)
        if problems or not outcomes:
            return ReloadOutcome(problems=tuple(problems) or ("no worker process answers",))
        return outcomes[0]

    async def _ask_all(self, query: str, kind: type[T], seconds: float) -> list[tuple[_Worker, T]]:
        asking = [each for _, each in sorted(self._workers_by_number.items()) if each.ready]
        answers = await asyncio.gather(
            *(self._ask_worker(each, query, kind, seconds) for each in asking)
        )
        pairs = zip(asking, answers, strict=True)
        return [(worker, answer) for worker, answer in pairs if answer is not None]

    async def _ask_worker(
        self, worker: _Worker, command: str, answer_type: type[T], timeout_seconds: float
    ) -> T | None:
        path = worker_socket(self._control_socket_path, worker.number)
        try:
            return await asyncio.to_thread(asked, path, command, answer_type, timeout_seconds)
        except ControlFailed as failure:
            log.warning("worker process does not answer", worker=worker.number, why=str(failure))
            return None
