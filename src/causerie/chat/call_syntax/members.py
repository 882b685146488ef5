"""Members that an object may hold, for readers and writers that work key by key.

Declared names come in their order; other names may follow if the schema
allows them. Knows object schemas; knows no notation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from causerie.chat.call_syntax.base import Schema, spelled
from causerie.chat.call_syntax.choices import choices, definitions, part_of
from causerie.chat.call_syntax.conjunction import refused
from causerie.chat.call_syntax.strings import string_terminal
from causerie.chat.schema.overlap import MOST_MATCHED, matches
from causerie.chat.schema.pattern import searches


@dataclass(frozen=True, slots=True)
class NamedProperty:
    """A property that is named."""

    name: str
    schema: Schema
    required: bool


@dataclass(frozen=True, slots=True)
class ObjectMembers:
    """``named`` in order; ``free`` are terminals of other keys with what stands behind them.

    Of these there are ``least`` to ``most`` (``None``: any number).
    """

    named: tuple[NamedProperty, ...]
    free: tuple[tuple[str, Schema], ...]
    least: int
    most: int | None

    def how_many(self, but: int = 0) -> str:
        """Behind the free keys in a grammar: as often as there may be some, of which some came."""
        most = "" if self.most is None else self.most - but
        return f"{{{max(self.least - but, 0)},{most}}}"


def members_of(
    choice: Schema, key: str, is_writable: Callable[[str], bool]
) -> ObjectMembers | None:
    """Return the members that the object may hold; ``None`` if no object is possible.

    ``key`` is a regular expression (between slashes) for the free keys of a notation;
    ``is_writable`` returns whether the notation can write a name. Raises ``InvalidRequest``
    (``unsupported_schema``) for constraints that cannot be enforced.
    """
    required = _list(choice, "required")
    declared = _names(choice)
    unnamed = declared.keys() - _mapping(choice, "properties").keys()
    if len(unnamed) * len(patterns_of(choice)) > MOST_MATCHED:
        raise refused(choice, "too many required names for so many patterns.", "patternProperties")
    named = []
    for name in declared:
        of = property_of(choice, name)
        possible = bool(choices(of)) if of is not None else False
        if name in required and not possible:
            return None
        if of is not None and possible:
            if not is_writable(name):
                raise refused(of, f"the model's notation cannot write the name {name[:60]!r}.")
            named.append(NamedProperty(name, of, name in required))
    free = _free(choice, key, declared)
    least, most = _bounds(choice, len(required), len(named), bool(free))
    return ObjectMembers(tuple(named), () if most == 0 else tuple(free), least, most)


def property_of(choice: Schema, name: str) -> Schema | None:
    """Return the schema of a property, with its definitions; ``None`` if it is not allowed."""
    named = _mapping(choice, "properties")
    if name in named:
        return part_of(choice, named[name])
    for pattern, of in patterns_of(choice).items():
        if all(matches(each, name) for each in searches(pattern)):
            return part_of(choice, of)
    return part_of(choice, choice.get("additionalProperties", True))


def property_in(schema: Schema, name: str) -> Schema:
    """Return the same of any schema, which may be an object in several ways."""
    found = [of for choice in choices(schema) if (of := property_of(choice, name))]
    distinct = [of for at, of in enumerate(found) if of not in found[:at]]
    if len(distinct) > 1:
        return {"anyOf": distinct, **definitions(schema)}
    return distinct[0] if distinct else {}


def patterns_of(choice: Schema) -> Mapping[str, object]:
    """Return the schemas of the properties that are named by patterns."""
    return _mapping(choice, "patternProperties")


def names_in(schema: Schema) -> tuple[str, ...]:
    """Return the names of the properties of any schema, in order."""
    found = (_names(choice) for choice in choices(schema))
    return tuple(dict.fromkeys(name for names in found for name in names))


def _names(choice: Schema) -> dict[str, None]:
    required = (str(name) for name in _list(choice, "required"))
    return dict.fromkeys([*_mapping(choice, "properties"), *required])


def _free(choice: Schema, key: str, names: Mapping[str, object]) -> list[tuple[str, Schema]]:
    """Return the keys that no property is named by, as terminals that exclude each other."""
    patterns = patterns_of(choice)
    known = _mapping(choice, "properties").values()
    silent = all(of is False for of in known) or bool(patterns)
    others = part_of(choice, choice.get("additionalProperties", silent))
    taken = [f"~/{'|'.join(map(spelled, names))}/"] if names else []
    keys = {pattern: string_terminal({"pattern": pattern}) or "" for pattern in patterns}
    found = []
    for pattern, of in patterns.items():
        rivals = [f"~({keys[other]})" for other in patterns if other != pattern]
        schema = part_of(choice, of)
        if schema is not None and choices(schema):
            found.append((" & ".join([f"({keys[pattern]})", key, *taken, *rivals]), schema))
    if others is not None and choices(others):
        rivals = [f"~({text})" for text in keys.values()]
        found.append((" & ".join([key, *taken, *rivals]), others))
    return found


def _bounds(choice: Schema, required: int, named: int, free: bool) -> tuple[int, int | None]:
    """Return the bounds of the number of free keys that meet the schema's total of properties."""
    low, high = choice.get("minProperties", 0), choice.get("maxProperties")
    least = max(low - required, 0) if isinstance(low, int) else 0
    most = high - named if isinstance(high, int) else None
    if least and (named > required or least > 1 or not free):
        raise refused(
            choice, "that there are enough of the optional properties is not held.", "minProperties"
        )
    if most is not None and most < 0:
        raise refused(
            choice, "that there are not all of the named properties is not held.", "maxProperties"
        )
    return least, most


def _mapping(schema: Schema, key: str) -> Mapping[str, object]:
    found = schema.get(key)
    return found if isinstance(found, Mapping) else {}


def _list(schema: Schema, key: str) -> list[object]:
    found = schema.get(key)
    return found if isinstance(found, list) else []
