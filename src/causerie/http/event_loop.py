"""Shared parts of a process's event loop: threads for long work, and gathered writes to sockets."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from threading import Lock, Thread
from time import monotonic
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, ref

LARGE = 128 * 1024  # bytes of a body whose processing is offloaded
_TURN_SECONDS = 0.005

P = ParamSpec("P")
R = TypeVar("R")
_Job = tuple[Future[Any], Callable[[], object]]

work_of: ContextVar[str] = ContextVar("work_of", default="")
"""The caller for whom work is done: a project or key, or an address if there are no keys."""


class FairThreads:
    """Threads for long work that callers use in turns, each caller at most one thread at a time.

    Python runs one thread at a time: beside each busy thread the event loop waits some milliseconds
    for its turn. A single native call is never interrupted, so each must be bounded.
    """

    def __init__(self, threads: int) -> None:
        self._thread_pool = ThreadPoolExecutor(threads, thread_name_prefix="offload")
        self._free_thread_count = threads
        self._lock = Lock()
        self._jobs_by_caller: OrderedDict[str, deque[_Job]] = OrderedDict()  # in the order of turns
        self._busy_callers: set[str] = set()  # callers with a running job

    def submit(self, caller: str, work: Callable[[], R]) -> Future[R]:
        job = Future[R]()
        with self._lock:
            self._jobs_by_caller.setdefault(caller, deque()).append((job, work))
            self._start_waiting_jobs()
        return job

    def _start_waiting_jobs(self) -> None:
        while self._free_thread_count:
            ready = (caller for caller in self._jobs_by_caller if caller not in self._busy_callers)
            caller = next(ready, None)
            if caller is None:
                return
            jobs = self._jobs_by_caller[caller]
            job, work = jobs.popleft()
            if not jobs:
                del self._jobs_by_caller[caller]
            self._free_thread_count -= 1
            self._busy_callers.add(caller)
            self._thread_pool.submit(self._run_job, caller, job, work)

    def _run_job(self, caller: str, future: Future[Any], work: Callable[[], object]) -> None:
        if future.set_running_or_notify_cancel():
            try:
                result = work()
            except BaseException as failure:  # noqa: BLE001 - the caller raises it
                future.set_exception(failure)
            else:
                future.set_result(result)
        del future, work  # a failure holds this frame, and the job the failure
        with self._lock:
            self._free_thread_count += 1
            self._busy_callers.discard(caller)
            if caller in self._jobs_by_caller:
                self._jobs_by_caller.move_to_end(caller)
            self._start_waiting_jobs()


_threads = FairThreads(2)


async def offload(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run ``work`` in one of the threads for long work; return or raise what it does.

    A cancelled caller waits until started work has ended, so that the two never use the same
    objects at once.
    """
    job = _threads.submit(work_of.get(), partial(work, *args, **kwargs))
    try:
        return await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        job.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
        while not ended.is_set():
            with suppress(asyncio.CancelledError):  # this one is raised below
                await ended.wait()
        raise


def in_daemon_thread(work: Callable[[], R], name: str) -> Future[R]:
    """Run blocking work in a new daemon thread; return a future of its result."""
    job = Future[R]()
    job.set_running_or_notify_cancel()

    def run() -> None:
        try:
            job.set_result(work())
        except BaseException as failure:  # noqa: BLE001 - the caller raises it
            job.set_exception(failure)

    Thread(target=run, name=name, daemon=True).start()
    return job


class Turns:
    """Lets long work on the event loop pause at intervals, so that other tasks run meanwhile."""

    def __init__(self) -> None:
        self._next_yield_to_loop_time = monotonic() + _TURN_SECONDS

    async def pause(self) -> None:
        """Let other tasks run if this one has run for long enough."""
        if monotonic() > self._next_yield_to_loop_time:
            await asyncio.sleep(0)
            self._next_yield_to_loop_time = monotonic() + _TURN_SECONDS


