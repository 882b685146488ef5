"""The terminal of a chat: reads input, with a history of lines, and prints streamed answers."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleDimensions
from rich.segment import Segment, Segments
from rich.theme import Theme

if TYPE_CHECKING:
    from rich.markdown import Markdown  # imported where it is used: much, and pipes need none

from causerie.cli.command import printable
from causerie.errors import counted
from causerie.protocol import events

try:
    import readline
except ImportError:  # Windows
    HAS_READLINE = False
else:
    HAS_READLINE = hasattr(signal, "setitimer")  # some add a readline to Windows

_QUOTES = '"""'
_KEPT = 1000
_NEXT_LINE = "\\\n"  # between the lines of one message of the history, as they can be typed
_TICK = 0.25


class Keyboard:
    """Reads lines from a terminal; ``None`` is the end of the input."""

    def __init__(self, out: Console, history: Path | None) -> None:
        self._console = out
        self._history_file = history
        self._has_line_editing = HAS_READLINE and out.is_terminal and sys.stdin.isatty()
        if self._has_line_editing:
            readline.set_auto_history(False)
            for line in load_history(history) if history else ():
                readline.add_history(line)

    def question(self) -> str | None:
        """Read a message; an interrupt drops what was typed."""
        text = self._read_despite_interrupts(lambda: read_message(self._read_typed_line))
        if self._has_line_editing and text and text.strip():
            readline.add_history(text)
            if self._history_file:
                append_history(self._history_file, text)
        return text

    def line(self, prompt: str) -> str | None:
        return self._read_despite_interrupts(lambda: self._read_typed_line(prompt).strip())

    def _read_despite_interrupts(self, read_text: Callable[[], str]) -> str | None:
        while True:
            try:
                return read_text()
            except EOFError:
                self._console.print()
                return None
            except KeyboardInterrupt:
                self._console.print("\nCtrl-D leaves", style="dim")

    def _read_typed_line(self, prompt: str) -> str:
        with _poll_signals_while_reading():
            if self._has_line_editing:
                return input(prompt)
            self._console.print(prompt, end="", markup=False)
            return self._console.input()


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
    """Return the last messages of the history; shorten a file that has become long."""
    try:
        text = history.read_text(encoding="utf-8", errors="replace")
        lines = text.replace(_NEXT_LINE, "\0").splitlines()
        if len(lines) > 2 * _KEPT:
            kept = "\n".join(lines[-_KEPT:]).replace("\0", _NEXT_LINE)
            history.write_text(kept + "\n", encoding="utf-8")
    except OSError:
        return []
    return [line.replace("\0", "\n") for line in lines[-_KEPT:]]


