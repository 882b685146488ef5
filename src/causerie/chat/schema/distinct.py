"""Places in a document where a rewritten schema demands that the items of an array differ.

Knows the keywords of rewritten schemas (:mod:`causerie.chat.schema.normal`) and nothing of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_ALTERNATIVES = ("allOf", "anyOf", "oneOf")
_BRANCHES = ("then", "else")


@dataclass(frozen=True, slots=True)
class Applicable:
    """All subschemas that may apply to one value of a document.

    Of alternatives all are among them, and of patterns too: rather an array is held to
    differing items without need than one that has to keep to it is not.
    """

    schemas: tuple[Mapping[str, object], ...]
    definitions: Mapping[str, object]

    @property
    def distinct(self) -> bool:
        """Return true if the items of an array have to differ."""
        return any(schema.get("uniqueItems") is True for schema in self.schemas)

    def item(self, index: int) -> Applicable:
        """Return what applies to an item."""
        found: list[object] = []
        for schema in self.schemas:
            first = schema.get("prefixItems")
            if isinstance(first, list) and index < len(first):
                found.append(first[index])
            else:
                found += [schema.get("items"), schema.get("unevaluatedItems")]
        return _applicable(found, self.definitions)

    def property(self, name: str) -> Applicable:
        """Return what applies to the value of a property."""
        found: list[object] = []
        for schema in self.schemas:
            named, patterns = schema.get("properties"), schema.get("patternProperties")
            if isinstance(patterns, Mapping):
                found += patterns.values()
            if isinstance(named, Mapping) and name in named:
                found.append(named[name])
            else:
                found += [schema.get("additionalProperties"), schema.get("unevaluatedProperties")]
        return _applicable(found, self.definitions)


def applicable(rules: Mapping[str, object]) -> Applicable:
    """Return what applies to a whole document."""
    definitions = rules.get("$defs")
    return _applicable([rules], definitions if isinstance(definitions, Mapping) else {})


def _applicable(found: Iterable[object], definitions: Mapping[str, object]) -> Applicable:
    """Return the schemas among ``found``, with all that they apply in the same place."""
    known: dict[int, Mapping[str, object]] = {}
    waiting = list(found)
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, Mapping) and id(schema) not in known:
            known[id(schema)] = schema
            waiting += _in_place(schema, definitions)
    return Applicable(tuple(known.values()), definitions)


def _in_place(schema: Mapping[str, object], definitions: Mapping[str, object]) -> Iterator[object]:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield definitions.get(reference.removeprefix("#/$defs/"))
    for keyword in _ALTERNATIVES:
        options = schema.get(keyword)
        yield from options if isinstance(options, list) else ()
    yield from (schema.get(keyword) for keyword in _BRANCHES)
    dependent = schema.get("dependentSchemas")
    yield from dependent.values() if isinstance(dependent, Mapping) else ()
