"""Parts of a schema that no finite document satisfies: they require themselves, or contradict
themselves in a rule that no grammar has.

A grammar that may enter such a part never leaves it, and engines stop enforcing
a grammar that does not end; or the model writes what no check accepts. So these parts are replaced
by ``False`` before a grammar is written: an optional one is left out, a required one makes the
schema around it unsatisfiable as well. Contradictions are found as far as
:mod:`causerie.chat.schema.counts` sees them. Reads the keywords that
:mod:`causerie.chat.schema.normal` writes, and those that the schemas of
functions still have (lists of ``items``). Conditions count as fulfilled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from causerie.chat.schema.counts import Contradictions
from causerie.chat.schema.refusal import step

_MAX_ROUNDS = 24
_PREFIX = "#/$defs/"
_ALTERNATIVES = ("anyOf", "oneOf")
_SCHEMA = ("items", "additionalProperties", "additionalItems")
_SCHEMAS = ("properties", "patternProperties")
_DEEPEST = 64
_OTHER_KINDS = ("string", "number", "boolean", "null")


class Endless(Exception):
    """No finite document satisfies the schema, or that could not be decided; says which.

    ``pointer`` is where.
    """

    def __init__(self, reason: str, pointer: str = "#") -> None:
        super().__init__(reason)
        self.pointer = pointer


def without_endless(schema: dict[str, object]) -> dict[str, object]:
    """Return ``schema`` with ``False`` for each part that no finite document satisfies.

    References point into its ``$defs``; definitions that nothing satisfies are removed.
    Raises :class:`Endless`.
    """
    named = schema.get("$defs")
    definitions = named if isinstance(named, Mapping) else {}
    counting = Contradictions(lambda name: definitions.get(name.removeprefix(_PREFIX), True))
    finite = _finite_names(definitions, counting)
    top = {key: value for key, value in schema.items() if key != "$defs"}
    judge = _Judge(finite, definitions, counting, {})
    kept = {name: judge.pruned(definitions[name]) for name in definitions if name in finite}
    found = judge.pruned(top)
    if isinstance(found, bool):
        pointer, why = judge.culprit(top)
        raise Endless(f"no finite document can satisfy it{why and f': {why}'}.", pointer)
    if not judge.refused:
        return schema
    return {**found, "$defs": kept} if kept else found


def _finite_names(definitions: Mapping[str, object], counting: Contradictions) -> frozenset[str]:
    """Return the definitions that some finite document satisfies, found in rounds."""
    known: set[str] = set()
    judge = _Judge(known, definitions, counting)
    order = list(definitions)
    for _ in range(_MAX_ROUNDS):
        before = len(known)
        known.update(
            name for name in order if name not in known and judge.admits(definitions[name])
        )
        if len(known) in (before, len(order)):
            return frozenset(known)
        order.reverse()
    raise Endless("its references lead to one another in too many steps to be followed.")


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges schemas by the names of the definitions that are known to be finite."""

    finite: set[str] | frozenset[str]
    definitions: Mapping[str, object]
    contradictions: Contradictions
    known: dict[int, bool] | None = None
    """Verdicts by the schemas' identity, once no more definitions become known to be finite."""

    @property
    def refused(self) -> bool:
        """Return whether some part has been found that nothing satisfies, or some kind of it."""
        return self.known is not None and not all(self.known.values())

    def admits(self, schema: object) -> bool:
        """Return whether some finite document satisfies ``schema``."""
        if not isinstance(schema, Mapping):
            return schema is not False
        if self.known is None:
            return self._admits(schema)
        if id(schema) not in self.known:
            self.known[id(schema)] = self._admits(schema)
        return self.known[id(schema)]

    def _admits(self, schema: Mapping[str, object]) -> bool:
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.removeprefix(_PREFIX) not in self.finite:
            return False
        if not all(map(self.admits, _list(schema, "allOf"))):
            return False
        for key in _ALTERNATIVES:
            options = _list(schema, key)
            if options and not any(map(self.admits, options)):
                return False
        return any(self._admits_kind(kind, schema) for kind in _kinds(schema))

    def _admits_kind(self, kind: str, schema: Mapping[str, object]) -> bool:
        if self.contradictions.of(kind, schema):
            return False
        match kind:
            case "object":
                return self._admits_object(schema)
            case "array":
                return self._admits_array(schema)
        return True

    def _admits_object(self, schema: Mapping[str, object]) -> bool:
        named = schema.get("properties")
        if not isinstance(named, Mapping):
            return True
        return all(self.admits(named[name]) for name in _list(schema, "required") if name in named)

    def _admits_array(self, schema: Mapping[str, object]) -> bool:
        fewest = schema.get("minItems", 0)
        if not isinstance(fewest, int):
            return True
        first, rest = _items(schema)
        if fewest > len(first) and not self.admits(rest):
            return False
        return all(map(self.admits, first[:fewest]))

    def culprit(self, schema: object, pointer: str = "#", depth: int = 0) -> tuple[str, str]:
        """Return where nothing satisfies a schema, and why, if that is known.

        Of a schema that requires itself, the beginning is as good a place as any.
        """
        if depth > _DEEPEST:
            return "#", ""
        if not isinstance(schema, Mapping):
            return pointer, ""
        reasons = [self.contradictions.of(kind, schema) for kind in _kinds(schema)]
        if all(reasons):
            return pointer, reasons[0]
        for part, place in self._needed(schema, pointer):
            if not self.admits(part):
                return self.culprit(part, place, depth + 1)
        return pointer, ""

    def _needed(self, schema: Mapping[str, object], pointer: str) -> Iterator[tuple[object, str]]:
        """Yield parts that a document of this schema surely has, with their places."""
        reference, kinds = schema.get("$ref"), _kinds(schema)
        if isinstance(reference, str):
            target = self.definitions.get(reference.removeprefix(_PREFIX))
            place = target.get("$comment", pointer) if isinstance(target, Mapping) else pointer
            yield target, str(place)
        named = schema.get("properties")
        if kinds == ["object"] and isinstance(named, Mapping):
            for name in _list(schema, "required"):
                yield named.get(name), step(pointer, "properties", str(name))
        fewest = schema.get("minItems", 0)
        if kinds == ["array"] and isinstance(fewest, int):
            first, rest = _items(schema)
            for at, part in enumerate(first[:fewest]):
                yield part, step(pointer, "prefixItems", at)
            if fewest > len(first):
                yield rest, step(pointer, "items")

    def pruned(self, schema: object) -> dict[str, object] | bool:
        """Return ``schema`` with ``False`` for the parts in it that nothing satisfies."""
        if not isinstance(schema, Mapping):
            return schema is not False
        if not self.admits(schema):
            return False
        out = dict(schema)
        kinds = [kind for kind in _kinds(schema) if self._admits_kind(kind, schema)]
        if len(kinds) < len(_kinds(schema)):
            out["type"] = kinds[0] if len(kinds) == 1 else kinds
        for key, value in schema.items():
            if key in _SCHEMAS and isinstance(value, Mapping):
                out[key] = {name: self.pruned(part) for name, part in value.items()}
            elif key in ("allOf", "prefixItems") or (key == "items" and isinstance(value, list)):
                out[key] = [self.pruned(part) for part in _list(schema, key)]
            elif key in _ALTERNATIVES:
                out[key] = [self.pruned(part) for part in _list(schema, key) if self.admits(part)]
            elif key in _SCHEMA:
                out[key] = self.pruned(value)
        return out


def _kinds(schema: Mapping[str, object]) -> list[str]:
    """Return the JSON types of a schema; all if it names none."""
    declared = schema.get("type")
    if declared is None:
        return ["object", "array", *_OTHER_KINDS]
    return [str(kind) for kind in declared] if isinstance(declared, list) else [str(declared)]


def _items(schema: Mapping[str, object]) -> tuple[list[object], object]:
    """Return the schemas of the first items, and that of all others."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return _list(schema, "prefixItems"), items


def circle(definitions: Mapping[str, object]) -> str | None:
    """Return the name of a definition that refers to itself outside properties and items."""
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
    """Yield the definitions that hold for the same value as ``schema``."""
    if not isinstance(schema, Mapping):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield reference.removeprefix(_PREFIX)
    for key in ("allOf", "anyOf", "oneOf"):
        for option in _list(schema, key):
            yield from _in_place(option)
    for key in ("not", "if", "then", "else"):
        yield from _in_place(schema.get(key))


def _list(schema: Mapping[str, object], key: str) -> list[object]:
    found = schema.get(key)
    return found if isinstance(found, list) else []
