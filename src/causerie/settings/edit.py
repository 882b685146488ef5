"""A table put into a configuration file that people write, with all else left as it is.

Comments, order and spacing of the rest stay. The result is read again and must hold exactly the
former values and the requested ones; otherwise nothing is changed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from causerie.settings.lines import Path, line_numbers

_WIDTH = 96
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class CannotEdit(Exception):
    """The table cannot be put in; the text says why, and what can be done by hand."""


def with_table(
    text: str,
    array: Path,
    values: Mapping[str, object],
    *,
    key: str = "id",
    remarks: Mapping[str, str] | None = None,
) -> str:
    """``text`` with a table of these values in the array of tables at ``array``.

    A table there whose ``key`` has the same value gets the values in place of
    its own and keeps its other ones; otherwise a new one is added at the end.
    ``remarks`` become comments behind the keys. Raises :class:`CannotEdit`.
    """
    before = tomllib.loads(text)
    lines = text.split("\n")
    numbers = line_numbers(text)
    remarks = remarks or {}
    index = _index(before, array, key, values[key])
    if index is None:
        at = _end_of(array[:-1], numbers, lines)
        blank = [""] if any(line.strip() for line in lines[:at]) else []
        result = [*lines[:at], *blank, *_block(array, values, remarks), *(lines[at:] or [""])]
    else:
        table = (*array, index)
        written = {}
        for name, value in values.items():
            path = (*table, name)
            if name in remarks or _at(before, path) != _plain(value):
                remark = remarks.get(name) or _remark(path, numbers, lines)
                written[name] = _statement(name, value, remark)
        result = _replaced(lines, table, numbers, written)
    edited = "\n".join(result)
    _check(before, edited, array, index, values)
    return edited


def by_hand(
    array: Path, values: Mapping[str, object], remarks: Mapping[str, str] | None = None
) -> str:
    """The table as text, to be put in by hand; ``remarks`` become comments behind the keys."""
    return "\n".join(_block(array, values, remarks or {}))


def remark(text: str, path: Path) -> str:
    """The comment behind a statement, where that has one line; raises ``TOMLDecodeError``."""
    return _remark(path, line_numbers(text), text.split("\n"))


def _block(array: Path, values: Mapping[str, object], remarks: Mapping[str, str]) -> list[str]:
    lines = [f"[[{_dotted(array)}]]"]
    for name, value in values.items():
        lines += _statement(name, value, remarks.get(name, ""))
    return lines


def _replaced(
    lines: Sequence[str], table: Path, numbers: Mapping[Path, int], written: Mapping[str, list[str]]
) -> list[str]:
    """The values in their old places; those that are new behind the last own one."""
    spans = {name: _span((*table, name), numbers, lines) for name in written}
    own = [path for path in numbers if len(path) == len(table) + 1 and path[:-1] == table]
    ends = [_span(path, numbers, lines)[1] for path in own if not _is_header(path, numbers, lines)]
    last = max(ends, default=numbers.get(table, 0))
    new = [line for name, part in written.items() if spans[name] == (0, 0) for line in part]
    starts = {span[0]: name for name, span in spans.items() if span != (0, 0)}
    result: list[str] = []
    number = 1
    while number <= len(lines):
        if number in starts:
            result += written[starts[number]]
            number = spans[starts[number]][1]
        else:
            result.append(lines[number - 1])
        if number == last:
            result += new
        number += 1
    return result


def _span(path: Path, numbers: Mapping[Path, int], lines: Sequence[str]) -> tuple[int, int]:
    """First and last line of a statement; ``(0, 0)`` where there is none."""
    first = numbers.get(path)
    return (0, 0) if first is None else (first, _last(first, numbers, lines))


def _remark(path: Path, numbers: Mapping[Path, int], lines: Sequence[str]) -> str:
    """The comment behind a statement of one line."""
    first, last = _span(path, numbers, lines)
    if not first or first != last:
        return ""
    pieces = lines[first - 1].split("#")
    for count in range(1, len(pieces)):
        try:
            tomllib.loads("#".join(pieces[:count]))
        except tomllib.TOMLDecodeError:
            continue
        return "#".join(pieces[count:]).strip()
    return ""


def _last(first: int, numbers: Mapping[Path, int], lines: Sequence[str]) -> int:
    """The last line of the statement that begins on line ``first``: what follows it up to the
    next one is empty or a comment."""
    following = min((n for n in numbers.values() if n > first), default=len(lines) + 1)
    last = following - 1
    while last > first and (not lines[last - 1].strip() or lines[last - 1].lstrip()[0] == "#"):
        last -= 1
    return last


def _end_of(owner: Path, numbers: Mapping[Path, int], lines: Sequence[str]) -> int:
    """The last line of everything that belongs to ``owner``."""
    if owner and owner not in numbers:
        raise CannotEdit(f"{_dotted(owner)} is not there as a table of its own")
    own = [n for path, n in numbers.items() if path[: len(owner)] == owner]
    if own:
        return _last(max(own), numbers, lines)
    return max((n for n, line in enumerate(lines, start=1) if line.strip()), default=0)


def _is_header(path: Path, numbers: Mapping[Path, int], lines: Sequence[str]) -> bool:
    return lines[numbers[path] - 1].lstrip().startswith("[")


def _index(document: Mapping[str, Any], array: Path, key: str, value: object) -> int | None:
    tables = _at(document, array)
    for index, table in enumerate(tables if isinstance(tables, list) else ()):
        if isinstance(table, dict) and table.get(key) == value:
            return index
    return None


def _at(document: object, path: Path) -> object:
    for part in path:
        if isinstance(part, int):
            found = isinstance(document, list) and part < len(document)
            document = document[part] if found and isinstance(document, list) else None
        else:
            document = document.get(part) if isinstance(document, dict) else None
    return document


def _check(
    before: dict[str, Any],
    edited: str,
    array: Path,
    index: int | None,
    values: Mapping[str, object],
) -> None:
    """The edited text must hold what was there, and the table."""
    owner: Any = _at(before, array[:-1])
    tables = owner.setdefault(array[-1], []) if isinstance(owner, dict) else None
    if isinstance(tables, list):
        if index is None:
            tables.append({})
            index = len(tables) - 1
        tables[index] |= {name: _plain(value) for name, value in values.items()}
    try:
        after = tomllib.loads(edited)
    except tomllib.TOMLDecodeError:
        after = None
    if not isinstance(tables, list) or after != before:
        raise CannotEdit(f"{_dotted(array)} is written in a way that cannot be edited safely")


def _plain(value: object) -> object:
    """The value as TOML gives it back."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _statement(name: str, value: object, remark: str) -> list[str]:
    words = " ".join("".join(c if c.isprintable() else " " for c in remark).split())
    comment = f"  # {words}" if words else ""
    line = f"{_key(name)} = {as_toml(value)}"
    if len(line) <= _WIDTH or not isinstance(value, list | tuple):
        return [line + comment]
    return [f"{_key(name)} = [{comment}", *_wrapped(value), "]"]


def _wrapped(items: Sequence[object]) -> list[str]:
    rows = [""]
    for item in items:
        word = as_toml(item) + ","
        if len(rows[-1]) + len(word) > _WIDTH - 4:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    return [f"  {row}" for row in rows]


def as_toml(value: object) -> str:
    """JSON's texts, numbers, lists and truths are TOML's too."""
    if isinstance(value, Mapping):
        pairs = (f"{_key(name)} = {as_toml(item)}" for name, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    """Return the name as a key, in quotes where it needs them."""
    return name if _BARE.fullmatch(name) else as_toml(name)


def _dotted(path: Path) -> str:
    return ".".join(part for part in path if isinstance(part, str))
