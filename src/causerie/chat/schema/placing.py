"""References to addresses and names, turned into references to places in the whole schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from causerie.chat.schema.addresses import (
    ANCHORS,
    BY_NAME,
    DATA,
    DEEPEST,
    REFERENCES,
    Addresses,
    joined,
)
from causerie.chat.schema.dynamic_scope import DynamicScope
from causerie.chat.schema.meta_schemas import with_meta_schemas
from causerie.chat.schema.siblings import without_siblings

_KEYS = frozenset({"$id", *ANCHORS, *REFERENCES})


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
    if any(len(documents) > 1 for documents in found.dynamic.values()):
        unrolled = DynamicScope(found).unrolled()
        if unrolled is not None:
            return unrolled
    moved = _Move(found).of(found.whole, "")
    assert isinstance(moved, Mapping)
    return moved


@dataclass(frozen=True, slots=True)
class _Move:
    """Moves the references of one schema to places."""

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
        several = len(self.found.dynamic.get(value.rpartition("#")[2], ())) > 1
        place = None if key != "$ref" and several else self.found.place(joined(base, value))
        if place is None:
            return {key: value}
        return {"$ref": place}
