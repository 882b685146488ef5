"""Find contradictions between numbers in a schema, such as two different items of one value.

What is not certain counts as possible. Knows the keywords of JSON Schema, and no grammars.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import islice
from typing import TypeGuard

from causerie.chat.schema.values import canonical, is_number

Schema = Mapping[str, object]

_DEEPEST = 8
_MOST_STEPS = 10_000
_MOST_COUNTED = 1_000  # values of one schema: arrays have to have no more items
_MANY = math.inf
_TYPES = ("object", "array", "string", "number", "boolean", "null")
# A text, or some in a group: in these patterns nothing else means anything.
_TEXTS = re.compile(r"\^(?:([\w :/-]*)|\((?:\?:)?([\w :/|-]*)\))\$")
_CLASS = re.compile(r"\^\[(\w+)\]\$")


class Contradictions:
    """Finds contradictions in one document; ``resolve`` returns the target of a ``$ref``.

    The work is bounded; beyond the bound nothing is found.
    """

    def __init__(self, resolve: Callable[[str], object]) -> None:
        self._resolve = resolve
        self._left = _MOST_STEPS

    def of(self, kind: str, schema: Schema) -> str:
        """Return why no value of a JSON type satisfies a schema, or an empty text."""
        if kind == "array":
            return self._of_arrays(schema)
        return _of_objects(schema) if kind == "object" else ""

    def possible(self, schema: Schema) -> Schema | bool:
        """Return the schema without the types that contradict themselves, ``False`` if all do."""
        kinds = _types(schema)
        left = [kind for kind in kinds if not self.of(kind, schema)]
        if len(left) == len(kinds):
            return schema
        return {**schema, "type": left} if left else False

    def _of_arrays(self, schema: Schema) -> str:
        least, most = _size(schema, "minItems", 0), _size(schema, "maxItems", _MANY)
        if least > most:
            return f"minItems is {least}, and maxItems is {most}"
        if "contains" in schema:
            least_found = _size(schema, "minContains", 1)
            most_found = _size(schema, "maxContains", _MANY)
            if least_found > most_found:
                return f"minContains is {least_found}, and maxContains is {most_found}"
            if least_found > most:
                return f"it has to contain {least_found} items, and maxItems is {most}"
        if schema.get("uniqueItems") is not True or least < 2:
            return ""
        items = schema.get("items", True)
        first = items if isinstance(items, list) else schema.get("prefixItems", [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        before = len(first) if isinstance(first, list) else 0
        different = before + self._values(rest, 0)
        if least > different:
            return f"at most {different} items can differ, and minItems is {least}"
        return ""

    def _values(self, schema: object, depth: int) -> float:
        """Return the most different values that may satisfy a schema."""
        if not isinstance(schema, Mapping):
            return 0 if schema is False else _MANY
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            return _MANY
        bounds = [sum(_of_type(kind, schema) for kind in _types(schema))]
        constants = _constants(schema)
        if constants is not None:
            few = islice(constants, _MOST_COUNTED + 1)
            bounds.append(len({canonical(value) for value in few}))
        reference = schema.get("$ref")
        if isinstance(reference, str):
            bounds.append(self._values(self._resolve(reference), depth + 1))
        for key in ("anyOf", "oneOf"):
            if _is_list(options := schema.get(key)) and len(options) <= _MOST_COUNTED:
                bounds.append(sum(self._values(each, depth + 1) for each in options))
        if _is_list(parts := schema.get("allOf")) and len(parts) <= _MOST_COUNTED:
            bounds += [self._values(part, depth + 1) for part in parts]
        return min(bounds)


def _of_objects(schema: Schema) -> str:
    least, most = _size(schema, "minProperties", 0), _size(schema, "maxProperties", _MANY)
    if least > most:
        return f"minProperties is {least}, and maxProperties is {most}"
    required = schema.get("required")
    needed = [name for name in required if isinstance(name, str)] if _is_list(required) else []
    if len(set(needed)) > most:
        return f"{len(set(needed))} properties are required, and maxProperties is {most}"
    names = _names(schema)
    if names is None:
        return ""
    if least > len(names):
        return f"it may have {len(names)} properties, and minProperties is {least}"
    missing = next((name for name in needed if name not in names), None)
    return "" if missing is None else f"{missing[:60]!r} is required, and may not be there"


def _names(schema: Schema) -> frozenset[str] | None:
    """Return the only names that properties may have, or ``None`` where others are possible."""
    allowed = schema.get("propertyNames")
    listed = _constants(allowed) if isinstance(allowed, Mapping) else None
    if listed is not None:
        return frozenset(name for name in listed if isinstance(name, str))
    if schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return None
    named = schema.get("properties", {})
    if not isinstance(named, Mapping):
        return None
    return frozenset(name for name, of in named.items() if of is not False)


def _of_type(kind: str, schema: Schema) -> float:
    match kind:
        case "null":
            return 1
        case "boolean":
            return 2
        case "string":
            return _texts(schema)
        case "integer":
            return _integers(schema)
        case "array":
            return 1 if schema.get("maxItems") == 0 else _MANY
        case "object":
            return 1 if schema.get("maxProperties") == 0 else _MANY
    return _MANY


def _texts(schema: Schema) -> float:
    if schema.get("maxLength") == 0:
        return 1
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return _MANY
    if (found := _TEXTS.fullmatch(pattern)) is not None:
        one, several = found.groups()
        return 1 if one is not None else len(set(several.split("|")))
    listed = _CLASS.fullmatch(pattern)
    return len(set(listed[1])) if listed is not None else _MANY


def _integers(schema: Schema) -> float:
    lows = [math.ceil(of) for of in _bounds(schema, "minimum")]
    lows += [math.floor(of) + 1 for of in _bounds(schema, "exclusiveMinimum")]
    highs = [math.floor(of) for of in _bounds(schema, "maximum")]
    highs += [math.ceil(of) - 1 for of in _bounds(schema, "exclusiveMaximum")]
    if not lows or not highs:
        return _MANY
    low, high = max(lows), min(highs)
    of = schema.get("multipleOf")
    if not is_number(of) or of <= 0:
        return max(high - low + 1, 0)
    each = Fraction(str(of)).numerator  # of whole numbers, all that are multiples are of this one
    return max(high // each - -(-low // each) + 1, 0)


def _bounds(schema: Schema, key: str) -> list[int | float]:
    of = schema.get(key)
    return [of] if is_number(of) and math.isfinite(of) else []


def _constants(schema: Schema) -> list[object] | None:
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) else None


def _types(schema: Schema) -> list[str]:
    declared = schema.get("type")
    if declared is None:
        return list(_TYPES)
    return [str(kind) for kind in declared] if isinstance(declared, list) else [str(declared)]


def _size(schema: Schema, key: str, otherwise: float) -> float:
    of = schema.get(key, otherwise)
    return of if isinstance(of, int | float) else otherwise


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
