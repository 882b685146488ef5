"""Common set-up of the child processes of engines: their cores, and their end with the parent.

Imports the standard library only, to keep the children small.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Collection

_PR_SET_PDEATHSIG = 1


def ignore_signals() -> None:
    """Ignore the signals that reach whole groups of processes: the parent decides when to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def die_with_parent(number: int) -> None:
    """Have the kernel of Linux send this signal when the thread that started this process ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)


def stay_on(cpus: Collection[int] | None) -> None:
    """Let this process use only these hardware threads, where the system can do that."""
    if cpus is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
