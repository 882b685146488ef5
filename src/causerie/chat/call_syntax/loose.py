"""An object with bare keys and strings between a marker of the family's own.

``{city:<|"|>Paris<|"|>,days:3,tags:[<|"|>a<|"|>]}``: no white space, no escapes,
keys in alphabetical order, ``None`` for null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from causerie.chat.call_syntax.base import Read, Schema
from causerie.chat.call_syntax.choices import choices, kinds_of
from causerie.chat.call_syntax.conjunction import NUMERIC, constants, refused
from causerie.chat.call_syntax.items import items_of
from causerie.chat.call_syntax.members import members_of
from causerie.chat.call_syntax.python import separated
from causerie.chat.call_syntax.relaxed import RelaxedReader
from causerie.chat.call_syntax.rules import ArgumentRules
from causerie.chat.call_syntax.strings import string_terminal
from causerie.chat.grammar_text import GrammarText

_KEY = "/[a-zA-Z0-9_.\\-]+/"
_BARE = re.compile(r"[^\s:,{}\[\]\"'<]([^:,{}\[\]]*[^\s:,{}\[\]])?")


class LooseReader:
    """Reads the object, braces included."""

    def __init__(self, quote: str) -> None:
        self._reader = RelaxedReader(quote=quote)

    def feed(self, text: str) -> Read:
        return self._reader.feed(text)


def loose_grammar(quote: str, schema: Schema, scope: GrammarText) -> str:
    """Return the object by a function's parameters."""
    writer = _Loose(quote, scope)
    return writer.finish(schema, map(writer.object, choices(schema)))


class _Loose(ArgumentRules[None]):
    """Writes rules for values."""

    def __init__(self, quote: str, scope: GrammarText) -> None:
        super().__init__(scope)
        self._quote = quote

    def ways(self, schema: Schema, place: None) -> Iterator[str | None]:
        """Yield the ways to write a value."""
        for choice in choices(schema):
            if constants(choice) is None:
                yield from (self._kind(kind, choice) for kind in sorted(kinds_of(choice)))
            else:
                yield from self._listed(choice)

    def _listed(self, choice: Schema) -> list[str]:
        values = constants(choice) or []
        if self._quote in json.dumps(values, ensure_ascii=False).replace('\\"', '"'):
            raise refused(choice, "a constant holds the text that ends a string of this model.")
        return [self.scope.literal(loose(each, self._quote)) for each in values]

    def _kind(self, kind: str, choice: Schema) -> str | None:
        match kind:
            case "string":
                return self._string(choice)
            case "boolean":
                return '("true" | "false")'
            case "null":
                return '"None"'
            case "array":
                inside = items_of(choice).grammar(self._item, '","')
                return None if inside is None else f'"[" {inside} "]"'
            case "object":
                return self.object(choice)
        bounds = {key: choice[key] for key in NUMERIC if key in choice}
        return self.scope.json({"type": kind, **bounds})

    def _item(self, schema: Schema) -> str:
        return self.value(schema, None)

    def object(self, choice: Schema) -> str | None:
        """Return an object with its braces; ``None`` if there can be none."""
        members = members_of(choice, _KEY, lambda name: self._quote not in name)
        if members is None:
            return None
        named = sorted(members.named, key=lambda one: (one.name.lower(), one.name))
        parts = [
            (one.required, f"{self.scope.literal(self._key(one.name))} {self._item(one.schema)}")
            for one in named
        ]
        free = members.free
        others = [f'{self.scope.terminal(key)} ":" {self._item(of)}' for key, of in free]
        inside = separated(parts, others, members, '","', self.scope)
        return f'"{{" {inside} "}}"'

    def _key(self, name: str) -> str:
        """Return the name and its colon; in quotes if it would not be read as a name otherwise."""
        return f"{name}:" if _BARE.fullmatch(name) else f"{self._quote}{name}{self._quote}:"

    def _string(self, choice: Schema) -> str:
        quote = self.scope.literal(self._quote)
        bounded = string_terminal(choice)
        if bounded is not None:
            return f"{quote} {self.scope.closed(bounded, self._quote)}"
        return f"{quote} {self.scope.until(self._quote)}"


def loose(value: object, quote: str) -> str:
    """Return a value in the loose notation."""
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if value is None:
        return "None"
    if isinstance(value, Mapping):
        pairs = sorted(value.items(), key=lambda item: (item[0].lower(), item[0]))
        return "{" + ",".join(f"{key}:{loose(of, quote)}" for key, of in pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(loose(item, quote) for item in value) + "]"
    return json.dumps(value)
