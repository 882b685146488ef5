"""Turns references of a schema to addresses and anchors into JSON Pointers to places in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from urllib.parse import urljoin

from causerie.chat.schema import keywords as words
from causerie.chat.schema.keywords import Schema, as_mapping, part_at, step
from causerie.chat.schema.values import MAX_DEPTH

DATA = frozenset({"const", "enum", "default", "example", "examples"})
BY_NAME = frozenset({
    "$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies",
})  # fmt: skip
ANCHORS = ("$anchor", "$dynamicAnchor")
# Subschemas stand at every second level at least; what is deeper than they may be is not read.
DEEPEST = 2 * MAX_DEPTH + 2


_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _Position:
    path: _Path = ()
    base: str = ""
    known: bool = True  # no unknown keyword stands above

    def below(self, key: str | int, *, known: bool = True) -> _Position:
        return _Position((*self.path, key), self.base, self.known and known)


_Visit = Callable[[Schema, _Position], tuple[Schema, str]]
"""Takes a schema; returns what stands in its place, and the base address inside it."""
_WHOLE = _Position()


def _map_schemas(value: object, visit: _Visit, position: _Position = _WHOLE) -> object:
    if len(position.path) > DEEPEST:
        return value
    if isinstance(value, list):
        return [
            _map_schemas(item, visit, position.below(index)) for index, item in enumerate(value)
        ]
    if not isinstance(value, Mapping):
        return value
    value, base = visit(value, position)
    position, out = replace(position, base=base), dict(value)
    for key, of in value.items():
        below = position.below(key, known=key in words.APPLIED)
        if key in BY_NAME and isinstance(of, Mapping):
            out[key] = {
                name: _map_schemas(each, visit, below.below(name)) for name, each in of.items()
            }
        elif key not in DATA:
            out[key] = _map_schemas(of, visit, below)
    return out


@dataclass(slots=True)
class Addresses:
    """Place of each address in a schema; ``torn`` addresses belong to several different schemas."""

    whole: Schema
    torn: set[str] = field(default_factory=set)
    documents: set[str] = field(default_factory=set)  # the documents that references name
    places: dict[str, _Path] = field(default_factory=dict)
    _schemas_by_address: dict[str, object] = field(default_factory=dict)
    _noted_addresses: list[tuple[str, object, _Position]] = field(default_factory=list)

    def __post_init__(self) -> None:
        _map_schemas(self.whole, self._note_addresses)
        # What stands below an unknown keyword is a schema only where no other has its address.
        certain = {address for address, _, at in self._noted_addresses if at.known}
        for address, schema, at in self._noted_addresses:
            if at.known or address not in certain:
                self.places.setdefault(address, at.path)
                if self._schemas_by_address.setdefault(address, schema) != schema:
                    self.torn.add(address)

    def place(self, reference: str) -> str | None:
        """Return the JSON Pointer of an absolute reference, or ``None`` if not in the schema."""
        if reference in self.torn:
            return None
        if reference in self.places:
            return step("#", *self.places[reference])
        address, _, fragment = reference.partition("#")
        if address and (address not in self.places or address in self.torn):
            return None
        start = step("#", *self.places.get(address, ()))
        if not fragment:
            return start
        place = f"{start}{fragment}" if fragment.startswith("/") else None
        if place is not None and address and self.part(place) is None:
            return f"#{fragment}"  # as older tools write it: from the whole schema on
        return place

    def part(self, place: str) -> object:
        try:
            return part_at(self.whole, place)
        except LookupError:
            return None

    def _note_addresses(self, schema: Schema, position: _Position) -> tuple[Schema, str]:
        base, name = position.base, schema.get("$id")
        if isinstance(name, str) and name.strip("#"):
            address = joined(base, name)
            self._noted_addresses.append((address, schema, position))
            base = base if name.startswith("#") else address
        for key in ANCHORS:
            anchor = schema.get(key)
            if isinstance(anchor, str):
                self._noted_addresses.append((f"{base}#{anchor}", schema, position))
        reference = schema.get("$ref")
        if isinstance(reference, str):
            self.documents.add(joined(base, reference).partition("#")[0])
        return schema, base


def joined(base: str, reference: str) -> str:
    """Return a reference resolved against a base address; one without a scheme stays a name."""
    if reference.startswith("#"):
        address = base.partition("#")[0] + reference
    else:
        address = urljoin(base, reference)
    return address.removesuffix("#")


Documents = Mapping[str, Schema]


def with_documents(found: Addresses, given: Documents) -> Addresses:
    """Return the addresses, with all ``given`` documents added that are referred to."""
    while True:
        named = {name for name in found.documents if name in given and name not in found.places}
        definitions = found.whole.get("$defs", {})
        if not named or not isinstance(definitions, Mapping):
            return found
        held = {name: {**given[name], "$id": name} for name in sorted(named)}
        found = Addresses({**found.whole, "$defs": {**definitions, **held}})


@cache
def _load_meta_schemas() -> Documents:
    from jsonschema_specifications import REGISTRY  # noqa: PLC0415 - few schemas refer to one

    return {name: REGISTRY.contents(name) for name in REGISTRY if "draft-03" not in name}


_IGNORES = re.compile(r"https?://json-schema\.org/draft-0[3467]/(?:hyper-)?schema#?")


def without_siblings(schema: Schema) -> tuple[Schema, list[str]]:
    """Return a schema without the keywords beside a ``$ref`` that its draft ignores, and these.

    ``$schema`` is removed then. A schema of a later draft is returned as it is.
    """
    named = schema.get("$schema")
    if not isinstance(named, str) or not _IGNORES.fullmatch(named):
        return schema, []
    ignored: dict[str, None] = {}

    def cut(schema: Schema, at: _Position) -> tuple[Schema, str]:
        if not isinstance(schema.get("$ref"), str):
            return schema, at.base
        named = ("$ref", "$id")
        kept = {key: of for key, of in schema.items() if key in named or words.is_annotation(key)}
        ignored.update((key, None) for key in schema if key not in kept)
        return kept, at.base

    unnamed = {key: value for key, value in schema.items() if key != "$schema"}
    return as_mapping(_map_schemas(unnamed, cut)), [*ignored]


def placed(schema: Schema) -> Schema:
    """Return a schema whose references name places (``#/$defs/name``), by the rules of its draft.

    References to what is not in it stay as they are, unless it is a meta-schema of the standard.
    """
    schema, _ = without_siblings(schema)
    found = Addresses(schema)
    if any("json-schema.org/" in name for name in found.documents):
        found = with_documents(found, _load_meta_schemas())
    if not found.places:
        return schema

    def moved(schema: Schema, at: _Position) -> tuple[Schema, str]:
        named = schema.get("$id")
        address = joined(at.base, named) if isinstance(named, str) else at.base
        inner = at.base if isinstance(named, str) and named.startswith("#") else address
        out: dict[str, object] = {}
        for key, of in schema.items():
            if key == "$ref" and isinstance(of, str):
                place = found.place(joined(inner, of))
                out[key] = of if place is None else place
            elif (key == "$id" and address in found.torn) or not (
                key in ("$id", *ANCHORS) and isinstance(of, str)
            ):
                out[key] = of
        return out, inner

    return as_mapping(_map_schemas(found.whole, moved))
