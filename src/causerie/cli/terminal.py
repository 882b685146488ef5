"""Tables and lists of facts that commands print to the terminal.

Where a terminal is too narrow for a table, each row becomes a block of lines. Without a terminal
a row is one line, whatever its length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from causerie.cli.command import printable

_BETWEEN = 2  # columns of the terminal
_UNBOUNDED = 10_000


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    console: Console | None = None,
) -> None:
    """Print a table; the columns named in ``right`` are flush right."""
    console = console or Console(highlight=False)
    cells = [[Text(printable(cell)) for cell in row] for row in rows]
    head = [Text(title, style="dim") for title in titles]
    widths = [max(cell.cell_len for cell in column) for column in zip(head, *cells, strict=True)]
    if sum(widths) + _BETWEEN * (len(widths) - 1) <= _console_width(console):
        for row in (head, *cells):
            for title, cell, width in zip(titles, row, widths, strict=True):
                cell.align("right" if title in right else "left", width)
            line = Text(" " * _BETWEEN).join(row)
            line.rstrip()
            console.print(line, soft_wrap=True)
        return
    for number, row in enumerate(cells):
        if number:
            console.print(Text(), soft_wrap=True)
        for line in _row_to_lines(console, head, row):
            console.print(line, soft_wrap=True)


def print_facts(facts: Sequence[tuple[str, str]], console: Console | None = None) -> None:
    console = console or Console(highlight=False)
    names = [Text(name) for name, _ in facts]
    values = [Text(printable(value)) for _, value in facts]
    for line in _row_to_lines(console, names, values):
        console.print(line, soft_wrap=True)


def _console_width(console: Console) -> int:
    return console.width if console.is_terminal else _UNBOUNDED


def _row_to_lines(console: Console, titles: Sequence[Text], row: Sequence[Text]) -> Iterator[Text]:
    indent = max(name.cell_len for name in titles) + _BETWEEN
    for name, cell in zip(titles, row, strict=True):
        if not cell.plain:
            continue
        begin = Text().append_text(name).append(" " * (indent - name.cell_len))
        for part in cell.wrap(console, max(_console_width(console) - indent, 1), overflow="fold"):
            part.rstrip()
            yield begin + part
            begin = Text(" " * indent)
