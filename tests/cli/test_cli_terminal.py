"""Waiting for a line of a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from causerie.cli.chat_terminal import await_line

_select = select.select
_SECONDS = 5


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The keys of a terminal that is stdin."""
    master, slave = pty.openpty()
    with os.fdopen(slave) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield master
    os.close(master)


def test_a_line_ends_the_wait(keyboard: int) -> None:
    os.write(keyboard, b"Why?\n")
    await_line()
    assert sys.stdin.readline() == "Why?\n"


def test_a_signal_just_before_the_wait_ends_it(
    keyboard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has looked for signals, and looks again only when the wait is over."""
    ended: list[bool] = []

    def late(read: list[Any], write: list[Any], other: list[Any]) -> None:
        signal.raise_signal(signal.SIGUSR1)
        ready, _, _ = _select(read, write, other, _SECONDS)
        ended.append(bool(ready))

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    wakeup = signal.set_wakeup_fd(-1)
    try:
        monkeypatch.setattr("select.select", late)
        await_line()
        assert ended == [True]
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGUSR1, before)
