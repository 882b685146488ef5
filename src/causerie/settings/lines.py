"""On which line of a TOML file each key stands.

The parser of the standard library gives values without positions. This is a
second, smaller look at a text that has parsed already; it finds tables and
keys, and steps over their values. Keys of inline tables count as standing
where the table begins.
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
    for number, statement in _statements(text):
        if statement.startswith("[["):
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


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line on which a table header or a key begins."""
    closing: re.Pattern[str] | None = None
    depth = 0
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        inside = closing is not None or depth > 0
        if not inside:
            if not stripped or stripped.startswith("#"):
                continue
            yield number, stripped
            if stripped.startswith("["):
                continue
        closing, depth = _after(line, closing, depth)


def _after(
    line: str, closing: re.Pattern[str] | None, depth: int
) -> tuple[re.Pattern[str] | None, int]:
    """Whether a long text or a bracket is still open behind this line."""
    position = 0
    while position < len(line):
        if closing is not None:
            end = closing.match(line, position)
            if end is None:
                return closing, depth
            position, closing = end.end(), None
            continue
        token = _VALUE_TOKEN.match(line, position)
        if token is None:
            break
        position = token.end()
        closing = _CLOSING.get(token.group())
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.group(), 0)
    return closing, depth
