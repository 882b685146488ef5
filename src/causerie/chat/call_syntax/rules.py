"""One rule for each value of a notation, so that values may hold themselves.

They are written one after the other and not one within the other, so no schema
is too deep. Knows no notation.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from causerie.chat.call_syntax.base import Schema
from causerie.chat.call_syntax.choices import definitions
from causerie.chat.call_syntax.conjunction import refused
from causerie.chat.grammar_text import GrammarText

Place = TypeVar("Place", bound=Hashable)

_MOST_CHARACTERS = 150_000  # of all schemas; those that hold at once grow with each reference


class ArgumentRules(ABC, Generic[Place]):
    """The rules of one function's arguments; ``ways`` says how a value is written at a place."""

    def __init__(self, scope: GrammarText) -> None:
        self.scope = scope
        self._names: dict[tuple[str, Place], str] = {}
        self._left = _MOST_CHARACTERS
        self._waiting: list[tuple[str, Schema, Place]] = []

    @abstractmethod
    def ways(self, schema: Schema, place: Place) -> Iterable[str | None]:
        """Return the alternatives of a value; none if no value can follow the schema."""

    def value(self, schema: Schema, place: Place) -> str:
        """Return the name of the rule for a value."""
        shared = definitions(schema)
        own = {name: of for name, of in schema.items() if name not in shared}
        key = (json.dumps(own, sort_keys=True), place)
        if key not in self._names:
            self._left -= len(key[0])
            if self._left < 0:
                raise refused(schema, "its alternatives are too many to be combined.")
            self._names[key] = self.scope.reserve()
            self._waiting.append((self._names[key], schema, place))
        return self._names[key]

    def finish(self, schema: Schema, ways: Iterable[str | None]) -> str:
        """Return the rule for the ways to write all of it, with the rules for what is in it."""
        top = self.scope.rule(_either(schema, ways))
        while self._waiting:
            name, of, place = self._waiting.pop()
            self.scope.define(name, _either(of, self.ways(of, place)))
        return top


def _either(schema: Schema, ways: Iterable[str | None]) -> str:
    possible = dict.fromkeys(way for way in ways if way is not None)
    if not possible:
        raise refused(schema, "nothing can follow it.")
    return " | ".join(possible)
