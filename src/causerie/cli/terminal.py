"""Tables of commands.

Where a terminal is too narrow for a table, each row becomes a block of lines. Without a terminal
a row is one line, whatever its length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.cells import cell_len
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
    widths = [max(map(_width, column)) for column in zip(head, *cells, strict=True)]
    if sum(widths) + _BETWEEN * (len(widths) - 1) <= _columns(console):
        justify = ["right" if title in right else "left" for title in titles]
        for row in (head, *cells):
            _print(console, _line(row, widths, justify))
        return
    for number, row in enumerate(cells):
        if number:
            _print(console, Text())
        for line in _block(console, head, row):
            _print(console, line)


def print_facts(facts: Sequence[tuple[str, str]], console: Console | None = None) -> None:
    console = console or Console(highlight=False)
    names, values = (
        [Text(name) for name, _ in facts],
        [Text(printable(value)) for _, value in facts],
    )
    for line in _block(console, names, values):
        _print(console, line)


def _width(cell: Text) -> int:
    return cell_len(cell.plain)


def _columns(console: Console) -> int:
    return console.width if console.is_terminal else _UNBOUNDED


def _line(row: Sequence[Text], widths: Sequence[int], justify: Sequence[str]) -> Text:
    line = Text()
    for cell, width, side in zip(row, widths, justify, strict=True):
        missing = " " * (width - _width(cell))
        line.append(missing if side == "right" else "")
        line.append_text(cell)
        line.append((missing if side == "left" else "") + " " * _BETWEEN)
    line.rstrip()
    return line


def _block(console: Console, names: Sequence[Text], row: Sequence[Text]) -> Iterator[Text]:
    indent = max(map(_width, names)) + _BETWEEN
    for name, cell in zip(names, row, strict=True):
        if not cell.plain:
            continue
        begin = Text().append_text(name).append(" " * (indent - _width(name)))
        for part in cell.wrap(console, max(_columns(console) - indent, 1), overflow="fold"):
            part.rstrip()
            yield begin + part
            begin = Text(" " * indent)


def _print(console: Console, line: Text) -> None:
    console.print(line, soft_wrap=True)