def append_history(history: Path, text: str) -> None:
    """Append a message to the history of inputs, which its owner alone reads. Ignores failures."""
    with suppress(OSError):
        history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(history, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8", errors="replace") as file:
            file.write(text.replace("\n", _NEXT_LINE) + "\n")


@contextmanager
def _poll_signals_while_reading() -> Iterator[None]:
    # A read misses a signal that comes just before it waits for a key. Each tick ends its wait, and
    # then Python looks for signals. The console of Windows has no such gap.
    if sys.platform == "win32":
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# An answer on the terminal as it streams: dimmed thinking, rendered Markdown, tool calls.
#
# The block of Markdown under way is shown as it comes. When the next one begins, its rows are
# cleared and it is written again, rendered, in one write. A block stays as it came where that could
# lose something: where its rows cannot be counted or have left the screen, and where rendering
# drops a character.

_REASONS = {"length": "cut: output limit reached", "content_filter": "withheld by a filter"}


class AnswerView:
    """Prints one answer while it streams.

    The answer goes to ``out``: as rendered Markdown on a terminal, unless it is to be
    ``plain``. Thinking goes there too, dimmed, but only on a terminal: what a
    script reads is the answer alone. Calls and remarks go to ``notes`` unless
    ``out`` is a terminal.
    """

    def __init__(self, out: Console, notes: Console, *, plain: bool = False) -> None:
        self._console = out
        self._notes_console = out if out.is_terminal else notes
        self._shows_thinking = out.is_terminal
        rendered = out.is_terminal and not (plain or out.is_dumb_terminal or out.legacy_windows)
        self._markdown_renderer = StreamedMarkdown(out) if rendered else None
        self._last_part_kind = ""
        self._is_line_open = False

    def show(self, event: events.Event) -> None:
        match event:
            case events.ReasoningDelta(text=text) if self._shows_thinking:
                self._write_part("thinking", text, "dim")
            case events.TextDelta(text=text):
                self._write_part("text", text, None)
            case events.ToolCallStarted(name=name):
                self.end()
                self._print_plain(self._notes_console, f"→ {printable(name)} ", "cyan")
                self._last_part_kind, self._is_line_open = "call", True
            case events.ToolCallDelta(arguments=arguments):
                self._print_plain(self._notes_console, printable(arguments), "cyan")
            case events.Finished(reason=reason) if reason in _REASONS:
                self.end()
                self._print_note(_REASONS[reason])
            case _:
                pass

    def summary(self, usage: events.Usage | None, seconds: float, first: float | None) -> None:
        """Print, on a terminal alone, the number of tokens, the time to the first, and the rate."""
        if usage is None or not self._console.is_terminal:
            return
        words = [counted(usage.completion, "token")]
        if usage.reasoning:
            words.append(f"{usage.reasoning} of them thinking")
        if first is not None:
            words.append(f"first after {first:.2f} s")
            if seconds > first:
                words.append(f"{usage.completion / (seconds - first):.0f} tokens/s")
        self._print_note(" · ".join(words))

    def stopped(self) -> None:
        self.end()
        self._print_note("stopped")

    def _write_part(self, kind: str, text: str, style: str | None) -> None:
        if self._last_part_kind and self._last_part_kind != kind:
            self.end()
            if self._shows_thinking:
                self._console.print()
        self._last_part_kind = kind
        shown = printable(text)
        if kind == "text" and self._markdown_renderer:
            self._markdown_renderer.add(shown)
        elif shown:
            self._print_plain(self._console, shown, style)
            self._is_line_open = not shown.endswith("\n")

    def end(self) -> None:
        """Render what is left, and leave the cursor at the beginning of a line."""
        if self._markdown_renderer:
            self._markdown_renderer.end()
        if self._is_line_open:
            (self._notes_console if self._last_part_kind == "call" else self._console).print()
        self._is_line_open = False

    def _print_note(self, text: str) -> None:
        self._notes_console.print(text, style="dim italic", markup=False, highlight=False)

    @staticmethod
    def _print_plain(console: Console, text: str, style: str | None) -> None:
        console.print(text, style=style, end="", markup=False, highlight=False, soft_wrap=True)


# Text has the terminal's background, which may be light.
CHAT_THEME = Theme({"markdown.code": "bold cyan", "markdown.code_block": "cyan"})
_TELLING = 4  # a line of so many characters shows which block it belongs to
_VARYING = re.compile("[\u200b-\u200d\ufe00-\ufe0f\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:", re.MULTILINE)  # of a link: renders as nothing
_FORMULA = re.compile(
    r"(?P<code>(`+)(?!`).{0,4000}?(?<!`)\2(?!`))|\\\(.{1,1000}?\\\)|\\\[.{1,1000}?\\\]"
    r"|\$\$.{1,1000}?\$\$|\$(?!\s)[^$\n]{1,1000}?(?<!\s)\$(?!\d)",
    re.DOTALL,
)
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")


class StreamedMarkdown:
    """Renders Markdown block by block; starts at the beginning of a line."""

    def __init__(self, out: Console) -> None:
        self._console = out
        self._unrendered_text = ""
        self._size_at_text_start: ConsoleDimensions = out.size
        self._line_count_at_last_split = 0

    def add(self, text: str) -> None:
        """Show more of the text, which has no control characters."""
        text = text.replace("\t", "    ")
        if not self._unrendered_text:
            text = text.lstrip("\n")
            self._size_at_text_start = self._console.size
        self._unrendered_text += text
        self._print_markdown_source(text)
        lines, last = self._unrendered_text.count("\n"), self._unrendered_text.rpartition("\n")[2]
        if lines != self._line_count_at_last_split and len(last.strip()) >= _TELLING:
            self._line_count_at_last_split = lines
            self._render_blocks_until(list(_split_starts_and_blocks(self._unrendered_text))[-1][0])

    def end(self) -> None:
        """Render the rest; leave the cursor at the beginning of a line."""
        if self._unrendered_text and not self._unrendered_text.endswith("\n"):
            self._unrendered_text += "\n"
            self._print_markdown_source("\n")
        self._render_blocks_until(len(self._unrendered_text))

    def _render_blocks_until(self, end_offset: int) -> None:
        if not end_offset:
            return
        rest = self._unrendered_text[end_offset:]
        rows = shown_rows(self._unrendered_text, self._console.width)
        if rows and rows <= self._console.height and self._size_at_text_start == self._console.size:
            with self._console:  # one write, so that nothing flickers
                up = f"\x1b[{rows - 1}A" if rows > 1 else ""
                clear = Segment(f"\r{up}\x1b[J", None, [])
                self._console.print(Segments([clear]), end="", soft_wrap=True)
                for start, block in _split_starts_and_blocks(self._unrendered_text[:end_offset]):
                    if start:
                        self._console.line()
                    self._print_block(block)
                if rest:
                    self._console.line()
                    self._print_markdown_source(rest)
        self._unrendered_text, self._line_count_at_last_split = rest, rest.count("\n")
        self._size_at_text_start = self._console.size

    def _print_block(self, block: str) -> None:
        from rich.markdown import Markdown

        parsed = Markdown(block).parsed
        if [token.type for token in parsed] in (["fence"], ["code_block"]):
            [code] = parsed
            self._print_code(code.content, code.info.partition(" ")[0])
            return
        markdown = _parse_with_hard_breaks(_FORMULA.sub(_escape_formula_punctuation, block))
        lines = [
            [Segment(printable(part.text), part.style) for part in line]
            for line in self._console.render_lines(markdown, pad=False)
        ]
        text = "".join(part.text for line in lines for part in line)
        content = "".join(token.content for token in markdown.parsed)
        letters, shown = (Counter(filter(str.isalnum, each)) for each in (content, text))
        if _DEFINITION.search(block) or letters - shown:
            self._print_markdown_source(block)
            return
        filled = [at for at, line in enumerate(lines) if any(one.text.strip() for one in line)]
        for line in lines[filled[0] : filled[-1] + 1] if filled else ():
            while line and not line[-1].text.strip():  # filled up to the width
                line.pop()
            line[-1:] = [Segment(one.text.rstrip(), one.style) for one in line[-1:]]
            self._console.print(Segments([*line, Segment.line()]), end="", soft_wrap=True)

    # As it is, so that it can be copied: the terminal wraps long lines.
    def _print_code(self, code: str, language: str) -> None:
        from rich.syntax import Syntax

        syntax = Syntax("", language or "text", theme="ansi_dark", background_color="default")
        text = syntax.highlight(code.removesuffix("\n"))
        text.rstrip()
        self._console.print(text, highlight=False, soft_wrap=True)

    def _print_markdown_source(self, text: str) -> None:
        self._console.print(text, end="", markup=False, highlight=False, soft_wrap=True)


def shown_rows(text: str, width: int) -> int | None:
    """Return how many rows a terminal needs for the text; ``None`` where terminals differ."""
    rows = 0
    for line in text.split("\n"):
        rows += max(len(chop_cells(line, width)), 1)
        varying = 2 * len(_VARYING.findall(line))
        if varying and (cell_len(line) + varying) // width != (cell_len(line) - varying) // width:
            return None
    return rows


# Markdown would take the backslashes and signs of a formula for its own.
def _escape_formula_punctuation(match: re.Match[str]) -> str:
    return match[0] if match["code"] else _PUNCTUATION.sub(r"\\\g<0>", match[0])


def _parse_with_hard_breaks(block: str) -> Markdown:
    from rich.markdown import Markdown

    markdown = Markdown(block, code_theme="ansi_dark", hyperlinks=False)
    for token in markdown.parsed:
        for part in token.children or ():
            if part.type == "softbreak":
                part.type = "hardbreak"
    return markdown


def _split_starts_and_blocks(text: str) -> Iterator[tuple[int, str]]:
    from rich.markdown import Markdown

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
