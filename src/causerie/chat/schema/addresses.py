"""Subschemas with a name of their own (``$id``), as recursive types of TypeBox have it.

Knows where names and references stand; knows no other keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from causerie.chat.schema.refusal import step
from causerie.chat.schema.values import MAX_DEPTH

_NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_DATA = frozenset({"const", "enum", "default", "example", "examples"})
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions"})
# Subschemas stand at every second level at least; what is deeper than they may be is not read.
_DEEPEST = 2 * MAX_DEPTH + 2


def placed(schema: Mapping[str, object]) -> Mapping[str, object]:
    """Return the same schema; references to a subschema's name become references to its place."""
    names = _Names()
    names.find(schema, None)
    places = {name: _pointer(path) for name, path in names.places.items() if name not in names.torn}
    moved = _moved(schema, places) if places else schema
    assert isinstance(moved, Mapping)
    return moved


@dataclass(frozen=True, slots=True)
class _Path:
    """From the whole schema to a part; written out only where it is wanted, as keys may be long."""

    above: _Path | None
    key: str | int
    depth: int


@dataclass(frozen=True, slots=True)
class _Names:
    """Place of each name; ``torn`` holds the names that several different schemas have."""

    places: dict[str, _Path | None] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)
    _parts: dict[str, object] = field(default_factory=dict)

    def find(self, value: object, path: _Path | None, *, by_name: bool = False) -> bool:
        """Take down all names in a part.

        Says whether references go from the whole schema on, which would be from the
        part on if it had a name. The keys of a part ``by_name`` are no keywords.
        """
        if (path.depth if path else 0) > _DEEPEST:
            return False
        rooted = False
        for key, of in _inside(value):
            if by_name or key not in _DATA:
                below = _Path(path, key, path.depth + 1 if path else 1)
                rooted |= self.find(of, below, by_name=not by_name and key in _BY_NAME)
        if by_name or not isinstance(value, Mapping):
            return rooted
        name, reference = value.get("$id"), value.get("$ref")
        rooted |= isinstance(reference, str) and reference.startswith("#")
        if isinstance(name, str) and _NAME.fullmatch(name) and (path is None or not rooted):
            self.places.setdefault(name, path)
            if self._parts.setdefault(name, value) != value:
                self.torn.add(name)
        return rooted


def _inside(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, list):
        yield from enumerate(value)
    elif isinstance(value, Mapping):
        yield from value.items()


def _pointer(path: _Path | None) -> str:
    keys: list[str | int] = []
    while path is not None:
        keys.append(path.key)
        path = path.above
    return step("#", *reversed(keys))


def _moved(
    value: object, places: Mapping[str, str], depth: int = 0, *, by_name: bool = False
) -> object:
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [_moved(item, places, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        return value
    out: dict[str, object] = {}
    for key, of in value.items():
        known = not by_name
        data = known and key in _DATA
        out[key] = of if data else _moved(of, places, depth + 1, by_name=known and key in _BY_NAME)
    if by_name:
        return out
    name, reference = value.get("$id"), value.get("$ref")
    if isinstance(name, str) and name in places:
        del out["$id"]
    if isinstance(reference, str) and reference in places:
        out["$ref"] = places[reference]
    return out
