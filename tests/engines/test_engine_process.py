"""Ending a child process, also one that will not end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from causerie.engines import process as module
from causerie.engines.process import EngineProcess, IpcSocket

_LONG = 3600.0


class Open:
    """A stream that stays open as long as the process lives."""

    async def read(self, size: int) -> bytes:
        return await asyncio.get_running_loop().create_future()


class Stuck:
    """A process in the hands of the kernel: not even KILL ends it."""

    pid = 4711
    stdin = None
    stderr = Open()
    returncode = None

    def __init__(self) -> None:
        self.killed = 0
        self.waited = asyncio.Event()

    def kill(self) -> None:
        self.killed += 1

    async def wait(self) -> int:
        self.waited.set()
        return await asyncio.get_running_loop().create_future()


def made(process: Stuck, ipc_socket: IpcSocket, stop_seconds: float) -> EngineProcess:
    return EngineProcess(cast("asyncio.subprocess.Process", process), ipc_socket, stop_seconds)


def is_there(ipc_socket: IpcSocket) -> bool:
    return ipc_socket.path is not None and Path(ipc_socket.path).parent.exists()


async def test_one_that_cannot_be_killed_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_KILL_SECONDS", 0.01)
    process, ipc_socket = Stuck(), IpcSocket()
    async with asyncio.timeout(60):
        await made(process, ipc_socket, 0.01).end()
    assert process.killed
    assert not is_there(ipc_socket)


async def test_one_whose_end_nobody_waits_for_any_more_is_killed_all_the_same() -> None:
    process, ipc_socket = Stuck(), IpcSocket()
    stopping = asyncio.create_task(made(process, ipc_socket, _LONG).end())
    await process.waited.wait()
    stopping.cancel()
    await asyncio.wait({stopping})
    assert process.killed
    assert not is_there(ipc_socket)
