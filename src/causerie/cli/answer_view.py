"""An answer on the terminal as it streams: dimmed thinking, rendered Markdown, tool calls.

The block of Markdown under way is shown as it comes. When the next one begins, its rows are cleared
and it is written again, rendered, in one write. A block stays as it came where that could lose
something: where its rows cannot be counted or have left the screen, and where rendering drops a
character.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.control import Control
from rich.markdown import Markdown
from rich.segment import Segment, Segments

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
    """Prints one answer while it streams.

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
        self._with_hard_breaks = StreamedMarkdown(out) if rendered else None
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
        """Print the number of tokens, the time to the first, and the rate. Only on a terminal."""
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
        if kind == "text" and self._with_hard_breaks:
            self._with_hard_breaks.add(shown)
        elif shown:
            self._plain(self._out, shown, style)
            self._open = not shown.endswith("\n")

    def _break(self) -> None:
        if self._with_hard_breaks:
            self._with_hard_breaks.end()
        if self._open:
            (self._notes if self._last == "call" else self._out).print()
        self._open = False

    def _remark(self, text: str) -> None:
        self._notes.print(text, style="dim italic", markup=False, highlight=False)

    @staticmethod
    def _plain(console: Console, text: str, style: str | None) -> None:
        console.print(text, style=style, end="", markup=False, highlight=False, soft_wrap=True)


_TELLING = 4  # a line of so many characters shows which block it belongs to
_VARYING = re.compile("[\u200b-\u200d\ufe00-\ufe0f\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:", re.MULTILINE)  # of a link: renders as nothing


class StreamedMarkdown:
    """Renders Markdown block by block; starts at the beginning of a line."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._pending = ""
        self._size: ConsoleDimensions = out.size
        self._lines_seen = 0

    def add(self, text: str) -> None:
        """Show more of the text, which has no control characters."""
        text = text.replace("\t", "    ")
        if not self._pending:
            text = text.lstrip("\n")
            self._size = self._out.size
        self._pending += text
        self._print_source(text)
        if self._shows_its_block():
            self._finish_until(list(_blocks(self._pending))[-1][0])

    def end(self) -> None:
        """The text is complete; leaves the cursor at the beginning of a line."""
        if self._pending and not self._pending.endswith("\n"):
            self._pending += "\n"
            self._print_source("\n")
        self._finish_until(len(self._pending))

    def _shows_its_block(self) -> bool:
        lines = self._pending.count("\n")
        if lines == self._lines_seen or len(self._pending.rpartition("\n")[2].strip()) < _TELLING:
            return False
        self._lines_seen = lines
        return True

    def _finish_until(self, end: int) -> None:
        if not end:
            return
        rest = self._pending[end:]
        rows = shown_rows(self._pending, self._out.width)
        if rows and rows <= self._out.height and self._size == self._out.size:
            with self._out:  # one write, so that nothing flickers
                self._out.control(_cleared(rows))
                for start, block in _blocks(self._pending[:end]):
                    if start:
                        self._out.line()
                    self._rendered(block)
                if rest:
                    self._out.line()
                    self._print_source(rest)
        self._pending, self._lines_seen, self._size = rest, rest.count("\n"), self._out.size

    def _rendered(self, block: str) -> None:
        markdown = _with_hard_breaks(block)
        lines = [
            [Segment(printable(part.text), part.style) for part in line]
            for line in self._out.render_lines(markdown, pad=False)
        ]
        text = "".join(part.text for line in lines for part in line)
        content = "".join(token.content for token in markdown.parsed)
        if _DEFINITION.search(block) or _letter_counts(content) - _letter_counts(text):
            self._print_source(block)
            return
        for line in _without_blank_ends(lines):
            self._out.print(Segments([*line, Segment.line()]), end="", soft_wrap=True)

    def _print_source(self, text: str) -> None:
        self._out.print(text, end="", markup=False, highlight=False, soft_wrap=True)


def shown_rows(text: str, width: int) -> int | None:
    """Return how many rows a terminal needs for the text; ``None`` where terminals differ."""
    rows = 0
    for line in text.split("\n"):
        column = 0
        rows += 1
        for character in line:
            cells = cell_len(character)
            if column + cells > width:
                rows, column = rows + 1, 0
            column += cells
        varying = 2 * len(_VARYING.findall(line))
        if varying and (cell_len(line) + varying) // width != (cell_len(line) - varying) // width:
            return None
    return rows


def _cleared(rows: int) -> Control:
    up = f"\x1b[{rows - 1}A" if rows > 1 else ""
    cleared = Control()
    cleared.segment = Segment(f"\r{up}\x1b[J", None, [])
    return cleared


def _with_hard_breaks(text: str) -> Markdown:
    markdown = Markdown(text, code_theme="ansi_dark", hyperlinks=False)
    for token in markdown.parsed:
        for part in token.children or ():
            if part.type == "softbreak":
                part.type = "hardbreak"
    return markdown


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    lines = text.splitlines(keepends=True)
    starts = [
        token.map[0]
        for token in Markdown(text).parsed
        if token.level == 0 and token.map and token.nesting >= 0
    ]
    if not starts or "".join(lines[: starts[0]]).strip():
        starts.insert(0, 0)  # a definition of a link has no token
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        block = "".join(lines[start:end])
        yield len("".join(lines[:start])), block.rstrip("\n") + "\n"


def _without_blank_ends(lines: list[list[Segment]]) -> list[list[Segment]]:
    filled = [
        number for number, line in enumerate(lines) if any(part.text.strip() for part in line)
    ]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _letter_counts(text: str) -> Counter[str]:
    return Counter(filter(str.isalnum, text))
