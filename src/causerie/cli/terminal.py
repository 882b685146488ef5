"""Display of an answer on a terminal: dimmed thinking, then the text, then the calls.

Takes events and writes them. The output of a model can hold control characters; none reaches the
terminal, so an answer can neither move the cursor nor write to the clipboard.
"""

from __future__ import annotations

import re
import select
import signal
import socket
import sys

from rich.console import Console

from causerie.errors import counted
from causerie.protocol.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)

WHOLE_LINES = 10_000
"""A console of so many columns cuts nothing off a table: breaking lines is left to the terminal."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_REASONS = {"length": "cut: output limit reached", "content_filter": "withheld by a filter"}


def printable(text: str) -> str:
    """The text without characters that would act on the terminal."""
    return _CONTROL.sub("", text)


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


class AnswerView:
    """Writes one answer as it comes.

    The answer goes to ``out``. Thinking goes there too, dimmed, but only on a
    terminal: what a script reads is the answer alone. Calls and remarks go to
    ``notes`` unless ``out`` is a terminal.
    """

    def __init__(self, out: Console, notes: Console) -> None:
        self._out = out
        self._notes = out if out.is_terminal else notes
        self._thinking = out.is_terminal
        self._last = ""
        self._open = False

    def show(self, event: Event) -> None:
        """Write what the event adds."""
        match event:
            case ReasoningDelta(text=text) if self._thinking:
                self._write("thinking", text, "dim")
            case TextDelta(text=text):
                self._write("text", text, None)
            case ToolCallStarted(name=name):
                self._break()
                self._notes.print(f"→ {printable(name)} ", style="cyan", end="", markup=False)
                self._last, self._open = "call", True
            case ToolCallDelta(arguments=arguments):
                self._plain(self._notes, printable(arguments), "cyan")
            case Finished(reason=reason) if reason in _REASONS:
                self._break()
                self._remark(_REASONS[reason])
            case _:
                pass

    def summary(self, usage: Usage | None, seconds: float, first: float | None) -> None:
        """One dimmed line: tokens, time to the first one, rate. Only on a terminal."""
        if usage is None or not self._out.is_terminal:
            return
        words = [counted(usage.completion, "token")]
        if usage.reasoning:
            words.append(f"{usage.reasoning} of them thinking")
        if first is not None:
            words.append(f"first after {first:.2f} s")
            if seconds > first:
                words.append(f"{usage.completion / (seconds - first):.0f} tokens/s")
        self._remark(" · ".join(words))

    def stopped(self) -> None:
        """The person has stopped the answer."""
        self.end()
        self._remark("stopped")

    def end(self) -> None:
        """Leave the cursor at the beginning of a line."""
        self._break()

    def _write(self, kind: str, text: str, style: str | None) -> None:
        if self._last and self._last != kind:
            self._break()
            if self._thinking:
                self._out.print()
        self._last = kind
        shown = printable(text)
        if shown:
            self._plain(self._out, shown, style)
            self._open = not shown.endswith("\n")

    def _break(self) -> None:
        if self._open:
            (self._notes if self._last == "call" else self._out).print()
        self._open = False

    def _remark(self, text: str) -> None:
        self._notes.print(text, style="dim italic", markup=False, highlight=False)

    @staticmethod
    def _plain(console: Console, text: str, style: str | None) -> None:
        console.print(text, style=style, end="", markup=False, highlight=False, soft_wrap=True)
