"""Strings that remember, character by character, who wrote them.

A chat template glues together what its author wrote and what users wrote. A
:class:`Traced` string is an ordinary string to the template (it compares,
hashes, splits and prints the same) and carries alongside its text one byte a
character that says whose it is. Every operation that moves characters moves
their origin with them. An operation that is not known here gives a plain
string, and a plain string counts as written by a user: forgetting one costs a
control token of the template's own, never lets a forged one through.

It does not know templates, messages or tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import SupportsIndex

AUTHOR = 0  # the template's author, or this program
USER = 1  # whoever sent the request
FINAL = 2  # the user's too: the end of the message that is to be continued

_RUN = re.compile(rb"[^\x00]+")
_DIRECTIVE = re.compile(r"%(?:\((?P<key>[^)]*)\))?[-#0 +]*\d*(?:\.\d+)?(?P<kind>[a-zA-Z%])")


class Traced(str):
    """A string and the origin of each of its characters; by default all a user's."""

    __slots__ = ("_origin",)
    _origin: bytes

    def __new__(cls, text: str = "", origin: int | bytes | None = None) -> Traced:
        """``origin`` is one of the constants for the whole text, or one byte a character."""
        self = super().__new__(cls, text)
        if isinstance(origin, bytes):
            if len(origin) != len(self):
                raise ValueError(f"{len(origin)} origins for {len(self)} characters")
            self._origin = origin
        else:
            self._origin = origin_of(text) if origin is None else bytes((origin,)) * len(self)
        return self

    def __str__(self) -> str:
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        text = str.__getitem__(self, key)  # first: it refuses a key that is no place
        return Traced(text, self._origin[key])

    def __iter__(self) -> Iterator[str]:
        return (self._cut(at, at + 1) for at in range(len(self)))

    def __add__(self, other: str) -> str:
        if not isinstance(other, str):
            return NotImplemented
        return Traced(str.__add__(self, other), self._origin + origin_of(other))

    def __radd__(self, other: str) -> str:
        if not isinstance(other, str):
            return NotImplemented
        return Traced(str.__add__(other, self), origin_of(other) + self._origin)

    def __mul__(self, count: SupportsIndex) -> str:
        return Traced(str.__mul__(self, count), self._origin * count)

    def __rmul__(self, count: SupportsIndex) -> str:
        return self * count

    def __mod__(self, values: object) -> str:
        plain = str.__mod__(self, values)
        if any(self._origin):
            return Traced(plain, USER)
        told = joined(_directed(self, values))
        return told if told == plain else Traced(plain, USER)

    def join(self, items: Iterable[str], /) -> str:
        parts = list(items)
        return Traced(str.join(self, parts), self._origin.join(map(origin_of, parts)))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old:
            return Traced(str.replace(self, old, new, count), USER)
        return Traced(new, origin_of(new)).join(self.split(old, count))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._located(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._located(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        lines: list[str] = []
        at = 0
        for whole, line in zip(
            str.splitlines(self, True), str.splitlines(self, keepends), strict=True
        ):
            lines.append(self._cut(at, at + len(line)))
            at += len(whole)
        return lines

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, _ = str.partition(self, sep)
        return self._in_three(len(head), len(head) + len(middle))

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, _ = str.rpartition(self, sep)
        return self._in_three(len(head), len(head) + len(middle))

    def strip(self, chars: str | None = None, /) -> str:
        start = len(self) - len(str.lstrip(self, chars))
        return self._cut(start, max(start, len(str.rstrip(self, chars))))

    def lstrip(self, chars: str | None = None, /) -> str:
        return self._cut(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        return self._cut(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return self._cut(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return self._cut(0, len(str.removesuffix(self, suffix)))

    def upper(self) -> str:
        return self._recased(str.upper(self))

    def lower(self) -> str:
        return self._recased(str.lower(self))

    def capitalize(self) -> str:
        return self._recased(str.capitalize(self))

    def title(self) -> str:
        return self._recased(str.title(self))

    def _cut(self, start: int, stop: int) -> Traced:
        return Traced(str.__getitem__(self, slice(start, stop)), self._origin[start:stop])

    def _in_three(self, first: int, second: int) -> tuple[str, str, str]:
        return self._cut(0, first), self._cut(first, second), self._cut(second, len(self))

    def _located(self, parts: list[str], sep: str | None) -> list[str]:
        """Return the parts of a split with their origins."""
        found: list[str] = []
        at = 0
        for part in parts:
            start = at if sep is not None else self.find(part, at)
            found.append(self._cut(start, start + len(part)))
            at = start + len(part) + (len(sep) if sep is not None else 0)
        return found

    def _recased(self, plain: str) -> str:
        """In another case: no character ever becomes none, so an equal length is one for one."""
        return Traced(plain, self._origin if len(plain) == len(self) else self._uniform())

    def _uniform(self) -> int:
        """Return the common origin of all characters, or a user's if they differ."""
        kinds = set(self._origin)
        return kinds.pop() if len(kinds) == 1 else USER


def authored(text: str) -> Traced:
    """Return text that this program or the template's author wrote."""
    return Traced(text, AUTHOR)


def origin_of(text: str) -> bytes:
    """Return one byte a character; a plain string is a user's."""
    return text._origin if isinstance(text, Traced) else b"\x01" * len(text)


def joined(parts: Iterable[object]) -> Traced:
    """Return all parts in order, each with its own origin."""
    texts = [part if isinstance(part, str) else str(part) for part in parts]
    return Traced("".join(texts), b"".join(map(origin_of, texts)))


def user_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the spans of characters that a user wrote: half-open, in order, not touching."""
    return tuple(match.span() for match in _RUN.finditer(origin_of(text)))


def final_end(text: str) -> int | None:
    """Return the end of the last character marked :data:`FINAL`, or ``None`` without one."""
    end = origin_of(text).rfind(FINAL)
    return None if end < 0 else end + 1


def _directed(pattern: Traced, values: object) -> Iterator[str]:
    """Yield the pieces of ``pattern % values``, each with its origin."""
    given = iter(values) if isinstance(values, tuple) else iter((values,))
    at = 0
    for match in _DIRECTIVE.finditer(pattern):
        yield authored(str.__getitem__(pattern, slice(at, match.start())))
        at = match.end()
        directive, key = match.group(), match["key"]
        if match["kind"] == "%":
            yield authored("%")
            continue
        if key is not None and isinstance(values, Mapping):
            value = values[key]
            directive = "%" + directive[len(key) + 3 :]
        else:
            value = next(given, "")
        if directive == "%s" and isinstance(value, str):
            yield value
        else:
            yield str.__mod__(directive, (value,))
    yield authored(str.__getitem__(pattern, slice(at, len(pattern))))
