"""Threads of the engine that spin for a shorter time while they wait for each other.

They wait for each other some hundred times for each token. On cores of their own a spin is the
fastest way: the others arrive within microseconds, and waking a thread takes longer. Where another
model computes on the same cores, each spin burns time in which that model could compute.

GNU OpenMP reads how long to spin when it is loaded, and has a second, shorter limit (100) for a
process that has more threads than cores. A second team of threads, which sleep, makes it use that.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path

_MAPS = Path("/proc/self/maps")


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


def short_spins(threads: int) -> ShortSpins | None:
    """Return what shortens the spins, or ``None`` where GNU OpenMP is not what computes."""
    library = _openmp() if sys.platform == "linux" else None
    return None if library is None else ShortSpins(library, threads)


def _openmp() -> str | None:
    """Return the library that is loaded."""
    for line in _MAPS.read_text().splitlines():
        file = line.split(maxsplit=5)[5:]
        if file and Path(file[0]).name.startswith("libgomp"):
            return file[0]
    return None
