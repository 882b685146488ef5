"""Markdown as it streams, on a screen that does what a terminal does with what is written."""

from __future__ import annotations

import io
import re

import pytest
from casekit import each_of
from rich.cells import cell_len
from rich.console import Console

from causerie.cli.chat_terminal import StreamedMarkdown, shown_rows

SEQUENCE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|(.)", re.DOTALL)
REPLY = """\
# Title of all

Some **bold** words
on two lines with `code`, [a link](https://example.org/a_b) and 日本語の文章.

3. third
4. fourth

   continued

```python
def doubled(x):
    return 2 * x
```

| name | meaning |
|---|---|
| long | supercalifragilisticexpialidocious |

<div>kept</div>

[1]: https://example.org/definition

> quoted

the end"""


class Screen:
    """Rows of a terminal; those above ``height`` have scrolled out of reach."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0

    def write(self, text: str) -> None:
        for parameters, final, character in SEQUENCE.findall(text):
            if final == "A":
                top = max(0, len(self.rows) - self.height)
                self.row = max(top, self.row - int(parameters))
            elif final == "J":
                del self.rows[self.row + 1 :]
                del self.rows[self.row][self.column :]
            elif character == "\r":
                self.column = 0
            elif character == "\n":
                self._next_row()
            elif character:
                self._put(character)

    def _next_row(self) -> None:
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.rows):
            self.rows.append([])

    def _put(self, character: str) -> None:
        cells = cell_len(character)
        if self.column + cells > self.width:
            self._next_row()
        self.rows[self.row][self.column : self.column + cells] = [character, *[""] * (cells - 1)]
        self.column += cells

    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.rows]


def shown(text: str, width: int = 60, height: int = 24, step: int = 3) -> list[str]:
    """The lines of the screen after the text has streamed onto it."""
    screen = Screen(width, height)
    out = Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height,
        legacy_windows=False, _environ={"TERM": "xterm"},
    )  # fmt: skip
    assert isinstance(out.file, io.StringIO)
    markdown = StreamedMarkdown(out)
    for start in range(0, len(text), step):
        markdown.add(text[start : start + step])
    markdown.end()
    screen.write(out.file.getvalue())
    return screen.lines()


def test_lines_are_not_filled_up_to_the_width() -> None:
    out = Console(file=io.StringIO(), force_terminal=True, width=60, height=24)
    assert isinstance(out.file, io.StringIO)
    markdown = StreamedMarkdown(out)
    markdown.add("A **line**.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    markdown.end()
    assert "A " in out.file.getvalue()
    assert not [line for line in out.file.getvalue().split("\n") if line.endswith(" ")]


def test_blocks_are_rendered_one_by_one() -> None:
    lines = shown(REPLY)
    assert lines[0].strip() == "Title of all"
    assert "Some bold words" in lines
    assert "on two lines with code, a link (https://example.org/a_b) and" in lines
    assert " 3 third" in lines
    assert " 4 fourth" in lines
    assert "   continued" in lines
    assert "def doubled(x):" in lines
    assert "▌ quoted" in lines
    assert not [line for line in lines if "```" in line or "**" in line or "|" in line]


@each_of("width", [8, 13, 20, 40, 200])
@each_of("height", [3, 24])
def test_nothing_is_lost_or_said_twice(width: int, height: int) -> None:
    """Neither on a narrow screen, nor where a block is higher than the screen."""
    seen = "".join("".join(shown(REPLY, width, height)).split())
    for word in ("日本語の文章", "kept", "definition", "fourth", "continued", "theend"):
        assert seen.count(word) == 1, (word, seen)
    letters = sorted(filter(str.isalpha, seen.replace("python", "")))
    assert letters == sorted(filter(str.isalpha, REPLY.replace("python", "")))


def test_pieces_of_any_size_come_to_the_same() -> None:
    assert shown(REPLY, step=1) == shown(REPLY, step=7)


def test_a_block_is_rendered_when_the_next_one_begins() -> None:
    assert shown("**one**\n\n**two**")[0] == "one"
    out = Console(file=io.StringIO(), force_terminal=True, width=60, height=24)
    assert isinstance(out.file, io.StringIO)
    markdown = StreamedMarkdown(out)
    markdown.add("**one**\n\n**tw")
    screen = Screen(60, 24)
    screen.write(out.file.getvalue())
    assert screen.lines() == ["one", "", "**tw"]


@pytest.mark.parametrize(
    "text",
    [
        "A &#x202e;b",  # would be rendered as a mark that turns the text round
        "an ![image](https://example.org/i.png)",
        "x <b>y</b>",
        'a [link](https://example.org "title")',
    ],
)
def test_what_rendering_would_lose_stays_as_written(text: str) -> None:
    assert shown(text)[0] == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (r"**So** \(a_1*b_1*\,c\), \*not\*", r"So \(a_1*b_1*\,c\), *not*"),
        ("\\[ x^2\\,dx =\n\\frac{1}{3} \\]", "\\[ x^2\\,dx =\n\\frac{1}{3} \\]"),
        (r"$$a\;b$$ and $x*1*\!$, *not* $5 or $6", r"$$a\;b$$ and $x*1*\!$, not $5 or $6"),
        (r"`\(a\)` is code", r"\(a\) is code"),
        ("```\n\\(a\\)", "\\(a\\)"),
    ],
)
def test_formulas_stay_as_written(text: str, seen: str) -> None:
    assert "\n".join(shown(text)).rstrip() == seen


def test_rows_of_characters_whose_width_varies_are_not_guessed() -> None:
    assert shown_rows("ab\n\u26a0\ufe0f cd", 40) == 2
    assert shown_rows("\u26a0\ufe0f " * 10, 20) is None
    assert shown_rows("x" * 40, 40) == 1
    assert shown_rows("x" * 41, 40) == 2
    assert shown_rows("日" * 3, 5) == 2


def test_code_can_be_copied() -> None:
    """Lines begin where they began, and only the terminal wraps a long one."""
    code = "def f():\n    return 'a long line, longer than the terminal is wide, in one piece'"
    written = io.StringIO()
    out = Console(file=written, force_terminal=True, width=40, color_system=None)
    markdown = StreamedMarkdown(out)
    markdown.add(f"```python\n{code}\n```\n\nthe end")
    markdown.end()
    rendered = written.getvalue().rpartition("\x1b[J")[0].rpartition("\x1b[J")[2]
    assert f"{code}\n" in rendered
