"""Writes rules that no grammar has with those that it has: conditions become alternatives.

The result may admit fewer documents than the schema. Where it admits more, the keyword is named,
and only the check of the finished answer enforces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from causerie.chat.schema import keywords as words
from causerie.chat.schema.disjoint import MOST_MATCHED, SchemaDisjointness, matches
from causerie.chat.schema.keywords import Schema, as_list, as_mapping, one_or_several, step
from causerie.chat.schema.pattern import Refused, counts_groups, searches
from causerie.chat.schema.rewriting import SchemaNegation, declared_types

_MOST_WAYS = 24  # of the alternatives that one keyword becomes
_MOST_PAIRS = 32  # of options that may overlap
_MOST_CONDITIONS = 6  # on properties in one schema, each of which doubles the alternatives
_MOST_COUNTED = 12  # properties of which some number is to be there
_LONGEST_COUNTED = 200  # characters of a string whose pattern counts words
_MOST_STEPS = 200  # into a schema, to find the properties that it names
_OTHERS_IN_PLACE = words.IN_PLACE - {"oneOf"}
_OTHERS = ("additionalProperties", "patternProperties")
_DECIDED_LATE = (*_OTHERS, "unevaluatedProperties", "anyOf", "oneOf", "if", "dependentSchemas",
                 "dependencies")  # fmt: skip
_SILENT = ("additionalProperties", "patternProperties", "unevaluatedProperties")
_RULES = words.CONDITIONS | {"then", "else", "minContains", "maxContains", "uniqueItems",
                       "propertyNames"}  # fmt: skip
_NEVER: Mapping[str, object] = {"allOf": [False]}
_NO_OTHERS: Mapping[str, object] = {"additionalProperties": False}
_READ = _RULES | {"oneOf", "minProperties", "maxProperties", "patternProperties", "maxLength"}


@dataclass(slots=True)
class _Result:
    schema: dict[str, object]
    pointer: str
    added: list[Schema]
    left: list[str]
    alone: bool  # whether no other schema speaks of the same value

    def place(self, *keys: str | int) -> Schema:
        return {"$ref": step(self.pointer, *keys)}

    def either(self, ways: Sequence[Schema]) -> None:
        self.added.append(ways[0] if len(ways) == 1 else {"anyOf": list(ways)})


class SchemaNarrowing:
    """Rewrites schemas into what grammars can say; ``resolve`` finds what a ``$ref`` names."""

    def __init__(self, resolve: Callable[[str], object]) -> None:
        self._resolve_reference = resolve
        self._negation = SchemaNegation(resolve)
        self._disjointness = SchemaDisjointness(resolve)

    def of(
        self, schema: Schema, pointer: str, *, alone: bool
    ) -> tuple[dict[str, object], Sequence[str]]:
        """Return a schema as a grammar can say it, and the keywords left to the final check.

        ``alone`` says that no other schema speaks of its value.
        """
        if schema.keys().isdisjoint(_READ):
            return dict(schema), ()
        kept = {key: value for key, value in schema.items() if key not in _RULES}
        result = _Result(kept, pointer, [], [], alone)
        for key, read in _READERS.items():
            if key in schema:
                read(self, result, schema)
        self._narrow_dependencies(result, schema)
        self._narrow_property_counts(result, schema)
        if alone and result.added and _can_be_closed(schema):
            named = as_mapping(result.schema["properties"])
            others = {name: True for way in result.added for name in self._property_names(way)}
            result.schema |= {"properties": {**named, **_omit_keys(others, named)}, **_NO_OTHERS}
        if len(result.added) == 1 and result.added[0].keys().isdisjoint(result.schema):
            result.schema |= result.added[0]
        elif result.added:
            result.schema["allOf"] = [*as_list(result.schema.get("allOf")), *result.added]
        return result.schema, result.left

    def _property_names(self, schema: object) -> Iterator[str]:
        waiting, seen = [schema], set[str]()
        for _ in range(_MOST_STEPS):
            if not waiting:
                return
            part = waiting.pop(0)
            if not isinstance(part, Mapping):
                continue
            named = as_mapping(part.get("properties"))
            yield from (name for name, of in named.items() if of is not False)
            yield from (name for name in as_list(part.get("required")) if isinstance(name, str))
            for key in ("allOf", "anyOf", "oneOf"):
                waiting += as_list(part.get(key))
            waiting += [part[key] for key in ("then", "else") if key in part]
            reference = part.get("$ref")
            if isinstance(reference, str) and reference not in seen:
                seen.add(reference)
                waiting.append(self._resolve_reference(reference))

    # Conditions

    def _narrow_not(self, result: _Result, schema: Schema) -> None:
        opposite = self._negation.of(schema["not"])
        ways = _drop_contradictions(opposite.ways, schema)
        if (not ways and not opposite.complete) or len(ways) > _MOST_WAYS:
            result.left.append("not")
        else:
            result.either(ways or [_NEVER])

    def _narrow_if(self, result: _Result, schema: Schema) -> None:
        if "then" not in schema and "else" not in schema:
            return
        opposite = self._negation.of(schema["if"])
        others = _drop_contradictions(opposite.ways, schema)
        if (not others and not opposite.complete) or len(others) > _MOST_WAYS:
            result.left.append("if")
            return
        held = [result.place("if"), *([result.place("then")] if "then" in schema else [])]
        ways: list[Schema] = [{"allOf": held}]
        if others:
            broken: Schema = others[0] if len(others) == 1 else {"anyOf": others}
            last = [result.place("else")] if "else" in schema else []
            ways.append({"allOf": [broken, *last]} if last else broken)
        result.either(ways)

    def _narrow_dependencies(self, result: _Result, schema: Schema) -> None:
        found = list(_iter_dependencies_as_schemas(result, schema))
        required = as_list(schema.get("required"))
        asked = [each for each in found if each[0] not in required]
        for name, needs in found:
            if name in required:
                result.added.append(needs)
            elif len(asked) <= _MOST_CONDITIONS:
                held = {"type": "object", "required": [name]}
                result.either([_forbid_names([name]), {"allOf": [held, needs]}])
        if len(asked) > _MOST_CONDITIONS:
            result.left.append("dependencies")

    # Strings

    def _leave_max_length_to_check(self, result: _Result, schema: Schema) -> None:
        # Engines cannot bound the length of a long text beside a pattern that counts its words.
        pattern, most = schema.get("pattern"), schema["maxLength"]
        long = isinstance(most, int) and most > _LONGEST_COUNTED
        if long and isinstance(pattern, str) and counts_groups(pattern):
            del result.schema["maxLength"]
            result.left.append("maxLength")

    # Alternatives

    def _narrow_one_of(self, result: _Result, schema: Schema) -> None:
        options = schema["oneOf"]
        if not isinstance(options, list) or not options:
            return
        found = self._disjointness.overlaps(options, within=schema.get("type"))
        pairs = list(islice(found, _MOST_PAIRS + 1))
        if not pairs:
            return
        del result.schema["oneOf"]
        possible = self._disjointness.possible(options)
        if len(pairs) > _MOST_PAIRS:
            result.left.append("oneOf")
            result.either([result.place("oneOf", at) for at in possible] or [_NEVER])
            return
        ways = []
        for at in possible:
            rivals = [a if b == at else b for a, b in pairs if at in (a, b)]
            way = self._build_option_without_rivals(result, schema, options[at], at, rivals)
            ways += [way] if way is not None else []
        result.either(ways or [_NEVER])

    def _build_option_without_rivals(
        self, result: _Result, schema: Schema, option: object, index: int, rivals: Sequence[int]
    ) -> Schema | None:
        held: list[Schema] = []
        count = 1
        for rival in rivals:
            excluded = as_list(schema["oneOf"])[rival]
            opposite = self._negation.of(excluded)
            ways = _drop_contradictions(opposite.ways, schema)
            ways = _drop_contradictions(ways, self._follow_references(option))
            apart = self._disjointness
            ways = [way for way in ways if any(apart.overlaps([way, option], within=None))]
            others = self._build_alternatives_outside_rival(excluded, option)
            ways += others[: max(_MOST_WAYS // count - len(ways), 0)]
            count *= max(len(ways), 1)
            if not ways and opposite.complete:
                return None
            if not ways or count > _MOST_WAYS:
                result.left.append("oneOf")
                return result.place("oneOf", index)
            held.append(ways[0] if len(ways) == 1 else {"anyOf": ways})
        if not held:
            return result.place("oneOf", index)
        closing = self._build_closing_keywords(schema, option) if result.alone else {}
        return {"allOf": [result.place("oneOf", index), *held], **closing}

    def _build_alternatives_outside_rival(self, rival: object, option: object) -> list[Schema]:
        closed = self._follow_references(rival)
        if closed.get("additionalProperties") is not False or "patternProperties" in closed:
            return []
        known = as_mapping(closed.get("properties"))
        names = dict.fromkeys(name for name in self._property_names(option) if name not in known)
        return [{"type": "object", "required": [name]} for name in names]

    def _build_closing_keywords(self, schema: Schema, option: object) -> Schema:
        target = self._follow_references(option)
        if not _can_be_closed(target) or schema.keys() & (_OTHERS_IN_PLACE | {"properties"}):
            return {}
        named = as_mapping(target["properties"])
        return {"properties": dict.fromkeys(named, True), **_NO_OTHERS}

    def _follow_references(self, schema: object) -> Schema:
        for _ in range(_MOST_CONDITIONS):
            if not isinstance(schema, Mapping) or schema.keys() != {"$ref"}:
                break
            schema = self._resolve_reference(str(schema["$ref"]))
        return as_mapping(schema)

    # Arrays

    def _narrow_contains(self, result: _Result, schema: Schema) -> None:
        least, most = schema.get("minContains", 1), schema.get("maxContains")
        if not isinstance(least, int) or least > _MOST_WAYS:
            result.left.append("contains")
            return
        if most is not None:
            result.left.append("maxContains")
        if not least:
            return
        listed = "prefixItems" in schema or isinstance(schema.get("items"), list)
        if listed or declared_types(schema) != "array":
            result.left.append("contains")
            return
        first = result.place("contains")
        if "items" in schema:
            first = {"allOf": [result.place("items"), first]}
        fewest = schema.get("minItems", 0)
        result.schema["prefixItems"] = [first] * least
        result.schema["minItems"] = max(least, fewest) if isinstance(fewest, int) else fewest

    def _leave_unique_items_to_check(self, result: _Result, schema: Schema) -> None:
        most = schema.get("maxItems")
        if schema["uniqueItems"] is not True or (isinstance(most, int) and most <= 1):
            return
        result.left.append("uniqueItems")
        values = as_list(self._follow_references(schema.get("items")).get("enum"))
        if values and not (isinstance(most, int) and most <= len(values)):
            result.schema["maxItems"] = len(values)

    # Objects

    def _apply_patterns_to_named_properties(self, result: _Result, schema: Schema) -> None:
        patterns, named = schema["patternProperties"], schema.get("properties")
        if not isinstance(patterns, Mapping) or not isinstance(named, Mapping):
            return
        if len(patterns) * len(named) > MOST_MATCHED:
            result.left.append("patternProperties")
            return
        known = {pattern: _split_into_required_patterns_or_empty(pattern) for pattern in patterns}
        found = dict(named)
        for name in named:
            held = [
                result.place("patternProperties", pattern)
                for pattern, parts_of in known.items()
                if parts_of and all(matches(each, name) for each in parts_of)
            ]
            if held:
                found[name] = {"allOf": [result.place("properties", name), *held]}
        result.schema["properties"] = found

    def _leave_property_names_to_check(self, result: _Result, schema: Schema) -> None:
        if schema["propertyNames"] not in (True, {}, {"type": "string"}):
            result.left.append("propertyNames")

    def _narrow_property_counts(self, result: _Result, schema: Schema) -> None:
        required, names = as_list(schema.get("required")), [*as_mapping(schema.get("properties"))]
        free = [name for name in names if name not in required]
        least, most = schema.get("minProperties", 0), schema.get("maxProperties")
        if not isinstance(least, int) or not isinstance(most, int | None):
            return
        closed = schema.get("additionalProperties") is False or _can_be_closed(schema)
        closed = closed and "patternProperties" not in schema and {*required} <= {*names}
        if least > len(required) and (free or least > len(required) + 1):
            del result.schema["minProperties"]
            if closed and least == len(required) + 1 and len(free) <= _MOST_COUNTED:
                result.either([{"required": [name]} for name in free] or [_NEVER])
            else:
                result.left.append("minProperties")
        if most is not None and free:
            del result.schema["maxProperties"]
            if not (closed and most >= len(names)):
                self._narrow_max_properties(result, most - len(required), free, closed=closed)

    def _narrow_max_properties(
        self, result: _Result, max_optional: int, names: Sequence[str], *, closed: bool
    ) -> None:
        if not closed or max_optional not in (0, 1) or len(names) > _MOST_COUNTED:
            result.left.append("maxProperties")
            return
        others = [[other for other in names if other != name] for name in names]
        result.either(
            [_forbid_names(each) for each in others] if max_optional else [_forbid_names(names)]
        )

    # What other keywords leave over

    def _narrow_unevaluated_properties(self, result: _Result, schema: Schema) -> None:
        if schema["unevaluatedProperties"] in (True, {}):
            return
        closed = schema["unevaluatedProperties"] is False and schema.keys().isdisjoint(_OTHERS)
        if closed:
            others = dict.fromkeys(self._property_names(schema), True)
            own = as_mapping(schema.get("properties"))
            result.schema |= {"properties": {**own, **_omit_keys(others, own)}, **_NO_OTHERS}
        if not closed or self._has_varying_evaluated_properties(schema):
            result.left.append("unevaluatedProperties")

    def _has_varying_evaluated_properties(self, schema: Schema) -> bool:
        waiting: list[object] = [schema]
        for _ in range(_MOST_STEPS):
            if not waiting:
                return False
            part = waiting.pop()
            if not isinstance(part, Mapping):
                continue
            own = {"unevaluatedProperties"} if part is schema else set[str]()
            known, required = part.get("properties") or {}, as_list(part.get("required"))
            if not isinstance(known, Mapping) or any(name not in known for name in required):
                return True
            if not (part.keys() - own).isdisjoint(_DECIDED_LATE):
                return True
            waiting += as_list(part.get("allOf"))
            if "$ref" in part:
                waiting.append(self._resolve_reference(str(part["$ref"])))
        return True

    def _narrow_unevaluated_items(self, result: _Result, schema: Schema) -> None:
        if schema["unevaluatedItems"] not in (True, {}):
            result.left.append("unevaluatedItems")
            others = words.IN_PLACE | words.CONDITIONS | {"items"}
            if schema.keys().isdisjoint(others - {"unevaluatedItems"}):
                result.schema["items"] = result.place("unevaluatedItems")


def _iter_dependencies_as_schemas(result: _Result, schema: Schema) -> Iterator[tuple[str, Schema]]:
    for key in ("dependentRequired", "dependentSchemas", "dependencies"):
        for name, needs in as_mapping(schema.get(key)).items():
            if isinstance(needs, list):
                if needs:
                    yield name, {"type": "object", "required": needs}
            elif isinstance(needs, str):
                yield name, {"type": "object", "required": [needs]}
            elif needs not in (True, {}):
                yield name, result.place(key, name)


def _omit_keys(properties: Mapping[str, object], keys: Mapping[str, object]) -> dict[str, object]:
    return {name: of for name, of in properties.items() if name not in keys}


def _split_into_required_patterns_or_empty(pattern: str) -> list[str]:
    try:
        return searches(pattern)
    except Refused:
        return []


def _forbid_names(property_names: Sequence[str]) -> Schema:
    return {"properties": dict.fromkeys(property_names, False)}


def _can_be_closed(schema: Schema) -> bool:
    named, required = as_mapping(schema.get("properties")), as_list(schema.get("required"))
    if not named or not schema.keys().isdisjoint(_SILENT):
        return False
    return not schema.keys() & _OTHERS_IN_PLACE and all(name in named for name in required)


def _drop_contradictions(alternatives: Sequence[Schema], schema: Schema) -> list[Schema]:
    types = _collect_declared_types_or_all(schema)
    required = as_list(schema.get("required"))
    return [
        way
        for way in alternatives
        if _collect_declared_types_or_all(way) & types
        and not any(as_mapping(way.get("properties")).get(str(name)) is False for name in required)
    ]


def _collect_declared_types_or_all(schema: Schema) -> frozenset[str]:
    declared = declared_types(schema)
    names = words.TYPES if declared is None else one_or_several(declared)
    return frozenset("number" if name == "integer" else str(name) for name in names)


_READERS: Mapping[str, Callable[[SchemaNarrowing, _Result, Schema], None]] = {
    "not": SchemaNarrowing._narrow_not,
    "if": SchemaNarrowing._narrow_if,
    "oneOf": SchemaNarrowing._narrow_one_of,
    "maxLength": SchemaNarrowing._leave_max_length_to_check,
    "contains": SchemaNarrowing._narrow_contains,
    "uniqueItems": SchemaNarrowing._leave_unique_items_to_check,
    "patternProperties": SchemaNarrowing._apply_patterns_to_named_properties,
    "propertyNames": SchemaNarrowing._leave_property_names_to_check,
    "unevaluatedProperties": SchemaNarrowing._narrow_unevaluated_properties,
    "unevaluatedItems": SchemaNarrowing._narrow_unevaluated_items,
}
