"""References of a schema to addresses and anchors, turned into references to places in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urljoin

from causerie.chat.schema.keywords import as_list, is_annotation, is_applied, part_at, step
from causerie.chat.schema.values import MAX_DEPTH

DATA = frozenset({"const", "enum", "default", "example", "examples"})
BY_NAME = frozenset({
    "$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies",
})  # fmt: skip
ANCHORS = ("$anchor", "$dynamicAnchor")
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
    path: _Path | None
    base: str
    known: bool


@dataclass(slots=True)
class Addresses:
    """Place of each address in a schema; ``torn`` are those that several different schemas have."""

    whole: Mapping[str, object]
    torn: set[str] = field(default_factory=set)
    documents: set[str] = field(default_factory=set)
    """The documents that references name."""
    _places: dict[str, _Path | None] = field(default_factory=dict)
    _parts: dict[str, object] = field(default_factory=dict)
    _noted: list[tuple[str, object, _Position]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._collect(self.whole, _Position(None, "", known=True))
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
        return not self._places

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
        try:
            return part_at(self.whole, place)
        except LookupError:
            return None

    def _collect(self, value: object, at: _Position, *, by_name: bool = False) -> None:
        depth = at.path.depth if at.path else 0
        if depth > DEEPEST:
            return
        base = at.base
        if isinstance(value, Mapping) and not by_name:
            base = self._collect_schema(value, at)
        items = value.items() if isinstance(value, Mapping) else enumerate(as_list(value))
        for key, of in items:
            if by_name or key not in DATA:
                known = at.known and (by_name or isinstance(key, int) or is_applied(key))
                below = _Position(_Path(at.path, key, depth + 1), base, known)
                self._collect(of, below, by_name=not by_name and key in BY_NAME)

    def _collect_schema(self, schema: Mapping[str, object], at: _Position) -> str:
        base = at.base
        name = schema.get("$id")
        if isinstance(name, str) and name.strip("#"):
            self._noted.append((joined(base, name), schema, at))
            base = base if name.startswith("#") else joined(base, name)
        for key in ANCHORS:
            anchor = schema.get(key)
            if isinstance(anchor, str):
                self._noted.append((f"{base}#{anchor}", schema, at))
        reference = schema.get("$ref")
        if isinstance(reference, str):
            self.documents.add(joined(base, reference).partition("#")[0])
        return base


def joined(base: str, reference: str) -> str:
    """Return an absolute address; one without a scheme stays a plain name."""
    if reference.startswith("#"):
        address = base.partition("#")[0] + reference
    else:
        address = urljoin(base, reference)
    return address.removesuffix("#")


def _pointer(path: _Path | None) -> str:
    keys: list[str | int] = []
    while path is not None:
        keys.append(path.key)
        path = path.above
    return step("#", *reversed(keys))


Documents = Mapping[str, Mapping[str, object]]
_HOST = "json-schema.org/"


def with_meta_schemas(found: Addresses) -> Addresses:
    """Return the addresses of the same schema with the meta-schemas that it refers to."""
    if not any(_HOST in name for name in found.documents):
        return found
    return with_documents(found, _meta_schemas())


def with_documents(found: Addresses, given: Documents) -> Addresses:
    """Return the same with those of some documents that it refers to, also by way of others."""
    while True:
        named = {name for name in found.documents if name in given and name not in found}
        definitions = found.whole.get("$defs", {})
        if not named or not isinstance(definitions, Mapping):
            return found
        held = {name: {**given[name], "$id": name} for name in sorted(named)}
        found = Addresses({**found.whole, "$defs": {**definitions, **held}})


@cache
def _meta_schemas() -> Documents:
    from jsonschema_specifications import REGISTRY  # noqa: PLC0415 - few schemas refer to one

    return {
        address: REGISTRY.contents(address) for address in REGISTRY if "draft-03" not in address
    }


_IGNORES = re.compile(r"https?://json-schema\.org/draft-0[3467]/(?:hyper-)?schema#?")
_KEPT = frozenset({"$ref", "$id"})


def without_siblings(schema: Mapping[str, object]) -> tuple[Mapping[str, object], list[str]]:
    """Return what a schema says by the draft that its ``$schema`` names, without that name, and the
    keywords that say nothing there. A schema of a later draft is returned as it is.
    """
    named = schema.get("$schema")
    if not isinstance(named, str) or not _IGNORES.fullmatch(named):
        return schema, []
    ignored: dict[str, None] = {}
    unnamed = {key: value for key, value in schema.items() if key != "$schema"}
    cut = _without_ignored(unnamed, ignored, 0, by_name=False)
    assert isinstance(cut, Mapping)
    return cut, [*ignored]


def _without_ignored(
    value: object, ignored: dict[str, None], depth: int, *, by_name: bool
) -> object:
    if depth > DEEPEST:
        return value
    if isinstance(value, list):
        return [_without_ignored(item, ignored, depth + 1, by_name=False) for item in value]
    if not isinstance(value, Mapping):
        return value
    refers = not by_name and isinstance(value.get("$ref"), str)
    out: dict[str, object] = {}
    for key, of in value.items():
        if refers and key not in _KEPT and not is_annotation(key):
            ignored[key] = None
        elif not by_name and key in DATA:
            out[key] = of
        else:
            out[key] = _without_ignored(
                of, ignored, depth + 1, by_name=not by_name and key in BY_NAME
            )
    return out


_KEYS = frozenset({"$id", "$ref", *ANCHORS})


def placed(schema: Mapping[str, object]) -> Mapping[str, object]:
    """Return the same schema, in which references name places (``#/$defs/name``), without rules
    next to a reference that its draft ignores.

    References to what is not in the schema stay as they are, unless it is a meta-schema of the
    standard.
    """
    schema, _ = without_siblings(schema)
    found = with_meta_schemas(Addresses(schema))
    if found.plain:
        return schema
    moved = _Move(found).of(found.whole, "")
    assert isinstance(moved, Mapping)
    return moved


@dataclass(frozen=True, slots=True)
class _Move:
    found: Addresses

    def of(self, value: object, base: str, depth: int = 0, *, by_name: bool = False) -> object:
        if depth > DEEPEST:
            return value
        if isinstance(value, list):
            return [self.of(item, base, depth + 1) for item in value]
        if not isinstance(value, Mapping):
            return value
        named = None if by_name else value.get("$id")
        address = joined(base, named) if isinstance(named, str) else base
        inner = base if isinstance(named, str) and named.startswith("#") else address
        out: dict[str, object] = {}
        for key, of in value.items():
            if not by_name and key in DATA:
                out[key] = of
            elif not by_name and key in _KEYS and isinstance(of, str):
                out |= self._keyword(key, of, inner, address)
            else:
                known = not by_name and key in BY_NAME
                out[key] = self.of(of, inner, depth + 1, by_name=known)
        return out

    def _keyword(self, key: str, value: str, base: str, address: str) -> dict[str, object]:
        if key == "$id":
            return {key: value} if address in self.found.torn else {}
        if key in ANCHORS:
            return {}
        place = self.found.place(joined(base, value))
        return {key: value if place is None else place}
