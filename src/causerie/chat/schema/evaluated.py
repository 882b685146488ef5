"""Properties and items of a valid document that the keywords of a schema speak of.

``unevaluatedProperties`` and ``unevaluatedItems`` hold for all others. Reads rewritten schemas
(:mod:`causerie.chat.schema.normal`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, object]

_NAMES_A_STEP = 50


@dataclass(frozen=True, slots=True)
class Evaluated:
    """``definition`` finds what a reference names, ``holds`` checks a value by a schema at a
    place, ``matches`` a name by a pattern, and ``spend`` takes steps of work."""

    definition: Callable[[str], object]
    holds: Callable[[object, object, str], bool]
    matches: Callable[[str, str], bool]
    spend: Callable[[int], None]

    def properties(self, value: Mapping[str, object], schema: Schema) -> set[str]:
        """Return the names that are spoken of alongside ``unevaluatedProperties``."""
        self.spend(1 + len(value) // _NAMES_A_STEP)
        known: set[str] = set()
        named, patterns = schema.get("properties"), schema.get("patternProperties")
        if isinstance(named, Mapping):
            known.update(named.keys() & value.keys())
        for pattern in patterns if isinstance(patterns, Mapping) else ():
            known.update(name for name in value if self.matches(name, pattern))
        if "additionalProperties" in schema:
            known.update(value)
        for part in self._parts(value, schema):
            inner = "unevaluatedProperties" in part
            known.update(value if inner else self.properties(value, part))
        return known

    def items(self, value: Sequence[object], schema: Schema) -> set[int]:
        """Return the positions that are spoken of alongside ``unevaluatedItems``."""
        self.spend(1 + len(value) // _NAMES_A_STEP)
        known = set(range(min(len(_list(schema.get("prefixItems"))), len(value))))
        if "items" in schema:
            known.update(range(len(value)))
        if "contains" in schema:
            found = schema["contains"]
            known.update(at for at, item in enumerate(value) if self.holds(item, found, "#"))
        for part in self._parts(value, schema):
            inner = "unevaluatedItems" in part
            known.update(range(len(value)) if inner else self.items(value, part))
        return known

    def _parts(self, value: object, schema: Schema) -> Iterator[Schema]:
        """Yield the schemas that hold for the same value."""
        parts = _list(schema.get("allOf"))
        if "$ref" in schema:
            parts = [*parts, self.definition(str(schema["$ref"]))]
        options = [*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]
        parts = [*parts, *(each for each in options if self.holds(value, each, "#"))]
        if "if" in schema:
            holds = self.holds(value, schema["if"], "#")
            branch = schema.get("then" if holds else "else")
            parts = [*parts, *([schema["if"]] if holds else []), branch]
        yield from (part for part in parts if isinstance(part, Mapping))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
