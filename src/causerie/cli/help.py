"""The text of ``--help``: written without Rich, whose import takes longer than all the rest.

Help is Markdown, of which paragraphs, `code` and the list behind **Examples** are known.
"""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

_WIDEST = 100
_FIRST_COLUMN = 30  # a longer name has its explanation on the next line
_CODE = re.compile(r"`([^`]+)`")
_EXAMPLES = "**Examples**"


class HelpCommand(TyperCommand):
    """A command that explains itself in plain text."""

    def get_help(self, ctx: Any) -> str:
        """Return the help of the command, with bold words where the output is a terminal."""
        return help_text(self, ctx)


class HelpGroup(TyperGroup):
    """A group that explains itself in plain text, and its commands without loading pydantic."""

    def get_help(self, ctx: Any) -> str:
        """Return the help of the group, with bold words where the output is a terminal."""
        return help_text(self, ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give Typer's own flags a default: pydantic would tell what none of them is as a bool."""
        for option in self.get_params(ctx):
            flag = isinstance(option, TyperOption) and option.type_descriptor.annotation is bool
            if flag and option.default is None:
                option.default = False
        return super().parse_args(ctx, args)


def help_text(command: Any, ctx: Any) -> str:
    """Return usage, explanation, arguments, options and commands; lines end at the window."""
    width = max(50, min(shutil.get_terminal_size().columns, _WIDEST))
    usage = " ".join((ctx.command_path, *command.collect_usage_pieces(ctx)))
    parts = [f"{_bold('Usage:')} {usage}", *_paragraphs(command.help or "", width)]
    for title, rows in _tables(command, ctx):
        parts.append("\n".join((_bold(f"{title}:"), *_table(rows, width))))
    return "\n\n".join(parts)


def _paragraphs(text: str, width: int) -> Iterator[str]:
    """Yield the paragraphs of an explanation, with all examples in one."""
    before, _, examples = inspect.cleandoc(text).partition(_EXAMPLES)
    for paragraph in before.split("\n\n"):
        if paragraph.strip():
            yield _coded(textwrap.fill(" ".join(paragraph.split()), width))
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    if lines:
        yield "\n".join((_bold("Examples:"), *(f"  {_example(line)}" for line in lines)))


def _example(line: str) -> str:
    """Write a command that stands alone as text; a sentence about one has the command in bold."""
    alone = _CODE.fullmatch(line)
    return alone[1] if alone else _coded(line)


def _tables(command: Any, ctx: Any) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
    """Yield the title and the rows of each list that is not empty."""
    parameters = command.get_params(ctx)
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        asked = (each for each in parameters if each.param_type_name == kind)
        rows = [row for each in asked if (row := each.get_help_record(ctx)) is not None]
        if rows:
            yield title, rows
    if commands := getattr(command, "commands", {}):
        yield "Commands", [(name, _summary(each.help or "")) for name, each in commands.items()]


def _summary(text: str) -> str:
    return " ".join(inspect.cleandoc(text).split("\n\n")[0].split())


def _table(rows: Sequence[tuple[str, str]], width: int) -> Iterable[str]:
    column = 4 + min(_FIRST_COLUMN, max(len(name) for name, _ in rows))
    for name, words in rows:
        lines = textwrap.wrap(words, width - column) or [""]
        head = f"  {name}"
        if len(head) > column - 2:
            yield head
            head = ""
        yield _coded(
            "\n".join((f"{head:{column}}{lines[0]}", *(" " * column + line for line in lines[1:])))
        ).rstrip()


def _coded(text: str) -> str:
    """Write code in bold. Its marks have been counted as letters, so that lines never grow."""
    return _CODE.sub(lambda found: _bold(found[1]), text)


def _bold(text: str) -> str:
    """Mark text as bold; what prints it leaves the mark out where there is no terminal."""
    return typer.style(text, bold=True)
