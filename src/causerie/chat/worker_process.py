"""A process that does what nobody has vetted, and that may be killed for it: both of its sides."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from causerie.engines.child_environment import base_environment

# Requests come on standard input and answers go to standard output, one at a time, each behind its
# length in four bytes. The loop ends when the input does, so the process never outlives the
# service.

if sys.platform != "win32":  # which has no such limits
    import resource

FRAME = struct.Struct(">I")
_LOOK_SECONDS = 0.02
_TOO_MUCH = 70  # exit status

BOUNDS_WORK = sys.platform != "win32"
"""Whether this system ends a process for the processor time that it used."""


def serve(requests: BinaryIO, answers: BinaryIO, answer: Callable[[bytes], bytes]) -> None:
    """Answer until the input ends."""
    while len(head := requests.read(FRAME.size)) == FRAME.size:
        (length,) = FRAME.unpack(head)
        body = answer(requests.read(length))
        answers.write(FRAME.pack(len(body)) + body)
        answers.flush()


@contextmanager
def limited_work(seconds: float) -> Iterator[None]:
    """End the process when the body has used so many seconds of processor time.

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
    """Have at most ``memory`` bytes of memory, as far as the system lets one say so, and no dumps.

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
    threading.Thread(target=_end_beyond, args=(memory,), daemon=True).start()


def _end_beyond(memory: int) -> None:
    while _peak() <= memory:
        time.sleep(_LOOK_SECONDS)
    os._exit(_TOO_MUCH)


def _peak() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class Died(Exception):
    """The worker went away while it was asked something; ``worked`` too long, or otherwise."""

    def __init__(self, *, worked: bool = False) -> None:
        super().__init__()
        self.worked = worked


class WorkerProcess:
    """One process, made of a module of this program and its arguments."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = (module, *arguments)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Return the process's id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> bool:
        """Start the process, unless it runs; return whether it is a new one."""
        if self.pid is not None:
            return False
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # nothing in the working directory is taken for a module
            "-m",
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=base_environment(),
        )
        return True

    async def ask(self, request: bytes) -> bytes:
        """Send one request and return its answer. After any failure the process has ended."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise Died
        answered = False
        try:
            process.stdin.write(FRAME.pack(len(request)))
            process.stdin.write(request)
            await process.stdin.drain()
            (length,) = FRAME.unpack(await process.stdout.readexactly(FRAME.size))
            answer = await process.stdout.readexactly(length)
            answered = True
            return answer
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.kill()
            raise Died(worked=ended_for_work(process.returncode)) from None
        finally:
            if not answered:
                await self.kill()

    async def kill(self) -> None:
        """End the process at once and wait until it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()
