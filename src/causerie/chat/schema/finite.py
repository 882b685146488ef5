"""Parts of a schema that nothing satisfies: no finite document, or numbers that contradict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from itertools import islice

from causerie.chat.schema import keywords as words
from causerie.chat.schema.keywords import Schema, as_list, as_mapping, constants, one_or_several
from causerie.chat.schema.values import canonical, is_number

_DEEPEST_COUNT = 8
_MOST_STEPS = 10_000
_MOST_COUNTED = 1_000  # values of one schema: arrays have to have no more items
_MANY = math.inf


class Contradictions:
    """Finds why no array or object satisfies a schema; ``resolve`` finds what a ``$ref`` names."""

    def __init__(self, resolve: Callable[[str], object]) -> None:
        self._resolve_reference = resolve
        self._steps_left = _MOST_STEPS

    def of(self, kind: str, schema: Schema) -> str:
        """Return why no value of a JSON type satisfies a schema, or an empty text."""
        if kind == "array":
            return self._explain_array_contradiction_or_empty(schema)
        return _explain_object_contradiction_or_empty(schema) if kind == "object" else ""

    def possible(self, schema: Schema | bool) -> Schema | bool:
        """Return the schema without types that no value can have, ``False`` if none is left."""
        if isinstance(schema, bool):
            return schema
        kinds = _list_types_or_all(schema)
        left = [kind for kind in kinds if not self.of(kind, schema)]
        if len(left) == len(kinds):
            return schema
        return {**schema, "type": left} if left else False

    def _explain_array_contradiction_or_empty(self, schema: Schema) -> str:
        least, most = _read_size(schema, "minItems", 0), _read_size(schema, "maxItems", _MANY)
        if least > most:
            return f"minItems is {least}, and maxItems is {most}"
        if "contains" in schema:
            least_found = _read_size(schema, "minContains", 1)
            most_found = _read_size(schema, "maxContains", _MANY)
            if least_found > most_found:
                return f"minContains is {least_found}, and maxContains is {most_found}"
            if least_found > most:
                return f"it has to contain {least_found} items, and maxItems is {most}"
        if schema.get("uniqueItems") is not True or least < 2:
            return ""
        first, rest = _read_item_schemas(schema)
        different = len(first) + self._bound_values_or_inf(rest, 0)
        if least > different:
            return f"at most {different} items can differ, and minItems is {least}"
        return ""

    def _bound_values_or_inf(self, schema: object, depth: int) -> float:
        if not isinstance(schema, Mapping):
            return 0 if schema is False else _MANY
        self._steps_left -= 1
        if depth > _DEEPEST_COUNT or self._steps_left < 0:
            return _MANY
        bounds = [sum(_bound_of_type_or_inf(kind, schema) for kind in _list_types_or_all(schema))]
        listed = constants(schema)
        if listed is not None:
            few = islice(listed, _MOST_COUNTED + 1)
            bounds.append(len({canonical(value) for value in few}))
        reference = schema.get("$ref")
        if isinstance(reference, str):
            bounds.append(self._bound_values_or_inf(self._resolve_reference(reference), depth + 1))
        for key in ("anyOf", "oneOf"):
            if key in schema and len(options := as_list(schema[key])) <= _MOST_COUNTED:
                bounds.append(sum(self._bound_values_or_inf(each, depth + 1) for each in options))
        if len(parts := as_list(schema.get("allOf"))) <= _MOST_COUNTED:
            bounds += [self._bound_values_or_inf(part, depth + 1) for part in parts]
        return min(bounds)


def _explain_object_contradiction_or_empty(schema: Schema) -> str:
    least, most = _read_size(schema, "minProperties", 0), _read_size(schema, "maxProperties", _MANY)
    if least > most:
        return f"minProperties is {least}, and maxProperties is {most}"
    needed = [name for name in as_list(schema.get("required")) if isinstance(name, str)]
    if len(set(needed)) > most:
        return f"{len(set(needed))} properties are required, and maxProperties is {most}"
    names = _list_allowed_names(schema)
    if names is None:
        return ""
    if least > len(names):
        return f"it may have {len(names)} properties, and minProperties is {least}"
    missing = next((name for name in needed if name not in names), None)
    return "" if missing is None else f"{missing[:60]!r} is required, and may not be there"


def _list_allowed_names(schema: Schema) -> frozenset[str] | None:
    listed = constants(as_mapping(schema.get("propertyNames")))
    if listed is not None:
        return frozenset(name for name in listed if isinstance(name, str))
    if schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return None
    named = schema.get("properties", {})
    if not isinstance(named, Mapping):
        return None
    return frozenset(name for name, of in named.items() if of is not False)


def _bound_of_type_or_inf(type_name: str, schema: Schema) -> float:
    if type_name == "integer":
        return _count_integers_or_inf(schema)
    size = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}.get(type_name)
    if size is not None and schema.get(size) == 0:
        return 1
    return {"null": 1, "boolean": 2}.get(type_name, _MANY)


def _count_integers_or_inf(schema: Schema) -> float:
    lows = [math.ceil(of) for of in _read_finite_bound_as_list(schema, "minimum")]
    lows += [math.floor(of) + 1 for of in _read_finite_bound_as_list(schema, "exclusiveMinimum")]
    highs = [math.floor(of) for of in _read_finite_bound_as_list(schema, "maximum")]
    highs += [math.ceil(of) - 1 for of in _read_finite_bound_as_list(schema, "exclusiveMaximum")]
    if not lows or not highs:
        return _MANY
    low, high = max(lows), min(highs)
    of = schema.get("multipleOf")
    if not is_number(of) or of <= 0:
        return max(high - low + 1, 0)
    each = Fraction(str(of)).numerator  # of whole numbers, all that are multiples are of this one
    return max(high // each - -(-low // each) + 1, 0)


def _read_finite_bound_as_list(schema: Schema, keyword: str) -> list[int | float]:
    of = schema.get(keyword)
    return [of] if is_number(of) and math.isfinite(of) else []


def _read_size(schema: Schema, keyword: str, default: float) -> float:
    of = schema.get(keyword, default)
    return of if isinstance(of, int | float) else default


# A grammar that may enter a part without an end never leaves it, and engines stop enforcing a
# grammar that does not end. So such parts become ``False`` before a grammar is written: an optional
# one is left out, a required one makes the schema around it unsatisfiable. Conditions count as
# fulfilled.

_MAX_ROUNDS = 24
_PREFIX = "#/$defs/"
_ALTERNATIVES = ("anyOf", "oneOf")
_DEEPEST = 64


class Endless(Exception):
    """No finite document satisfies the schema at ``pointer``, or that could not be decided."""

    def __init__(self, reason: str, pointer: str = "#") -> None:
        super().__init__(reason)
        self.pointer = pointer


def without_endless(schema: dict[str, object]) -> dict[str, object]:
    """Return the schema with ``False`` for parts without a finite document; raise :class:`Endless`.

    References point into its ``$defs``; definitions that nothing satisfies are removed.
    """
    definitions = as_mapping(schema.get("$defs"))
    counting = Contradictions(lambda name: definitions.get(name.removeprefix(_PREFIX), True))
    finite = _find_finite_definitions(definitions, counting)
    top = {key: value for key, value in schema.items() if key != "$defs"}
    verdicts: dict[int, bool] = {}
    judge = _Judge(finite, definitions, counting, verdicts)
    kept = {name: judge.pruned(definitions[name]) for name in definitions if name in finite}
    found = judge.pruned(top)
    if isinstance(found, bool):
        pointer, why = judge.culprit(top)
        raise Endless(f"no finite document can satisfy it{why and f': {why}'}.", pointer)
    if all(verdicts.values()):
        return schema
    return {**found, "$defs": kept} if kept else found


def _find_finite_definitions(
    definitions: Mapping[str, object], contradictions: Contradictions
) -> frozenset[str]:
    known: set[str] = set()
    judge = _Judge(known, definitions, contradictions)
    left = list(definitions)
    for _ in range(_MAX_ROUNDS):
        before = len(known)
        known.update(name for name in left if name not in known and judge.admits(definitions[name]))
        if len(known) in (before, len(left)):
            return frozenset(known)
        left.reverse()
    raise Endless("its references lead to one another in too many steps to be followed.")


@dataclass(frozen=True, slots=True)
class _Judge:
    """Tells which schemas have finite documents, given the definitions known to have some."""

    finite: set[str] | frozenset[str]
    definitions: Mapping[str, object]
    contradictions: Contradictions
    known: dict[int, bool] | None = None
    """Verdicts by the schemas' identity, once no more definitions become known to be finite."""

    def admits(self, schema: object) -> bool:
        if not isinstance(schema, Mapping):
            return schema is not False
        if self.known is None:
            return self._has_finite_value(schema)
        if id(schema) not in self.known:
            self.known[id(schema)] = self._has_finite_value(schema)
        return self.known[id(schema)]

    def _has_finite_value(self, schema: Schema) -> bool:
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.removeprefix(_PREFIX) not in self.finite:
            return False
        if not all(map(self.admits, as_list(schema.get("allOf")))):
            return False
        for key in _ALTERNATIVES:
            options = as_list(schema.get(key))
            if options and not any(map(self.admits, options)):
                return False
        return any(self._can_have_type(kind, schema) for kind in _list_types_or_all(schema))

    def _can_have_type(self, type_name: str, schema: Schema) -> bool:
        if self.contradictions.of(type_name, schema):
            return False
        return all(
            self.admits(part) for part, _ in self._iter_required_children(type_name, schema, "#")
        )

    def culprit(self, schema: object, pointer: str = "#", depth: int = 0) -> tuple[str, str]:
        if depth > _DEEPEST:
            return "#", ""
        if not isinstance(schema, Mapping):
            return pointer, ""
        reasons = [self.contradictions.of(kind, schema) for kind in _list_types_or_all(schema)]
        if all(reasons):
            return pointer, reasons[0]
        for part, place in self._iter_required_parts(schema, pointer):
            if not self.admits(part):
                return self.culprit(part, place, depth + 1)
        return pointer, ""

    def _iter_required_parts(self, schema: Schema, pointer: str) -> Iterator[tuple[object, str]]:
        reference, kinds = schema.get("$ref"), _list_types_or_all(schema)
        if isinstance(reference, str):
            target = self.definitions.get(reference.removeprefix(_PREFIX))
            place = target.get("$comment", pointer) if isinstance(target, Mapping) else pointer
            yield target, str(place)
        if len(kinds) == 1:
            yield from self._iter_required_children(kinds[0], schema, pointer)

    def _iter_required_children(
        self, type_name: str, schema: Schema, pointer: str
    ) -> Iterator[tuple[object, str]]:
        named, fewest = as_mapping(schema.get("properties")), schema.get("minItems", 0)
        if type_name == "object":
            for name in as_list(schema.get("required")):
                yield named.get(name), words.step(pointer, "properties", str(name))
        if type_name == "array" and isinstance(fewest, int):
            first, rest = _read_item_schemas(schema)
            for at, part in enumerate(first[:fewest]):
                yield part, words.step(pointer, "prefixItems", at)
            if fewest > len(first):
                yield rest, words.step(pointer, "items")

    def pruned(self, schema: object) -> dict[str, object] | bool:
        if not isinstance(schema, Mapping):
            return schema is not False
        if not self.admits(schema):
            return False
        out = dict(schema)
        kinds = [kind for kind in _list_types_or_all(schema) if self._can_have_type(kind, schema)]
        if len(kinds) < len(_list_types_or_all(schema)):
            out["type"] = kinds[0] if len(kinds) == 1 else kinds
        for key, value in schema.items():
            if key in ("properties", "patternProperties") and isinstance(value, Mapping):
                out[key] = {name: self.pruned(part) for name, part in value.items()}
            elif key in ("allOf", "prefixItems") or (key == "items" and isinstance(value, list)):
                out[key] = [self.pruned(part) for part in as_list(value)]
            elif key in _ALTERNATIVES:
                out[key] = [self.pruned(part) for part in as_list(value) if self.admits(part)]
            elif key in ("items", "additionalProperties", "additionalItems"):
                out[key] = self.pruned(value)
        return out


def _list_types_or_all(schema: Schema) -> list[str]:
    return [str(kind) for kind in one_or_several(schema.get("type", list(words.KINDS)))]


def _read_item_schemas(schema: Schema) -> tuple[list[object], object]:
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return as_list(schema.get("prefixItems")), items


def circle(definitions: Mapping[str, object]) -> str | None:
    """Return the name of a definition that refers to itself for the same value, or ``None``."""
    graph = {name: set(_iter_in_place_definition_names(of)) for name, of in definitions.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        [first, *_] = error.args[1]
        return str(first)
    return None


def _iter_in_place_definition_names(schema: object) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield reference.removeprefix(_PREFIX)
    for key in ("allOf", "anyOf", "oneOf"):
        for option in as_list(schema.get(key)):
            yield from _iter_in_place_definition_names(option)
    for key in ("not", "if", "then", "else"):
        yield from _iter_in_place_definition_names(schema.get(key))
