"""A child process for work on untrusted input, which may be killed for what it takes."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from causerie.chat.worker_process import FRAME, ended_for_work
from causerie.engines.child_environment import base_environment


class Died(Exception):
    """The worker ended while it was asked; ``worked``: it had used up its processor time."""

    def __init__(self, *, worked: bool = False) -> None:
        super().__init__()
        self.worked = worked


class WorkerProcess:
    """One child process that runs a module of this program with arguments."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module_and_arguments = (module, *arguments)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
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
            *self._module_and_arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=base_environment(),
        )
        return True

    async def ask(self, request: bytes) -> bytes:
        """Send one request and return its answer; kill the process after any failure."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise Died
        try:
            process.stdin.write(FRAME.pack(len(request)))
            process.stdin.write(request)
            await process.stdin.drain()
            (length,) = FRAME.unpack(await process.stdout.readexactly(FRAME.size))
            return await process.stdout.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.kill()
            raise Died(worked=ended_for_work(process.returncode)) from None
        except BaseException:
            await self.kill()
            raise

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()
