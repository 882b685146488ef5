"""Strings that record who wrote each character, and parsed JSON that keeps its source text."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import SupportsIndex

import msgspec

# An operation that is not known here gives a plain string, which counts as written by a user: to
# forget one costs a control token of the template's own, and never lets a forged one through.

AUTHOR = 0  # the template's author, or this program
USER = 1  # whoever sent the request
FINAL = 2  # the user's too: the end of the message that is to be continued

_RUN = re.compile(rb"[^\x00]+")
_DIRECTIVE = re.compile(r"%(?:\((?P<key>[^)]*)\))?[-#0 +]*\d*(?:\.\d+)?(?P<kind>[a-zA-Z%])")


class Traced(str):
    """A string that records who wrote each of its characters: by default, a user."""

    __slots__ = ("_origin_bytes",)
    _origin_bytes: bytes

    def __new__(cls, text: str = "", origin: int | bytes | None = None) -> Traced:
        """Make a string whose ``origin`` is one constant for all of it, or one byte a character."""
        self = super().__new__(cls, text)
        if isinstance(origin, bytes):
            if len(origin) != len(self):
                raise ValueError(f"{len(origin)} origins for {len(self)} characters")
            self._origin_bytes = origin
        else:
            self._origin_bytes = origin_of(text) if origin is None else bytes((origin,)) * len(self)
        return self

    def __str__(self) -> str:
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        text = str.__getitem__(self, key)  # first: it refuses a key that is no place
        return Traced(text, self._origin_bytes[key])

    def __iter__(self) -> Iterator[str]:
        return (self._slice_traced(at, at + 1) for at in range(len(self)))

    def __add__(self, other: str) -> str:
        if not isinstance(other, str):
            return NotImplemented
        return Traced(str.__add__(self, other), self._origin_bytes + origin_of(other))

    def __radd__(self, other: str) -> str:
        if not isinstance(other, str):
            return NotImplemented
        return Traced(str.__add__(other, self), origin_of(other) + self._origin_bytes)

    def __mul__(self, count: SupportsIndex) -> str:
        return Traced(str.__mul__(self, count), self._origin_bytes * count)

    def __rmul__(self, count: SupportsIndex) -> str:
        return self * count

    def __mod__(self, values: object) -> str:
        plain = str.__mod__(self, values)
        if any(self._origin_bytes):
            return Traced(plain, USER)
        told = joined(_format_percent_pieces(self, values))
        return told if told == plain else Traced(plain, USER)

    def join(self, items: Iterable[str], /) -> str:
        parts = list(items)
        return Traced(str.join(self, parts), self._origin_bytes.join(map(origin_of, parts)))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old:
            return Traced(str.replace(self, old, new, count), USER)
        return Traced(new, origin_of(new)).join(self.split(old, count))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._trace_split_parts(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._trace_split_parts(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        whole = self._trace_split_parts(str.splitlines(self, True), "")
        lines = zip(whole, str.splitlines(self, keepends), strict=True)
        return [line[: len(kept)] for line, kept in lines]

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, tail = self._trace_split_parts(str.partition(self, sep), "")
        return head, middle, tail

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, tail = self._trace_split_parts(str.rpartition(self, sep), "")
        return head, middle, tail

    def strip(self, chars: str | None = None, /) -> str:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> str:
        return self._slice_traced(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        return self._slice_traced(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return self._slice_traced(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return self._slice_traced(0, len(str.removesuffix(self, suffix)))

    def upper(self) -> str:
        return self._trace_recased(str.upper(self))

    def lower(self) -> str:
        return self._trace_recased(str.lower(self))

    def capitalize(self) -> str:
        return self._trace_recased(str.capitalize(self))

    def title(self) -> str:
        return self._trace_recased(str.title(self))

    def _slice_traced(self, start: int, stop: int) -> Traced:
        return Traced(str.__getitem__(self, slice(start, stop)), self._origin_bytes[start:stop])

    def _trace_split_parts(self, parts: Iterable[str], separator: str | None) -> list[str]:
        found: list[str] = []
        at = 0
        for part in parts:
            start = at if separator is not None else self.find(part, at)
            found.append(self._slice_traced(start, start + len(part)))
            at = start + len(part) + (len(separator) if separator is not None else 0)
        return found

    def _trace_recased(self, recased: str) -> str:
        # No character ever becomes none, so texts of equal length correspond one for one.
        kinds = set(self._origin_bytes)
        uniform = kinds.pop() if len(kinds) == 1 else USER
        return Traced(recased, self._origin_bytes if len(recased) == len(self) else uniform)


def authored(text: str) -> Traced:
    """Return the text marked as written by this program or the template's author."""
    return Traced(text, AUTHOR)


