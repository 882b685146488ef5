"""Ending a child process, also one that will not end."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import cast

import pytest

from causerie.engines.llamacpp import process as module
from causerie.engines.llamacpp.client import LlamaCppClient, Pulse
from causerie.engines.llamacpp.meeting import Meeting
from causerie.engines.llamacpp.process import LlamaCppChild

_LONG = 3600.0


class Stuck:
    """A process in the hands of the kernel: not even KILL ends it."""

    pid = 4711
    stdin = None
    returncode = None

    def __init__(self) -> None:
        self.killed = 0
        self.waited = asyncio.Event()

    def kill(self) -> None:
        self.killed += 1

    async def wait(self) -> int:
        self.waited.set()
        return await asyncio.get_running_loop().create_future()


def child(process: Stuck, meeting: Meeting) -> LlamaCppChild:
    async def read() -> None:  # its streams stay open as long as it lives
        await asyncio.Event().wait()

    return LlamaCppChild(
        cast("asyncio.subprocess.Process", process),
        LlamaCppClient(1, "key"),
        deque(),
        asyncio.get_running_loop().create_task(read()),
        meeting,
        Pulse(),
    )


def is_there(meeting: Meeting) -> bool:
    return meeting.path is not None and Path(meeting.path).parent.exists()


async def test_one_that_cannot_be_killed_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_STOP_SECONDS", 0.01)
    monkeypatch.setattr(module, "_KILL_SECONDS", 0.01)
    process, meeting = Stuck(), Meeting()
    async with asyncio.timeout(10):
        await child(process, meeting).stop()
    assert process.killed
    assert not is_there(meeting)


async def test_one_whose_end_nobody_waits_for_any_more_is_killed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_STOP_SECONDS", _LONG)
    process, meeting = Stuck(), Meeting()
    stopping = asyncio.create_task(child(process, meeting).stop())
    await process.waited.wait()
    stopping.cancel()
    await asyncio.wait({stopping})
    assert process.killed
    assert not is_there(meeting)
