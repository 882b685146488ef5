"""TOML as text: on which line of a file each key stands, and values written as TOML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from typing import TypeVar

import msgspec

# The parser of the standard library gives values without positions. This is a second, smaller look
# at a text that has parsed already; it finds tables and keys, and steps over their values. Keys of
# inline tables count as placed where the table begins, also in a list over several lines.

KeyPath = tuple[str | int, ...]

_KEY_PART = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*\.?""")
_LONG_STRING = r'''"""(?:\\.|[^\\])*?"""(?!")|\'{3}.*?\'{3}(?!\')'''
_STRING = r"""[\"](?:\\.|[^\"\\\n])*[\"]|'[^'\n]*'"""
_OTHERS = r"""\#[^\n]*|[\[\]{},\n]|[^"'\#\[\]{},\n]+"""
_TOKEN = re.compile(f"{_LONG_STRING}|{_STRING}|{_OTHERS}", re.DOTALL)


def line_numbers(text: str) -> dict[KeyPath, int]:
    """Return the line (from 1) of every table and key of valid TOML, by its path from the root."""
    found: dict[KeyPath, int] = {}
    tables: dict[KeyPath, int] = {}
    table: KeyPath = ()
    path: KeyPath = ()
    for number, statement in _split_numbered_statements(text):
        if isinstance(statement, int):
            found[(*path, statement)] = number
        elif statement.startswith("[["):
            name = _build_path(_split_key(statement[2:]), tables)
            tables[name] = tables.get(name, -1) + 1
            table = (*name, tables[name])
            found.setdefault(name, number)
            found[table] = number
        elif statement.startswith("["):
            table = _build_path(_split_key(statement[1:]), tables, whole=True)
            found.setdefault(table, number)
        else:
            path = table
            for part in _split_key(statement):
                path = (*path, part)
                found.setdefault(path, number)
    return found


T = TypeVar("T")


def of_nearest(path: KeyPath, known: Mapping[KeyPath, T]) -> T | None:
    """Return the value in ``known`` of a key, or of the nearest table around it that has one."""
    tables = (path[:length] for length in range(len(path), 0, -1))
    return next((known[table] for table in tables if table in known), None)


def _split_key(dotted_key: str) -> list[str]:
    parts: list[str] = []
    position = 0
    while match := _KEY_PART.match(dotted_key, position):
        parts.append(next(group for group in match.groups() if group is not None))
        position = match.end()
        if not match.group().rstrip().endswith("."):
            break
    return parts


def _build_path(parts: list[str], indexes: dict[KeyPath, int], *, whole: bool = False) -> KeyPath:
    path: KeyPath = ()
    for position, part in enumerate(parts):
        path = (*path, part)
        if path in indexes and (whole or position < len(parts) - 1):
            path = (*path, indexes[path])
    return path


def _split_numbered_statements(toml_text: str) -> Iterator[tuple[int, str | int]]:
    # A table in a list that is a key's value is its line and its index.
    lines, number, begins, brackets, index = toml_text.split("\n"), 1, True, "", 0
    for token in _TOKEN.findall(toml_text):
        if begins and token.strip() and token[0] != "#":
            yield number, lines[number - 1].strip()
            begins, index = False, 0
        if token in ("[", "{"):
            if token == "{" and brackets == "[":
                yield number, index
            brackets += token
        elif token in ("]", "}"):
            brackets = brackets[:-1]
        elif token == "," and brackets == "[":
            index += 1
        elif token == "\n" and not brackets:
            begins = True
        number += token.count("\n")


_WIDTH = 96
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def table_text(
    array: Sequence[str], values: Mapping[str, object], remarks: Mapping[str, str] | None = None
) -> str:
    """Return the TOML text of one table of ``array``, with ``remarks`` as comments by key."""
    remarks = remarks or {}
    lines = [f"[[{'.'.join(array)}]]"]
    for name, value in values.items():
        lines += _format_setting_as_lines(name, value, remarks.get(name, ""))
    return "\n".join(lines)


def _format_setting_as_lines(key: str, value: object, remark: str) -> list[str]:
    words = " ".join("".join(c if c.isprintable() else " " for c in remark).split())
    comment = f"  # {words}" if words else ""
    line = f"{_quote_key(key)} = {as_toml(value)}"
    if len(line) <= _WIDTH or not isinstance(value, list | tuple):
        return [line + comment]
    rows = [""]
    for item in value:
        word = as_toml(item) + ","
        if len(rows[-1]) + len(word) > _WIDTH - 4:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    return [f"{_quote_key(key)} = [{comment}", *(f"  {row}" for row in rows), "]"]


def as_toml(value: object) -> str:
    """Return a value as TOML; texts, numbers, lists and booleans are as in JSON."""
    if isinstance(value, Mapping):
        pairs = (f"{_quote_key(name)} = {as_toml(item)}" for name, item in value.items())
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _quote_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else as_toml(name)
