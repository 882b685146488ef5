"""Subschemas with a name of their own (``$id``), as recursive types of TypeBox have it.

Knows where names and references stand; knows no other keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from causerie.chat.schema.refusal import step

_NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_DATA = frozenset({"const", "enum", "default", "example", "examples"})


def placed(schema: Mapping[str, object]) -> Mapping[str, object]:
    """The same schema; what refers to a subschema's name refers to its place instead."""
    places: dict[str, str] = {}
    named: dict[str, object] = {}
    for name, at, part in _named(schema, "#"):
        if named.setdefault(name, part) == part:
            places.setdefault(name, at)
        else:
            places[name] = ""  # which of them is meant?
    places = {name: at for name, at in places.items() if at}
    moved = _moved(schema, places) if places else schema
    assert isinstance(moved, Mapping)
    return moved


def _named(value: object, at: str) -> Iterator[tuple[str, str, object]]:
    """Names, where they stand, and what has them."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _named(item, step(at, index))
    if not isinstance(value, Mapping):
        return
    name = value.get("$id")
    if isinstance(name, str) and _NAME.fullmatch(name) and (at == "#" or not _is_rooted(value)):
        yield name, at, value
    for key, of in value.items():
        if key not in _DATA:
            yield from _named(of, step(at, key))


def _is_rooted(value: object) -> bool:
    """Whether a schema with a name has references from itself, not from the whole, on."""
    if isinstance(value, list):
        return any(map(_is_rooted, value))
    if not isinstance(value, Mapping):
        return False
    reference = value.get("$ref")
    return (isinstance(reference, str) and reference.startswith("#")) or any(
        map(_is_rooted, value.values())
    )


def _moved(value: object, places: Mapping[str, str]) -> object:
    if isinstance(value, list):
        return [_moved(item, places) for item in value]
    if not isinstance(value, Mapping):
        return value
    out = {key: of if key in _DATA else _moved(of, places) for key, of in value.items()}
    name, reference = value.get("$id"), value.get("$ref")
    if isinstance(name, str) and name in places:
        del out["$id"]
    if isinstance(reference, str) and reference in places:
        out["$ref"] = places[reference]
    return out
