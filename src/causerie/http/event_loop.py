"""The event loop that all work of a process shares: long work beside it in threads or in turns on
it, and its sockets, whose traffic is gathered.

There are two threads for it, however many requests are large, and one caller has at most one of
them: callers take turns, so a caller with much large work delays only its own. Python runs one
thread at a time: alongside a busy thread the event loop waits a few milliseconds for its turn,
alongside many of them as much for each. A single native call keeps the turn to itself, so each
must be bounded by whoever makes it.

A write wakes whoever waits for it. If that process sleeps on a core of its own, waking it costs
several times the price of the write, on a virtual machine up to 20 µs; but of what is written
in a row only the first piece pays. So an answer is held while there is other input to be
handled, which takes microseconds, and a lone one is not held. For the same reason it is dearer
to fall asleep and be woken than to look again, where the next piece is about to come: busy
polling, as the poller of HAProxy and the idle loop of the kernel have it. It ends when nothing
has come for a while.

Both need to know of every piece that comes, so each protocol of the loop tells.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, ref

# Long work of one request, done off the event loop so that the other requests go on.
#
# There are two threads for it, however many requests are large, and one caller has at most one of
# them: callers take turns, so a caller with much large work delays only its own. Python runs one
# thread at a time: alongside a busy thread the event loop waits a few milliseconds for its turn,
# alongside many of them as much for each. A single native call keeps the turn to itself, so each
# must be bounded by whoever makes it.

LARGE = 128 * 1024  # bytes of a body from which on the work on it belongs here
_TURN_SECONDS = 0.005
_THREADS = 2

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_Job = tuple[Future[Any], Callable[[], object]]

work_of: ContextVar[str] = ContextVar("work_of", default="")
"""The caller for whom work is done from now on: a key, or an address where there are no keys."""


class FairThreads:
    """Threads that callers take turns at."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="offload")
        self._free = threads
        self._lock = Lock()
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        """Jobs by their callers, in the order in which these have their turns."""
        self._busy: set[str] = set()
        """Callers of whom a job is being done."""

    def submit(self, caller: str, work: Callable[[], _Made]) -> Future[_Made]:
        """Queue work of a caller."""
        job = Future[_Made]()
        with self._lock:
            self._waiting.setdefault(caller, deque()).append((job, work))
            self._start()
        return job

    def _start(self) -> None:
        while self._free and (caller := self._next()) is not None:
            jobs = self._waiting[caller]
            job, work = jobs.popleft()
            if not jobs:
                del self._waiting[caller]
            self._free -= 1
            self._busy.add(caller)
            self._threads.submit(self._do, caller, job, work)

    def _next(self) -> str | None:
        ready = (caller for caller in self._waiting if caller not in self._busy)
        return next(ready, None)

    def _do(self, caller: str, job: Future[Any], work: Callable[[], object]) -> None:
        if job.set_running_or_notify_cancel():
            try:
                made = work()
            except BaseException as failure:  # noqa: BLE001 - the caller raises it
                job.set_exception(failure)
            else:
                job.set_result(made)
        del job, work  # a failure holds this frame, and the job the failure
        with self._lock:
            self._free += 1
            self._busy.discard(caller)
            if caller in self._waiting:
                self._waiting.move_to_end(caller)
            self._start()


_threads = FairThreads(_THREADS)


async def offload(
    work: Callable[_Given, _Made], *args: _Given.args, **kwargs: _Given.kwargs
) -> _Made:
    """Return what ``work`` returns, done in a thread for long work; raises what it raises.

    Whoever is cancelled meanwhile goes on once work that has started has ended, so that the two
    never touch the same things at once.
    """
    job = _threads.submit(work_of.get(), partial(work, *args, **kwargs))
    try:
        return await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        await _job_ended(job)
        raise


