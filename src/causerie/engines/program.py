"""Programs of others that serve a model: started under a process of ours, waited for, and ended.

Knows nothing of what they are told or answer.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from causerie.engines.base import EngineFailed
from causerie.engines.process import EngineProcess

# -P: nothing in the working directory is taken for a module.
_COMMAND = (sys.executable, "-P", "-m", "causerie.engines.program_child")
_STOP_SECONDS = 8.0  # a little longer than any program has to end by itself
_POLL_SECONDS = 0.1  # nothing tells when it listens


@dataclass(frozen=True, slots=True)
class Program:
    """A command and how it is run."""

    command: Sequence[str]
    environment: Mapping[str, str]
    """Variables in addition to those of the supervising process."""
    farewell_seconds: float = 0.0
    """Time to end by itself once it was asked to; with 0 it is killed at once."""
    cpus: Sequence[int] | None = None
    """Hardware threads that it stays on; ``None``: on any."""
    folder: str | None = None
    """Its working directory; ``None``: that of the service."""


async def start_supervisor(environ: Mapping[str, str]) -> EngineProcess:
    """Start the process that will run a program; raise :class:`EngineFailed`."""
    return await EngineProcess.start(_COMMAND, environ, stop_seconds=_STOP_SECONDS)


async def run(process: EngineProcess, program: Program) -> None:
    """Have the supervising process run a program."""
    await process.tell(json.dumps(asdict(program)).encode() + b"\n")


async def served(process: EngineProcess, ask: Callable[[], Awaitable[object]]) -> str | None:
    """Wait until ``ask`` raises no :class:`EngineFailed`; return how the program ended instead."""
    ended = asyncio.get_running_loop().create_task(process.ended())
    try:
        while not ended.done():
            with suppress(EngineFailed):
                await ask()
                return None
            await asyncio.wait({ended}, timeout=_POLL_SECONDS)
        return ended.result()
    finally:
        ended.cancel()


def free_port() -> int:
    """Return a port of the loopback address that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
