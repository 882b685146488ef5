"""Whether a rewritten schema has any finite document at all.

A schema whose required parts contain itself would keep a model writing for
ever. Knows the keywords that :mod:`causerie.chat.schema.normal` leaves over.
"""

from __future__ import annotations

from collections.abc import Mapping

_MAX_ROUNDS = 24


def is_finite(top: object, definitions: Mapping[str, object]) -> bool:
    """Definitions are found finite round by round, in turns from either end."""
    known: set[str] = set()
    order = list(definitions)
    for _ in range(_MAX_ROUNDS):
        if _finite(top, known):
            return True
        before = len(known)
        known.update(name for name in order if _grow(name, definitions, known))
        if len(known) == before:
            return False
        order.reverse()
    return _finite(top, known)


def _grow(name: str, definitions: Mapping[str, object], known: set[str]) -> bool:
    if name in known or not _finite(definitions[name], known):
        return False
    known.add(name)
    return True


def _finite(schema: object, known: set[str]) -> bool:
    if not isinstance(schema, Mapping):
        return schema is True
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.removeprefix("#/$defs/") not in known:
        return False
    parts, options = schema.get("allOf"), schema.get("anyOf")
    if isinstance(parts, list) and not all(_finite(part, known) for part in parts):
        return False
    if isinstance(options, list) and not any(_finite(option, known) for option in options):
        return False
    if schema.get("type") == "object":
        return _finite_object(schema, known)
    if schema.get("type") == "array":
        return _finite_array(schema, known)
    return True


def _finite_object(schema: Mapping[str, object], known: set[str]) -> bool:
    named, required = schema.get("properties"), schema.get("required")
    if not isinstance(named, Mapping) or not isinstance(required, list):
        return True
    return all(_finite(named[name], known) for name in required if name in named)


def _finite_array(schema: Mapping[str, object], known: set[str]) -> bool:
    fewest = schema.get("minItems", 0)
    prefix = schema.get("prefixItems", [])
    if not isinstance(fewest, int) or not isinstance(prefix, list):
        return True
    if fewest > len(prefix) and not _finite(schema.get("items", True), known):
        return False
    return all(_finite(item, known) for item in prefix[:fewest])
