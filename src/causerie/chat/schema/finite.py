"""Whether a rewritten schema describes documents that come to an end.

A schema whose required parts contain itself would keep a model writing for
ever, and one that refers to itself in the same place says nothing. Knows the
keywords that :mod:`causerie.chat.schema.normal` leaves over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_MAX_ROUNDS = 24
_PREFIX = "#/$defs/"


def is_finite(top: object, definitions: Mapping[str, object]) -> bool:
    """Definitions are found finite round by round, in turns from either end."""
    known: set[str] = set()
    order = list(definitions)
    for _ in range(_MAX_ROUNDS):
        if _finite(top, known):
            return True
        before = len(known)
        for name in order:
            if name not in known and _finite(definitions[name], known):
                known.add(name)
        if len(known) == before:
            return False
        order.reverse()
    return _finite(top, known)


def circle(definitions: Mapping[str, object]) -> str | None:
    """The name of a definition that refers to itself without going into a property or item."""
    open_names: set[str] = set()
    done: set[str] = set()
    for first in definitions:
        path = [(first, iter(()) if first in done else _in_place(definitions[first]))]
        open_names.add(first)
        while path:
            name, targets = path[-1]
            target = next(targets, None)
            if target is None:
                path.pop()
                open_names.discard(name)
                done.add(name)
            elif target in open_names:
                return target
            elif target not in done:
                open_names.add(target)
                path.append((target, _in_place(definitions[target])))
    return None


def _in_place(schema: object) -> Iterator[str]:
    """The definitions that hold for the same value as ``schema``."""
    if not isinstance(schema, Mapping):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield reference.removeprefix(_PREFIX)
    for key in ("allOf", "anyOf"):
        options = schema.get(key)
        for option in options if isinstance(options, list) else ():
            yield from _in_place(option)


def _finite(schema: object, known: set[str]) -> bool:
    if not isinstance(schema, Mapping):
        return schema is True
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.removeprefix(_PREFIX) not in known:
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
