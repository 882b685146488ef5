"""Find the subschemas that apply to a value, the items that must differ, and known properties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from causerie.chat.schema.keywords import as_list

CHECKED = "x-checked"
"""Mark of a rewritten schema with a keyword of which the grammar admits more than it does."""

_IN_PLACE = frozenset({"$ref", "allOf"})

Schema = Mapping[str, object]


def _target(schema: Schema, definitions: Schema) -> list[object]:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return []
    return [definitions.get(reference.removeprefix("#/$defs/"))]


def _with_all_in_place(
    found: Iterable[object], in_place: Callable[[Schema], Iterable[object]]
) -> tuple[Schema, ...]:
    known: dict[int, Schema] = {}
    waiting = list(found)
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, Mapping) and id(schema) not in known:
            known[id(schema)] = schema
            waiting += in_place(schema)
    return tuple(known.values())


@dataclass(slots=True)
class CheckedRules:
    """The schema of a whole document."""

    definitions: Schema
    _known: dict[int, bool] = field(default_factory=dict)  # by identity

    def checked(self, schema: Schema) -> bool:
        """Return whether a part that may not apply, or the schema, is marked to be checked."""
        if id(schema) not in self._known:
            certain = {"items", "prefixItems", "properties", *_IN_PLACE}
            if "patternProperties" not in schema:
                certain.add("additionalProperties")
            open_parts = [of for key, of in schema.items() if key not in certain]
            self._known[id(schema)] = CHECKED in schema or self._marked(open_parts)
        return self._known[id(schema)]

    def _marked(self, parts: Iterable[object]) -> bool:
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
                waiting += _target(part, self.definitions)
        return False


@dataclass(frozen=True, slots=True)
class Certain:
    """All subschemas that surely apply to one value of a document."""

    schemas: tuple[Schema, ...]
    rules: CheckedRules

    @property
    def checked(self) -> tuple[Schema, ...]:
        """Return the subschemas by which the finished value is checked, each as a document."""
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


def _certain(found: Iterable[object], rules: CheckedRules) -> Certain:
    def in_place(schema: Schema) -> list[object]:
        return [*as_list(schema.get("allOf")), *_target(schema, rules.definitions)]

    return Certain(_with_all_in_place(found, in_place), rules)


def certain(rules: Schema) -> Certain:
    """Return what applies to a whole document."""
    definitions = rules.get("$defs")
    top = {key: of for key, of in rules.items() if key != "$defs"}
    known = CheckedRules(definitions if isinstance(definitions, Mapping) else {})
    return _certain([top], known)


_ALTERNATIVES = ("allOf", "anyOf", "oneOf")
_BRANCHES = ("then", "else")


@dataclass(frozen=True, slots=True)
class Applicable:
    """All subschemas that may apply to one value of a document.

    Of alternatives all are among them, and of patterns too: rather an array is held to
    differing items without need than one that has to keep to it is not.
    """

    schemas: tuple[Schema, ...]
    definitions: Schema

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


def _applicable(found: Iterable[object], definitions: Schema) -> Applicable:
    def in_place(schema: Schema) -> list[object]:
        options = [each for key in _ALTERNATIVES for each in as_list(schema.get(key))]
        dependent = schema.get("dependentSchemas")
        options += dependent.values() if isinstance(dependent, Mapping) else ()
        options += (schema.get(key) for key in _BRANCHES)
        return [*options, *_target(schema, definitions)]

    return Applicable(_with_all_in_place(found, in_place), definitions)


def applicable(rules: Schema) -> Applicable:
    """Return what applies to a whole document."""
    definitions = rules.get("$defs")
    return _applicable([rules], definitions if isinstance(definitions, Mapping) else {})


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
        known = set(range(min(len(as_list(schema.get("prefixItems"))), len(value))))
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
        parts = as_list(schema.get("allOf"))
        if "$ref" in schema:
            parts = [*parts, self.definition(str(schema["$ref"]))]
        options = [*as_list(schema.get("anyOf")), *as_list(schema.get("oneOf"))]
        parts = [*parts, *(each for each in options if self.holds(value, each, "#"))]
        if "if" in schema:
            holds = self.holds(value, schema["if"], "#")
            branch = schema.get("then" if holds else "else")
            parts = [*parts, *([schema["if"]] if holds else []), branch]
        yield from (part for part in parts if isinstance(part, Mapping))
