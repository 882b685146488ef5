"""Subschemas of a rewritten schema that surely apply to a value, and what only a check decides.

Knows the keywords of rewritten schemas (:mod:`causerie.chat.schema.normal`) and nothing of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

CHECKED = "x-checked"
"""Mark of a rewritten schema with a keyword of which the grammar admits more than it does."""

_IN_PLACE = frozenset({"$ref", "allOf"})
_PREFIX = "#/$defs/"

Schema = Mapping[str, object]


@dataclass(slots=True)
class CheckedRules:
    """The schema of a whole document."""

    definitions: Schema
    _known: dict[int, bool] = field(default_factory=dict)  # by identity

    def checked(self, schema: Schema) -> bool:
        """Return whether more than the parts that surely apply has to be checked."""
        if id(schema) not in self._known:
            certain = {"items", "prefixItems", "properties", *_IN_PLACE}
            if "patternProperties" not in schema:
                certain.add("additionalProperties")
            open_parts = [of for key, of in schema.items() if key not in certain]
            self._known[id(schema)] = CHECKED in schema or self._marked(open_parts)
        return self._known[id(schema)]

    def _marked(self, parts: Iterable[object]) -> bool:
        """Return whether something in these parts is marked, or in what they refer to."""
        waiting, seen = list(parts), set[int]()
        while waiting:
            part = waiting.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            if isinstance(part, list):
                waiting += part
            elif isinstance(part, Mapping):
                if CHECKED in part:
                    return True
                waiting += part.values()
                waiting += self.target(part)
        return False

    def target(self, schema: Schema) -> Iterator[object]:
        """Yield what a schema refers to."""
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield self.definitions.get(reference.removeprefix(_PREFIX))


@dataclass(frozen=True, slots=True)
class Certain:
    """All subschemas that surely apply to one value of a document."""

    schemas: tuple[Schema, ...]
    rules: CheckedRules

    @property
    def checked(self) -> tuple[Schema, ...]:
        """Those by which the finished value has to be checked, as documents of their own."""
        defined = {"$defs": self.rules.definitions}
        return tuple({**each, **defined} for each in self.schemas if self.rules.checked(each))

    def item(self, index: int) -> Certain:
        """Return what applies to an item."""
        found: list[object] = []
        for schema in self.schemas:
            first = schema.get("prefixItems")
            listed = isinstance(first, list) and index < len(first)
            found.append(
                first[index] if isinstance(first, list) and listed else schema.get("items")
            )
        return _certain(found, self.rules)

    def property(self, name: str) -> Certain:
        """Return what applies to the value of a property."""
        found: list[object] = []
        for schema in self.schemas:
            named = schema.get("properties")
            if isinstance(named, Mapping) and name in named:
                found.append(named[name])
            elif "patternProperties" not in schema:
                found.append(schema.get("additionalProperties"))
        return _certain(found, self.rules)


def certain(rules: Schema) -> Certain:
    """Return what applies to a whole document."""
    definitions = rules.get("$defs")
    top = {key: of for key, of in rules.items() if key != "$defs"}
    known = CheckedRules(definitions if isinstance(definitions, Mapping) else {})
    return _certain([top], known)


def _certain(found: Iterable[object], rules: CheckedRules) -> Certain:
    """Return the schemas among ``found``, with all that surely apply in the same place."""
    known: dict[int, Schema] = {}
    waiting = list(found)
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, Mapping) and id(schema) not in known:
            known[id(schema)] = schema
            parts = schema.get("allOf")
            waiting += parts if isinstance(parts, list) else []
            waiting += rules.target(schema)
    return Certain(tuple(known.values()), rules)
