"""Other programs on the engine's cores: noticing them, and spinning less while they compute.

The threads of the engine wait for each other some hundred times for each token. On cores of their
own a spin is the fastest way: the others arrive within microseconds, and waking a thread takes
longer. When another program computes, the thread that is waited for often has no core, and every
spin burns time that it needs. So spins become shorter as soon as threads wait for a core, and long
again when they do not.

GNU OpenMP reads how long to spin when it is loaded, and has a second, shorter limit (100) for a
process that has more threads than cores. A second team of threads, which sleep, makes it use that.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_SECONDS = 0.5  # between two looks
_LEAST_NS = 100_000_000  # less work tells nothing
_THERE, _GONE = 0.15, 0.05  # shares of their time that threads wait for a core
_TASKS = Path("/proc/self/task")
_MAPS = Path("/proc/self/maps")


class ForeignLoad:
    """Whether other programs compute on the cores of this process (``found``)."""

    def __init__(self) -> None:
        self.found = False
        self._ran = self._waited = 0

    def observe(self, ran: int, waited: int) -> None:
        """Take how long all threads ran, and waited for a core though they could run (ns, totals).

        Totals may fall, since threads end.
        """
        more_ran, more_waited = ran - self._ran, waited - self._waited
        if 0 <= more_ran + more_waited < _LEAST_NS:
            return
        self._ran, self._waited = ran, waited
        if more_ran >= 0 and more_waited >= 0:
            share = more_waited / (more_ran + more_waited)
            self.found = share > (_GONE if self.found else _THERE)


class ShortSpins:
    """Makes threads of GNU OpenMP (its loaded ``library``) spin shortly, while it is switched on.

    ``threads`` are those that the engine computes with.
    """

    def __init__(self, library: str, threads: int) -> None:
        openmp = ctypes.CDLL(library)
        self._parallel = openmp.GOMP_parallel
        self._parallel.argtypes = (
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
        )  # fmt: skip
        self._sleepers = max((os.cpu_count() or 1) - threads, 0) + 2
        self._end: threading.Event | None = None

    def switch(self, *, on: bool) -> None:
        """Start or end the team of threads that sleep."""
        if on and self._end is None:
            self._end = threading.Event()
            threading.Thread(target=self._hold, args=(self._end,), daemon=True).start()
        elif not on and self._end is not None:
            self._end.set()
            self._end = None

    def _hold(self, end: threading.Event) -> None:
        """Have the team for as long as this thread lives; what it is asked to do is nothing."""
        nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)
        self._parallel(nothing, None, self._sleepers, 0)
        end.wait()


def spin_less_under_foreign_load(threads: int) -> None:
    """Watch for other programs from now on; nothing where GNU OpenMP is not what computes."""
    library = _openmp() if sys.platform == "linux" else None
    if library is not None:
        spins = ShortSpins(library, threads)
        threading.Thread(target=_watch, args=(spins,), daemon=True).start()


def _watch(spins: ShortSpins) -> None:
    load, looked = ForeignLoad(), time.process_time_ns()
    while True:
        time.sleep(_SECONDS)
        if time.process_time_ns() - looked < _LEAST_NS // 2:  # idle: there is nothing to read
            continue
        looked = time.process_time_ns()
        load.observe(*thread_times())
        spins.switch(on=load.found)


def thread_times() -> tuple[int, int]:
    """Return how long all threads ran, and waited for a core though they could run (ns)."""
    ran = waited = 0
    for task in _TASKS.iterdir():
        with suppress(OSError, ValueError):  # it has ended, or the kernel does not count
            times = (task / "schedstat").read_text().split()
            ran, waited = ran + int(times[0]), waited + int(times[1])
    return ran, waited


def _openmp() -> str | None:
    """Return the library that is loaded."""
    for line in _MAPS.read_text().splitlines():
        file = line.split(maxsplit=5)[5:]
        if file and Path(file[0]).name.startswith("libgomp"):
            return file[0]
    return None
