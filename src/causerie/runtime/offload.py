"""Long work of one request, done off the event loop so that the other requests go on.

There are two threads for it, however many requests are large, and one caller has at most one of
them: callers take turns, so a caller with much large work delays only its own. Python runs one
thread at a time: alongside a busy thread the event loop waits a few milliseconds for its turn,
alongside many of them as much for each. A single native call keeps the turn to itself, so each
must be bounded by whoever makes it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, ParamSpec, TypeVar

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
        await _ended(job)
        raise


async def _ended(job: Future[_Made]) -> None:
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
