"""The input of a chat: one line or several, with the lines of former runs at hand.

``readline`` edits the line where Python has it; elsewhere the terminal does, without history.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console

try:
    import readline
except ImportError:  # Windows
    HAS_READLINE = False
else:
    HAS_READLINE = hasattr(signal, "setitimer")  # some add a readline to Windows

_QUOTES = '"""'
_KEPT = 1000
_TICK = 0.25


class Keyboard:
    """Reads lines from a terminal; ``None`` is the end of the input."""

    def __init__(self, out: Console, history: Path | None) -> None:
        self._out = out
        self._history = history
        self._edits = HAS_READLINE and out.is_terminal and sys.stdin.isatty()
        if self._edits:
            readline.set_auto_history(False)
            for line in load_history(history) if history else ():
                readline.add_history(line)

    def question(self) -> str | None:
        """Read a message; an interrupt drops what was typed."""
        return self._until_end(lambda: read_message(self._typed_into_history))

    def line(self, prompt: str) -> str | None:
        """Read one line that is not added to the history."""
        return self._until_end(lambda: self._typed(prompt).strip())

    def _until_end(self, read: Callable[[], str]) -> str | None:
        while True:
            try:
                return read()
            except EOFError:
                self._out.print()
                return None
            except KeyboardInterrupt:
                self._out.print("\nCtrl-D leaves", style="dim")

    def _typed_into_history(self, prompt: str) -> str:
        line = self._typed(prompt)
        if self._edits and line.strip():
            readline.add_history(line)
            if self._history:
                append_history(self._history, line)
        return line

    def _typed(self, prompt: str) -> str:
        if self._edits:
            with _waking_readline():
                return input(prompt)
        self._out.print(prompt, end="", markup=False)
        await_line()
        return self._out.input()


def read_message(read: Callable[[str], str]) -> str:
    """Read one line, or several after a backslash or between triple quotes."""
    line = read("> ").strip()
    if line.startswith(_QUOTES):
        text = line.removeprefix(_QUOTES)
        while not text.endswith(_QUOTES):
            text += "\n" + read(". ").rstrip()
        return text.removesuffix(_QUOTES).strip("\n")
    while line.endswith("\\"):
        line = line.removesuffix("\\") + "\n" + read(". ").rstrip()
    return line


def load_history(history: Path) -> list[str]:
    """Return the last lines of the history; shorten a file that has become long."""
    try:
        lines = history.read_text(encoding="utf-8", errors="replace").splitlines()
        if len(lines) > 2 * _KEPT:
            history.write_text("\n".join(lines[-_KEPT:]) + "\n", encoding="utf-8")
    except OSError:
        return []
    return lines[-_KEPT:]


def append_history(history: Path, line: str) -> None:
    """Append a line to the history, which only its owner can read. Ignores failures."""
    with suppress(OSError):
        history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(history, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8", errors="replace") as file:
            file.write(line + "\n")


@contextmanager
def _waking_readline() -> Iterator[None]:
    """Let a signal be seen soon.

    ``readline`` misses one that comes just before it waits for a key. Each tick ends its wait,
    and then Python looks for signals.
    """
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def await_line() -> None:
    """Wait until a line of the terminal can be read.

    ``KeyboardInterrupt`` comes also for a signal between the look for signals
    and the wait, which plain ``input`` would not see before the next key. The
    console of Windows has no such gap, and cannot be waited for like this.
    """
    if sys.platform == "win32":
        return
    woken, wakes = socket.socketpair()
    with woken, wakes:
        wakes.setblocking(False)
        before = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        try:
            select.select([sys.stdin, woken], [], [])
        finally:
            signal.set_wakeup_fd(before)
