"""Subschemas with an address or a name of their own: ``$id``, ``$anchor``, ``$dynamicAnchor``.

References to them become references to their places in the whole schema. Knows where
addresses and references stand; knows no other keyword.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urljoin

from causerie.chat.schema.refusal import step
from causerie.chat.schema.values import MAX_DEPTH

_DATA = frozenset({"const", "enum", "default", "example", "examples"})
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions",
                      "dependentSchemas", "dependencies"})  # fmt: skip
_ANCHORS = ("$anchor", "$dynamicAnchor")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_KEYS = frozenset({"$id", *_ANCHORS, *_REFERENCES})
# Subschemas stand at every second level at least; what is deeper than they may be is not read.
_DEEPEST = 2 * MAX_DEPTH + 2


def placed(schema: Mapping[str, object]) -> Mapping[str, object]:
    """Return the same schema, in which references name places (``#/$defs/name``).

    References to what is not in the schema stay as they are, and so does a ``$dynamicRef``
    that several schemas could answer.
    """
    found = _Addresses()
    found.find(schema, None, "")
    if not found.places and not found.dynamic:
        return schema
    moved = _Move(schema, found).of(schema, "")
    assert isinstance(moved, Mapping)
    return moved


@dataclass(frozen=True, slots=True)
class _Path:
    """From the whole schema to a part; written out only where it is wanted, as keys may be long."""

    above: _Path | None
    key: str | int
    depth: int


@dataclass(frozen=True, slots=True)
class _Addresses:
    """Place of each address; ``torn`` are those that several different schemas have."""

    places: dict[str, _Path | None] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)
    dynamic: dict[str, int] = field(default_factory=dict)
    """How many schemas a dynamic reference may lead to, by its name."""
    _parts: dict[str, object] = field(default_factory=dict)

    def find(self, value: object, path: _Path | None, base: str, *, by_name: bool = False) -> None:
        """Take down all addresses in a part; the keys of a part ``by_name`` are no keywords."""
        depth = path.depth if path else 0
        if depth > _DEEPEST:
            return
        if isinstance(value, Mapping) and not by_name:
            base = self._note(value, path, base)
        for key, of in _inside(value):
            if by_name or key not in _DATA:
                below = _Path(path, key, depth + 1)
                self.find(of, below, base, by_name=not by_name and key in _BY_NAME)

    def _note(self, schema: Mapping[str, object], path: _Path | None, base: str) -> str:
        """Take down the addresses of one schema; returns the address that its parts go by."""
        name = schema.get("$id")
        if isinstance(name, str) and name.strip("#"):
            address = _joined(base, name)
            self._add(address, schema, path)
            base = base if name.startswith("#") else address
        for key in _ANCHORS:
            anchor = schema.get(key)
            if isinstance(anchor, str):
                self._add(f"{base}#{anchor}", schema, path)
        anchor = schema.get("$dynamicAnchor")
        if isinstance(anchor, str):
            self.dynamic[anchor] = self.dynamic.get(anchor, 0) + 1
        if schema.get("$recursiveAnchor") is True:
            self.dynamic[""] = self.dynamic.get("", 0) + 1
        for key in _REFERENCES[1:]:
            if isinstance(schema.get(key), str):
                self.dynamic.setdefault(str(schema[key]).rpartition("#")[2], 0)
        return base

    def _add(self, address: str, schema: object, path: _Path | None) -> None:
        self.places.setdefault(address, path)
        if self._parts.setdefault(address, schema) != schema:
            self.torn.add(address)


@dataclass(frozen=True, slots=True)
class _Move:
    """Moves the references of one schema to places."""

    whole: Mapping[str, object]
    found: _Addresses

    def of(self, value: object, base: str, depth: int = 0, *, by_name: bool = False) -> object:
        if depth > _DEEPEST:
            return value
        if isinstance(value, list):
            return [self.of(item, base, depth + 1) for item in value]
        if not isinstance(value, Mapping):
            return value
        named = None if by_name else value.get("$id")
        address = _joined(base, named) if isinstance(named, str) else base
        inner = base if isinstance(named, str) and named.startswith("#") else address
        out: dict[str, object] = {}
        for key, of in value.items():
            if not by_name and key in _DATA:
                out[key] = of
            elif not by_name and key in _KEYS and isinstance(of, str):
                out |= self._keyword(key, of, inner, address)
            else:
                known = not by_name and key in _BY_NAME
                out[key] = self.of(of, inner, depth + 1, by_name=known)
        return out

    def _keyword(self, key: str, value: str, base: str, address: str) -> dict[str, object]:
        if key == "$id":
            return {key: value} if address in self.found.torn else {}
        if key in _ANCHORS:
            return {}
        if key != "$ref" and self.found.dynamic.get(value.rpartition("#")[2], 0) > 1:
            return {key: value}
        place = self._place(_joined(base, value))
        return (
            {"$ref": value if place is None else place} if key == "$ref" or place else {key: value}
        )

    def _place(self, reference: str) -> str | None:
        """Return the place that a reference names, if it is in the schema."""
        if reference in self.found.torn:
            return None
        if reference in self.found.places:
            return _pointer(self.found.places[reference])
        address, _, fragment = reference.partition("#")
        if address and (address not in self.found.places or address in self.found.torn):
            return None
        start = _pointer(self.found.places.get(address))
        if not fragment:
            return start
        place = f"{start}{fragment}" if fragment.startswith("/") else None
        if place is not None and address and not self._holds(place):
            return f"#{fragment}"  # as older tools write it: from the whole schema on
        return place

    def _holds(self, place: str) -> bool:
        found: object = self.whole
        for part in place.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(key)] if key.isdecimal() and int(key) < len(found) else None
            elif isinstance(found, Mapping) and key in found:
                found = found[key]
            else:
                return False
        return found is not None


def _joined(base: str, reference: str) -> str:
    """Return an absolute address; one without a scheme stays a plain name."""
    if reference.startswith("#"):
        joined = base.partition("#")[0] + reference
    else:
        joined = urljoin(base, reference)
    return joined.removesuffix("#")


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
