"""Arguments of earlier calls as a template reads them, and JSON as it writes them.

A model that reads its own earlier call must see the characters it wrote, or
the prompt cache is lost and the model drifts. So an object that was parsed
keeps the text that it was parsed from, and :func:`write_json` writes that text
again.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping

import msgspec

from causerie.chat.taint import Traced

_MAX_DEPTH = 64
_PLACE = re.compile(r'"([0-9a-f]{16}\.[0-9]+)"')


class Verbatim:
    """Something parsed that knows the JSON text that it came from, and prints as that."""

    __slots__ = ()
    source: str

    def __str__(self) -> str:
        return self.source


class JsonDict(dict[str, object], Verbatim):
    """A JSON object with its text."""

    __slots__ = ("source",)

    def __init__(self, items: Mapping[str, object], source: str) -> None:
        super().__init__(items)
        self.source = source


class JsonList(list[object], Verbatim):
    """A JSON array with its text."""

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
        value = _read(text, 0)
    except (msgspec.DecodeError, RecursionError, ValueError):
        value = None
    if isinstance(value, JsonDict):
        return value
    return JsonDict({"arguments": Traced(text)}, text)


def write_json(
    value: object,
    *,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON as chat templates expect it: no HTML escapes, parsed text verbatim.

    Raises :class:`TypeError` for what JSON cannot say.
    """
    if isinstance(value, Verbatim):
        return value.source
    kept: dict[str, str] = {}
    bare = _set_aside(value, kept, secrets.token_hex(8))
    text = json.dumps(
        bare, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return _PLACE.sub(lambda found: kept.get(found[1], found[0]), text) if kept else text


def _set_aside(value: object, kept: dict[str, str], secret: str) -> object:
    """Replace parsed text in the value by unguessable place holders."""
    if isinstance(value, Verbatim):
        place = f"{secret}.{len(kept)}"
        kept[place] = value.source
        return place
    if isinstance(value, Mapping):
        return {key: _set_aside(item, kept, secret) for key, item in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [_set_aside(item, kept, secret) for item in value]
    return value


def _read(text: str, depth: int) -> object:
    """Return one JSON value; objects, arrays and fractions keep their text."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"arguments nested deeper than {_MAX_DEPTH}")
    text = text.strip()
    match text[:1]:
        case "{":
            members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            return JsonDict(
                {key: _read(_text(raw), depth + 1) for key, raw in members.items()}, text
            )
        case "[":
            items = msgspec.json.decode(text, type=list[msgspec.Raw])
            return JsonList([_read(_text(raw), depth + 1) for raw in items], text)
    value: object = msgspec.json.decode(text)
    if isinstance(value, str):
        return Traced(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and str(value) != text:
        return JsonNumber(text)
    return JsonNumber(text) if isinstance(value, float) else value


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode()
