"""Subschemas with an address or a name of their own: ``$id``, ``$anchor``, ``$dynamicAnchor``.

Knows where addresses and references stand; knows no other keyword.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urljoin

from causerie.chat.schema.keywords import is_applied
from causerie.chat.schema.refusal import step
from causerie.chat.schema.values import MAX_DEPTH
from causerie.protocol.numbers import whole_number

DATA = frozenset({"const", "enum", "default", "example", "examples"})
DEFINITIONS = frozenset({"$defs", "definitions"})
BY_NAME = DEFINITIONS | {"properties", "patternProperties", "dependentSchemas", "dependencies"}
ANCHORS = ("$anchor", "$dynamicAnchor")
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Subschemas stand at every second level at least; what is deeper than they may be is not read.
DEEPEST = 2 * MAX_DEPTH + 2


@dataclass(frozen=True, slots=True)
class _Path:
    """From the whole schema to a part; written out only where it is wanted, as keys may be long."""

    above: _Path | None
    key: str | int
    depth: int


@dataclass(frozen=True, slots=True)
class _Position:
    """Position of the search for addresses; ``known`` if only known keywords lead there."""

    path: _Path | None
    base: str
    known: bool


@dataclass(slots=True)
class Addresses:
    """Place of each address in a schema; ``torn`` are those that several different schemas have."""

    whole: Mapping[str, object]
    torn: set[str] = field(default_factory=set)
    dynamic: dict[str, set[str]] = field(default_factory=dict)
    """The documents with a dynamic anchor, by its name; that of ``$recursiveAnchor`` is empty."""
    documents: set[str] = field(default_factory=set)
    """The documents that references name."""
    _places: dict[str, _Path | None] = field(default_factory=dict)
    _parts: dict[str, object] = field(default_factory=dict)
    _noted: list[tuple[str, object, _Position]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._find(self.whole, _Position(None, "", known=True))
        # What stands below an unknown keyword is a schema only where no other has its address.
        certain = {address for address, _, at in self._noted if at.known}
        for address, schema, at in self._noted:
            if at.known or address not in certain:
                self._places.setdefault(address, at.path)
                if self._parts.setdefault(address, schema) != schema:
                    self.torn.add(address)

    def __contains__(self, address: str) -> bool:
        return address in self._places

    @property
    def plain(self) -> bool:
        """Return whether references are places already."""
        return not self._places and not self.dynamic

    def place(self, reference: str) -> str | None:
        """Return the place that an absolute reference names, if it is in the schema."""
        if reference in self.torn:
            return None
        if reference in self._places:
            return _pointer(self._places[reference])
        address, _, fragment = reference.partition("#")
        if address and (address not in self._places or address in self.torn):
            return None
        start = _pointer(self._places.get(address))
        if not fragment:
            return start
        place = f"{start}{fragment}" if fragment.startswith("/") else None
        if place is not None and address and self.part(place) is None:
            return f"#{fragment}"  # as older tools write it: from the whole schema on
        return place

    def part(self, place: str) -> object:
        """Return the part of the schema at a place, or ``None``."""
        *_, (part, _) = self._steps(place)
        return part

    def base(self, place: str) -> str:
        """Return the address of the document that a place is in."""
        *_, (_, base) = self._steps(place)
        return base

    def _steps(self, place: str) -> Iterator[tuple[object, str]]:
        """Yield the parts on the way to a place, each with its base address."""
        found: object = self.whole
        base = _base_of(found, "")
        yield found, base
        for part in place.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                index = whole_number(key)
                found = found[index] if index is not None and index < len(found) else None
            else:
                found = found.get(key) if isinstance(found, Mapping) else None
            base = _base_of(found, base)
            yield found, base

    def _find(self, value: object, at: _Position, *, by_name: bool = False) -> None:
        """Take down all addresses in a part; the keys of a part ``by_name`` are no keywords."""
        depth = at.path.depth if at.path else 0
        if depth > DEEPEST:
            return
        base = at.base
        if isinstance(value, Mapping) and not by_name:
            base = self._note(value, at)
        for key, of in _inside(value):
            if by_name or key not in DATA:
                known = at.known and (by_name or isinstance(key, int) or is_applied(key))
                below = _Position(_Path(at.path, key, depth + 1), base, known)
                self._find(of, below, by_name=not by_name and key in BY_NAME)

    def _note(self, schema: Mapping[str, object], at: _Position) -> str:
        """Take down the addresses of one schema; returns the address that its parts go by."""
        base = at.base
        name = schema.get("$id")
        if isinstance(name, str) and name.strip("#"):
            self._noted.append((joined(base, name), schema, at))
            base = _base_of(schema, base)
        for key in ANCHORS:
            anchor = schema.get(key)
            if isinstance(anchor, str):
                self._noted.append((f"{base}#{anchor}", schema, at))
        anchor = schema.get("$dynamicAnchor")
        if isinstance(anchor, str):
            self.dynamic.setdefault(anchor, set()).add(base)
        if schema.get("$recursiveAnchor") is True:
            self.dynamic.setdefault("", set()).add(base)
        for key in REFERENCES:
            reference = schema.get(key)
            if isinstance(reference, str):
                self.documents.add(joined(base, reference).partition("#")[0])
                if key != "$ref":
                    self.dynamic.setdefault(reference.rpartition("#")[2], set())
        return base


def joined(base: str, reference: str) -> str:
    """Return an absolute address; one without a scheme stays a plain name."""
    if reference.startswith("#"):
        address = base.partition("#")[0] + reference
    else:
        address = urljoin(base, reference)
    return address.removesuffix("#")


def _base_of(part: object, base: str) -> str:
    """Return the address of a part's document; ``base`` is that of the document around it."""
    name = part.get("$id") if isinstance(part, Mapping) else None
    if not isinstance(name, str) or name.startswith("#"):
        return base
    return joined(base, name)


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
