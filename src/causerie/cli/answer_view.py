"""Display of an answer, from its events: dimmed thinking, then the text, then the calls."""

from __future__ import annotations

from rich.console import Console

from causerie.cli.markdown import StreamedMarkdown
from causerie.cli.terminal import printable
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

_REASONS = {"length": "cut: output limit reached", "content_filter": "withheld by a filter"}


class AnswerView:
    """Writes one answer as it comes.

    The answer goes to ``out``: as rendered Markdown on a terminal, unless it is to be
    ``plain``. Thinking goes there too, dimmed, but only on a terminal: what a
    script reads is the answer alone. Calls and remarks go to ``notes`` unless
    ``out`` is a terminal.
    """

    def __init__(self, out: Console, notes: Console, *, plain: bool = False) -> None:
        self._out = out
        self._notes = out if out.is_terminal else notes
        self._thinking = out.is_terminal
        rendered = out.is_terminal and not (plain or out.is_dumb_terminal or out.legacy_windows)
        self._markdown = StreamedMarkdown(out) if rendered else None
        self._last = ""
        self._open = False

    def show(self, event: Event) -> None:
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
        if kind == "text" and self._markdown:
            self._markdown.add(shown)
        elif shown:
            self._plain(self._out, shown, style)
            self._open = not shown.endswith("\n")

    def _break(self) -> None:
        if self._markdown:
            self._markdown.end()
        if self._open:
            (self._notes if self._last == "call" else self._out).print()
        self._open = False

    def _remark(self, text: str) -> None:
        self._notes.print(text, style="dim italic", markup=False, highlight=False)

    @staticmethod
    def _plain(console: Console, text: str, style: str | None) -> None:
        console.print(text, style=style, end="", markup=False, highlight=False, soft_wrap=True)