def origin_of(text: str) -> bytes:
    """Return the origin of each character, one byte each; a plain string is all a user's."""
    return text._origin_bytes if isinstance(text, Traced) else b"\x01" * len(text)


def joined(parts: Iterable[object]) -> Traced:
    texts = [part if isinstance(part, str) else str(part) for part in parts]
    return Traced("".join(texts), b"".join(map(origin_of, texts)))


def user_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the spans of characters that a user wrote: half-open, in order, not touching."""
    return tuple(match.span() for match in _RUN.finditer(origin_of(text)))


def final_end(text: str) -> int | None:
    """Return the end of the last character marked :data:`FINAL`, or ``None`` without one."""
    end = origin_of(text).rfind(FINAL)
    return None if end < 0 else end + 1


def _format_percent_pieces(pattern: Traced, values: object) -> Iterator[str]:
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


# A model that reads its own earlier call must see the characters that it wrote, or the prompt cache
# is lost. So a parsed object keeps its text, which :func:`write_json` writes again.

_MAX_DEPTH = 64
_PLACE = re.compile(r'"([0-9a-f]{16}\.[0-9]+)"')


class Verbatim:
    """A parsed JSON value that keeps the text it was read from, and prints as that."""

    __slots__ = ()
    source: str

    def __str__(self) -> str:
        return self.source


class JsonDict(dict[str, object], Verbatim):
    __slots__ = ("source",)

    def __init__(self, items: Mapping[str, object], source: str) -> None:
        super().__init__(items)
        self.source = source


class JsonList(list[object], Verbatim):
    __slots__ = ("source",)

    def __init__(self, items: list[object], source: str) -> None:
        super().__init__(items)
        self.source = source


class JsonNumber(float, Verbatim):
    """A number that prints as it was written: ``1.0``, ``1e5``, ``-0``."""

    __slots__ = ("source",)

    def __new__(cls, source: str) -> JsonNumber:
        self = super().__new__(cls, source)
        self.source = source
        return self

    __repr__ = Verbatim.__str__


def read_arguments(text: str) -> JsonDict:
    """Return the arguments as an object that a template can print or walk through.

    Text that is no JSON object never fails: it prints as it is, and a template
    that walks through the object finds it whole under ``arguments``.
    """
    text = str.__str__(text)  # the decoder takes no other kind of string
    if not text.strip():
        return JsonDict({}, "{}")
    try:
        value = _parse_json(text, 0)
    except (msgspec.DecodeError, RecursionError, ValueError):
        value = None
    if isinstance(value, JsonDict):
        return value
    return JsonDict({"arguments": Traced(text)}, text)


def write_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> Traced:
    """Return JSON as chat templates expect it: no HTML escapes, parsed text verbatim.

    It is ``tojson`` of Hugging Face templates, whose arguments come in this order. Raises
    :class:`TypeError` for what JSON cannot say.
    """
    if isinstance(value, Verbatim):
        return Traced(value.source, USER)
    kept: dict[str, str] = {}
    bare = _mark_verbatim_values(value, kept, secrets.token_hex(8))
    text = json.dumps(
        bare, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return Traced(_PLACE.sub(lambda found: kept.get(found[1], found[0]), text), USER)


def _mark_verbatim_values(value: object, sources: dict[str, str], mark_prefix: str) -> object:
    if isinstance(value, Verbatim):
        place = f"{mark_prefix}.{len(sources)}"
        sources[place] = value.source
        return place
    if isinstance(value, Mapping):
        return {key: _mark_verbatim_values(it, sources, mark_prefix) for key, it in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [_mark_verbatim_values(item, sources, mark_prefix) for item in value]
    return value


def _parse_json(text: str, level: int) -> object:
    if level > _MAX_DEPTH:
        raise ValueError(f"arguments nested deeper than {_MAX_DEPTH}")
    text = text.strip()
    match text[:1]:
        case "{":
            members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            return JsonDict(
                {key: _parse_json(_source_of(raw), level + 1) for key, raw in members.items()}, text
            )
        case "[":
            items = msgspec.json.decode(text, type=list[msgspec.Raw])
            return JsonList([_parse_json(_source_of(raw), level + 1) for raw in items], text)
    value: object = msgspec.json.decode(text)
    if isinstance(value, str):
        return Traced(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and str(value) != text:
        return JsonNumber(text)
    return JsonNumber(text) if isinstance(value, float) else value


def _source_of(raw_json: msgspec.Raw) -> str:
    return bytes(raw_json).decode()
