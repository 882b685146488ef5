"""Waiting for a line of a terminal."""

from __future__ import annotations

import os
import pty
import signal
import threading
from collections.abc import Iterator
from io import StringIO

import pytest
from rich.console import Console

from causerie.cli.chat_terminal import Keyboard


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
    assert Keyboard(Console(file=StringIO()), None).line("> ") == "Why?"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_signal_just_before_the_wait_ends_it(
    keyboard: int, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """Python has looked for signals, and looks again when the wait ends: at the next tick."""
    ticks: list[float] = []

    def read(*_: object) -> str:
        ticks.append(signal.getitimer(signal.ITIMER_REAL)[1])
        return "Why?"

    monkeypatch.setattr("builtins.input", read)
    before = signal.getsignal(signal.SIGALRM)
    shown = Console(file=StringIO(), force_terminal=terminal)
    assert Keyboard(shown, None).line("> ") == "Why?"
    assert 0 < ticks[0] <= 0.25
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before


class Screen(StringIO):
    """It interrupts whoever shows a prompt there."""

    def write(self, text: str) -> int:
        if text == "> ":
            waiting = threading.get_ident()
            threading.Thread(target=signal.pthread_kill, args=(waiting, signal.SIGUSR1)).start()
        return super().write(text)


def test_an_interrupt_during_a_wait_drops_the_line(keyboard: int) -> None:
    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        os.write(keyboard, b"Why?\n")
        raise KeyboardInterrupt

    shown = Screen()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        assert Keyboard(Console(file=shown), None).line("> ") == "Why?"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "Ctrl-D leaves" in shown.getvalue()
