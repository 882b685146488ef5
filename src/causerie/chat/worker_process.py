"""Runs inside a child process: its limits of time and memory, and its loop of requests."""

from __future__ import annotations

import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

# Requests come on standard input and answers go to standard output, one at a time, each behind its
# length in four bytes. The loop ends when the input does, so the process never outlives the
# service.

if sys.platform != "win32":  # which has no such limits
    import resource

FRAME = struct.Struct(">I")
_LOOK_SECONDS = 0.02
_TOO_MUCH = 70  # exit status

BOUNDS_WORK = sys.platform != "win32"  # whether processes end for the time they used


def serve(requests: BinaryIO, answers: BinaryIO, answer: Callable[[bytes], bytes]) -> None:
    while len(head := requests.read(FRAME.size)) == FRAME.size:
        (length,) = FRAME.unpack(head)
        body = answer(requests.read(length))
        answers.write(FRAME.pack(len(body)) + body)
        answers.flush()


@contextmanager
def limited_work(seconds: float) -> Iterator[None]:
    """Kill this process if the block uses more than ``seconds`` of processor time.

    Time that passes while others have the processor does not count. Without
    :data:`BOUNDS_WORK` there is no limit.
    """
    if sys.platform == "win32":
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def ended_for_work(status: int | None) -> bool:
    """Return whether a process of this exit status was ended by :func:`limited_work`."""
    return sys.platform != "win32" and status == -signal.SIGPROF


def limit_memory(memory: int) -> None:
    """Limit this process to ``memory`` bytes, as far as the system can, and have no core dumps.

    Linux bounds the address space, so that an allocation beyond fails. macOS takes such a bound
    and does not keep it, so the process watches itself. Windows has neither.
    """
    if sys.platform == "win32":
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "darwin":
        watch_memory(memory)
    else:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def watch_memory(memory: int) -> None:
    """End the process soon after it has had more than ``memory`` bytes resident."""
    unit = 1 if sys.platform == "darwin" else 1024

    def end_beyond() -> None:
        while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit <= memory:
            time.sleep(_LOOK_SECONDS)
        os._exit(_TOO_MUCH)

    threading.Thread(target=end_beyond, daemon=True).start()
