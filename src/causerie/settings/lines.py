"""On which line of a TOML file each key stands.

The parser of the standard library gives values without positions. This is a
second, smaller look at a text that has parsed already; it finds tables and
keys, and steps over their values. Keys of inline tables count as placed
where the table begins, also of those in a list that goes over several lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Path = tuple[str | int, ...]

_KEY_PART = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*\.?""")
_VALUE_TOKEN = re.compile(
    r'''"""|\'\'\'|"(?:\\.|[^"\\])*"|'[^']*'|\#.*|[\[\]{}]|[^"'\#\[\]{}]+|.'''
)
_CLOSING = {'"""': re.compile(r'(?:\\.|[^"\\]|"(?!""))*"""'), "'''": re.compile(r".*?'''")}


def line_numbers(text: str) -> dict[Path, int]:
    """Line (from 1) of every table and key, by its path from the root; text is valid TOML."""
    found: dict[Path, int] = {}
    tables: dict[Path, int] = {}
    table: Path = ()
    path: Path = ()
    for number, statement in _statements(text):
        if isinstance(statement, int):
            found[(*path, statement)] = number
        elif statement.startswith("[["):
            name = _resolved(_parts(statement[2:]), tables)
            tables[name] = tables.get(name, -1) + 1
            table = (*name, tables[name])
            found.setdefault(name, number)
            found[table] = number
        elif statement.startswith("["):
            table = _resolved(_parts(statement[1:]), tables, whole=True)
            found.setdefault(table, number)
        else:
            path = table
            for part in _parts(statement):
                path = (*path, part)
                found.setdefault(path, number)
    return found


def line_of(path: Path, lines: dict[Path, int]) -> int | None:
    """Line of the key, or of what it stands in when the key itself is not there."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _parts(text: str) -> list[str]:
    """The parts of a dotted key at the beginning of the text."""
    parts: list[str] = []
    position = 0
    while match := _KEY_PART.match(text, position):
        parts.append(next(group for group in match.groups() if group is not None))
        position = match.end()
        if not match.group().rstrip().endswith("."):
            break
    return parts


def _resolved(parts: list[str], tables: dict[Path, int], *, whole: bool = False) -> Path:
    """The path with the index of the last element wherever it goes through an array."""
    path: Path = ()
    for position, part in enumerate(parts):
        path = (*path, part)
        if path in tables and (whole or position < len(parts) - 1):
            path = (*path, tables[path])
    return path


def _statements(text: str) -> Iterator[tuple[int, str | int]]:
    """Number and text of each line on which a table header or a key begins.

    For tables in a list that is a key's value: number of the line, and index.
    """
    value = _Value()
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not value.open:
            if not stripped or stripped.startswith("#"):
                continue
            yield number, stripped
            if stripped.startswith("["):
                continue
            value = _Value()
        for index in value.read(line):
            yield number, index


class _Value:
    """The value of a key, read line by line; ``open`` while its end has not come."""

    def __init__(self) -> None:
        self._closing: re.Pattern[str] | None = None
        self._brackets = ""
        self._index = 0

    @property
    def open(self) -> bool:
        return self._closing is not None or bool(self._brackets)

    def read(self, line: str) -> Iterator[int]:
        """Read on; gives the index of each table in a list that begins here."""
        position = 0
        while position < len(line):
            if self._closing is not None:
                end = self._closing.match(line, position)
                if end is None:
                    return
                position, self._closing = end.end(), None
                continue
            token = _VALUE_TOKEN.match(line, position)
            if token is None:
                return
            position = token.end()
            if token.group() == "{" and self._brackets == "[":
                yield self._index
            self._step(token.group())

    def _step(self, token: str) -> None:
        self._closing = _CLOSING.get(token)
        if token in "[{":
            self._brackets += token
        elif token in "]}":
            self._brackets = self._brackets[:-1]
        elif self._brackets == "[" and token[0] not in "\"'#":
            self._index += token.count(",")
