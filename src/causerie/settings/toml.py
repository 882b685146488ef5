"""TOML of values: one value, or a table of an array of tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

_WIDTH = 96
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def table_text(
    array: Sequence[str], values: Mapping[str, object], remarks: Mapping[str, str] | None = None
) -> str:
    """Return a table of the array of tables named ``array``; ``remarks`` are comments by key."""
    remarks = remarks or {}
    lines = [f"[[{'.'.join(array)}]]"]
    for name, value in values.items():
        lines += _statement(name, value, remarks.get(name, ""))
    return "\n".join(lines)


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
    """Return a value as TOML; texts, numbers, lists and booleans are as in JSON."""
    if isinstance(value, Mapping):
        pairs = (f"{_key(name)} = {as_toml(item)}" for name, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else as_toml(name)