async def _job_ended(job: Future[_Made]) -> None:
    """Wait until a job has ended, cancelled or not."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    job.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
    while not ended.is_set():
        with suppress(asyncio.CancelledError):  # which the caller raises afterwards
            await ended.wait()


class Turns:
    """Long work on the event loop itself, in turns: for what other threads must not touch."""

    def __init__(self) -> None:
        self._until = monotonic() + _TURN_SECONDS

    async def pause(self) -> None:
        """Let others have their turn where this one has lasted long enough."""
        if monotonic() > self._until:
            await asyncio.sleep(0)
            self._until = monotonic() + _TURN_SECONDS


# The sockets of one event loop: what they send leaves together, dense traffic is awaited awake.
#
# A write wakes whoever waits for it. If that process sleeps on a core of its own, waking it costs
# several times the price of the write, on a virtual machine up to 20 µs; but of what is written in
# a row only the first piece pays. So an answer is held while there is other input to be handled,
# which takes microseconds, and a lone one is not held. For the same reason it is dearer to fall
# asleep and be woken than to look again, where the next piece is about to come: busy polling, as
# the poller of HAProxy and the idle loop of the kernel have it. It ends when nothing has come for a
# while.
#
# Both need to know of every piece that comes, so each protocol of the loop tells.

_MAX_HELD = 16  # pieces; by then the price of waking is small alongside them
_LARGE_PIECE = 16 * 1024  # bytes: such a piece costs more than waking, and is not kept in memory


class Traffic:
    """Reads and writes on the connections of the running event loop.

    ``busy_poll_seconds`` is the time after the last read or write for which the next read is
    awaited without sleeping, if the last one followed its predecessor as soon; 0 always sleeps.
    """

    def __init__(self) -> None:
        self.busy_poll_seconds = 0.0
        # Kept, since to ask which loop runs takes a system call; weakly, since loops have an end.
        self._loop = ref(asyncio.get_running_loop())
        self._held: list[tuple[asyncio.WriteTransport, bytes | memoryview]] = []
        self._came = 0  # pieces that were read and are not handled yet
        self._unanswered = 0  # that are being handled; each is thought to have one answer
        self._turns = False  # whether another turn was asked for
        self._last = 0.0  # when a piece came or went, on the monotonic clock
        self._awake = False

    @property
    def awake(self) -> bool:
        """Return true while the loop polls for input and does not sleep."""
        return self._awake

    def came(self, *, slow: bool = False) -> None:
        """A piece has come on some connection; whoever handles it is woken behind our next turn.

        Nobody stays awake for one of a ``slow`` source: a model whose tokens come one by one, or
        an engine that computes on this machine's cores.
        """
        self._came += 1
        if self.busy_poll_seconds and not slow:
            now = monotonic()
            self._awake = self._awake or now - self._last < self.busy_poll_seconds
            self._last = now
        if not self._turns:
            self._ask_turn()

    def send(self, transport: asyncio.WriteTransport, data: bytes | memoryview) -> None:
        """Write to a connection, now or when what came alongside it was handled, in this order."""
        self._unanswered -= 1
        held = self._held
        if self._unanswered > 0 and len(data) <= _LARGE_PIECE and len(held) < _MAX_HELD:
            held.append((transport, data))
            if not self._turns:  # where it is not the last piece that is answered
                self._ask_turn()
            return
        if held:
            self.flush()
        transport.write(data)
        if self.busy_poll_seconds:
            self._last = monotonic()

    def holds(self, transport: asyncio.WriteTransport) -> bool:
        """Return whether something for this connection is still to be written."""
        return any(held is transport for held, _ in self._held)

    def flush(self) -> None:
        """Write what is held. Data for a connection that has been closed is dropped."""
        held, self._held = self._held, []
        for transport, data in held:
            if not transport.is_closing():
                transport.write(data)

    def _ask_turn(self) -> None:
        loop = self._loop()
        if loop is not None:
            self._turns = True
            loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Begin a turn: earlier reads are handled, and those of the last turn are from here on."""
        self._turns = False
        self._unanswered, self._came = self._came, 0
        if self._held:
            self.flush()
        if self._awake:
            self._awake = monotonic() - self._last < self.busy_poll_seconds
            if self._awake:
                self._ask_turn()


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Traffic] = WeakKeyDictionary()


def traffic() -> Traffic:
    """That of the running event loop, which all of its connections share."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Traffic()
    return found


def without_delay(transport: asyncio.BaseTransport) -> bool:
    """Let the kernel send small pieces at once too (TCP_NODELAY): here it is known what follows.

    False where it is no network that they are sent by.
    """
    handle = transport.get_extra_info("socket")
    if handle is None or handle.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return True
