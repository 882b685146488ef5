"""Finds the subschemas that apply to each value of a document, surely or possibly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from causerie.chat.schema.keywords import Schema, as_list, as_mapping

CHECKED = "x-checked"
"""Mark of a rewritten schema with a keyword of which the grammar admits more than it does."""

_CERTAIN = frozenset({"items", "prefixItems", "properties", "$ref", "allOf"})


@dataclass(slots=True)
class _Document:
    definitions: Schema
    certain: bool
    _checked: dict[int, bool] = field(default_factory=dict)  # by identity

    def closed(self, found: Iterable[object]) -> AppliedSchemas:
        known: dict[int, Schema] = {}
        waiting = list(found)
        while waiting:
            schema = waiting.pop()
            if isinstance(schema, Mapping) and id(schema) not in known:
                known[id(schema)] = schema
                waiting += [*as_list(schema.get("allOf")), *self._get_ref_target_as_list(schema)]
                if not self.certain:
                    waiting += [*as_list(schema.get("anyOf")), *as_list(schema.get("oneOf"))]
                    waiting += as_mapping(schema.get("dependentSchemas")).values()
                    waiting += [schema.get("then"), schema.get("else")]
        return AppliedSchemas(tuple(known.values()), self)

    def _get_ref_target_as_list(self, schema: Schema) -> list[object]:
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return []
        return [self.definitions.get(reference.removeprefix("#/$defs/"))]

    def checked(self, schema: Schema) -> bool:
        """Return whether the schema, or a part that perhaps applies, is marked for the check."""
        if id(schema) not in self._checked:
            other = {"additionalProperties"} if "patternProperties" not in schema else set[str]()
            open_parts = [of for key, of in schema.items() if key not in _CERTAIN | other]
            self._checked[id(schema)] = CHECKED in schema or self._contains_checked_mark(open_parts)
        return self._checked[id(schema)]

    def _contains_checked_mark(self, parts: list[object]) -> bool:
        seen = set[int]()
        while parts:
            part = parts.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            if isinstance(part, list):
                parts += part
            elif isinstance(part, Mapping):
                if CHECKED in part:
                    return True
                parts += [*part.values(), *self._get_ref_target_as_list(part)]
        return False


@dataclass(frozen=True, slots=True)
class AppliedSchemas:
    """All subschemas that surely apply to one value of a document, or all that may.

    Those that may include all alternatives and patterns: some arrays are checked needlessly.
    """

    schemas: tuple[Schema, ...]
    _document: _Document

    @property
    def checked(self) -> tuple[Schema, ...]:
        """Return the subschemas by which the finished value is checked, each with definitions."""
        document = self._document
        defined = {"$defs": document.definitions}
        return tuple({**each, **defined} for each in self.schemas if document.checked(each))

    @property
    def distinct(self) -> bool:
        return any(schema.get("uniqueItems") is True for schema in self.schemas)

    def item(self, index: int) -> AppliedSchemas:
        found: list[object] = []
        for schema in self.schemas:
            first = as_list(schema.get("prefixItems"))
            if index < len(first):
                found.append(first[index])
            else:
                found += self._schemas_of_rest(schema, "items", "unevaluatedItems")
        return self._document.closed(found)

    def property(self, name: str) -> AppliedSchemas:
        found: list[object] = []
        for schema in self.schemas:
            named, patterns = as_mapping(schema.get("properties")), schema.get("patternProperties")
            if not self._document.certain:
                found += as_mapping(patterns).values()
            if name in named:
                found.append(named[name])
            elif patterns is None or not self._document.certain:
                found += self._schemas_of_rest(
                    schema, "additionalProperties", "unevaluatedProperties"
                )
        return self._document.closed(found)

    def _schemas_of_rest(self, schema: Schema, certain_key: str, possible_key: str) -> list[object]:
        keys = (certain_key,) if self._document.certain else (certain_key, possible_key)
        return [schema.get(key) for key in keys]


def applied_schemas(rules: Schema, *, certain: bool) -> AppliedSchemas:
    """Return the subschemas that apply to a whole document: surely if ``certain``, else perhaps."""
    top = {key: of for key, of in rules.items() if key != "$defs"}
    return _Document(as_mapping(rules.get("$defs")), certain).closed([top])