_MAX_HELD = 16  # pieces; by then the price of waking is small alongside them
_LARGE_PIECE = 16 * 1024  # bytes: such a piece costs more than waking, and is not kept in memory


class Traffic:
    """Gathers the writes of all connections of an event loop; every protocol reports its reads.

    A write wakes the receiving process, which may cost several times the write; only the first of
    several writes in a row pays that. So a write is held while other input is still to be handled,
    which takes microseconds. For the same reason the loop can poll for input and not sleep: for
    ``busy_poll_seconds`` after the last read or write, if that followed its predecessor as soon. 0
    always sleeps.
    """

    def __init__(self) -> None:
        self.busy_poll_seconds = 0.0
        # Kept since asking for the running loop takes a system call; weak since loops end.
        self._loop_ref = ref(asyncio.get_running_loop())
        self._held_writes: list[tuple[asyncio.WriteTransport, bytes | memoryview]] = []
        self._read_piece_count = 0  # pieces that were read in this turn
        self._unanswered_piece_count = 0  # being handled; each is expected to have one answer
        self._is_turn_end_scheduled = False  # whether another turn was scheduled
        self._last_io_time = 0.0  # time of the last read or write, on the monotonic clock
        self._is_polling = False

    def came(self, *, slow: bool = False) -> None:
        """Note that a connection has read data, before the handler of the data runs.

        The loop does not poll after one of a ``slow`` source: a model whose tokens come one by one,
        or an engine that computes on this machine's cores.
        """
        self._read_piece_count += 1
        if self.busy_poll_seconds and not slow:
            now = monotonic()
            self._is_polling = self._is_polling or now - self._last_io_time < self.busy_poll_seconds
            self._last_io_time = now
        if not self._is_turn_end_scheduled:
            self._schedule_turn_end()

    def send(self, transport: asyncio.WriteTransport, data: bytes | memoryview) -> None:
        """Write to a connection, now or after other input was handled, in the order of calls."""
        self._unanswered_piece_count -= 1
        held = self._held_writes
        if self._unanswered_piece_count > 0 and len(data) <= _LARGE_PIECE and len(held) < _MAX_HELD:
            held.append((transport, data))
            if not self._is_turn_end_scheduled:
                self._schedule_turn_end()
            return
        if held:
            self.flush()
        transport.write(data)
        if self.busy_poll_seconds:
            self._last_io_time = monotonic()

    def holds(self, transport: asyncio.WriteTransport) -> bool:
        """Return whether data for this connection is held back, not yet written."""
        return any(held is transport for held, _ in self._held_writes)

    def flush(self) -> None:
        """Write all data that is held back; drop the data of closed connections."""
        held, self._held_writes = self._held_writes, []
        for transport, data in held:
            if not transport.is_closing():
                transport.write(data)

    def _schedule_turn_end(self) -> None:
        loop = self._loop_ref()
        if loop is not None:
            self._is_turn_end_scheduled = True
            loop.call_soon(self._end_loop_turn)

    def _end_loop_turn(self) -> None:
        self._is_turn_end_scheduled = False
        self._unanswered_piece_count, self._read_piece_count = self._read_piece_count, 0
        if self._held_writes:
            self.flush()
        if self._is_polling:
            self._is_polling = monotonic() - self._last_io_time < self.busy_poll_seconds
            if self._is_polling:
                self._schedule_turn_end()


_traffic_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Traffic] = WeakKeyDictionary()


def traffic() -> Traffic:
    loop = asyncio.get_running_loop()
    found = _traffic_by_loop.get(loop)
    if found is None:
        found = _traffic_by_loop[loop] = Traffic()
    return found


def without_delay(transport: asyncio.BaseTransport) -> bool:
    """Set TCP_NODELAY; return false if the connection is not TCP."""
    handle = transport.get_extra_info("socket")
    if handle is None or handle.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return True
