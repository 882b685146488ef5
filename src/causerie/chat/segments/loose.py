"""An object with bare keys and strings between a marker of the family's own.

``{city:<|"|>Paris<|"|>,days:3,tags:[<|"|>a<|"|>]}``: no white space, no escapes,
keys in alphabetical order, ``None`` for null. The grammar enforces types,
choices, bounds, lengths, patterns and formats, and nothing that a schema says
beyond them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from causerie.chat.segments.base import Read, Schema, Scope, without
from causerie.chat.segments.choices import choices, kinds, properties, resolved
from causerie.chat.segments.parameters import string_terminal
from causerie.chat.segments.python import separated
from causerie.chat.segments.relaxed import RelaxedReader

_KEY = "/[a-zA-Z0-9_.\\-]+/"
_ALL = ("string", "number", "boolean", "null", "array", "object")
_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


class LooseReader:
    """Reads the object, braces included."""

    def __init__(self, quote: str, schema: Schema) -> None:
        self._reader = RelaxedReader(quote=quote)

    def feed(self, text: str) -> Read:
        return self._reader.feed(text)


def loose_grammar(quote: str, schema: Schema, scope: Scope) -> str:
    """The object by a function's parameters."""
    writer = _Loose(quote, scope, schema)
    objects = dict.fromkeys(writer.object(choice) for choice in choices(schema))
    return scope.rule(" | ".join(objects))


class _Loose:
    """Writes rules for values; those that refer to themselves are written once."""

    def __init__(self, quote: str, scope: Scope, root: Schema) -> None:
        self._quote = quote
        self._scope = scope
        self._root = root
        self._references: dict[str, str] = {}
        self._any: str | None = None

    def object(self, schema: Schema) -> str:
        declared = properties(schema)
        if not declared:
            if schema.get("additionalProperties", True) is False:
                return '"{}"'
            extra = schema.get("additionalProperties")
            value = self.value(extra) if isinstance(extra, Mapping) else self.anything()
            pair = self._scope.rule(f'{_KEY} ":" {value}')
            return self._scope.rule(f'"{{" ({pair} ("," {pair})*)? "}}"')
        required = schema.get("required")
        names = set(required) if isinstance(required, list) else set()
        parts = [
            (name in names, self._scope.rule(f"{self._scope.literal(name + ':')} {self.value(of)}"))
            for name, of in sorted(declared.items(), key=lambda item: (item[0].lower(), item[0]))
        ]
        return self._scope.rule(f'"{{" {separated(parts, ",", self._scope)} "}}"')

    def value(self, schema: Schema) -> str:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._referred(reference)
        for key in ("anyOf", "oneOf"):
            options = schema.get(key)
            if isinstance(options, list) and options:
                return self._one_of([self.value(each) for each in options])
        chosen = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(chosen, list):
            return self._one_of([self._scope.literal(loose(each, self._quote)) for each in chosen])
        expected = kinds(schema) or frozenset(_ALL)
        if expected == frozenset(_ALL):
            return self.anything()
        return self._one_of([self._kind(kind, schema) for kind in sorted(expected)])

    def anything(self) -> str:
        """Any value at all, as one rule that refers to itself."""
        if self._any is None:
            name = self._scope.reserve()
            self._any = name
            pair = f'{_KEY} ":" {name}'
            options = [
                *(self._kind(kind, {}) for kind in ("string", "number", "boolean", "null")),
                f'"[" ({name} ("," {name})*)? "]"',
                f'"{{" ({pair} ("," {pair})*)? "}}"',
            ]
            self._scope.define(name, " | ".join(options))
        return self._any

    def _referred(self, reference: str) -> str:
        if reference not in self._references:
            name = self._scope.reserve()
            self._references[reference] = name
            self._scope.define(name, self.value(resolved(self._root, reference)))
        return self._references[reference]

    def _one_of(self, options: Sequence[str]) -> str:
        distinct = list(dict.fromkeys(options))
        return distinct[0] if len(distinct) == 1 else self._scope.rule(" | ".join(distinct))

    def _kind(self, kind: str, schema: Schema) -> str:
        match kind:
            case "string":
                return self._string(schema)
            case "boolean":
                return '("true" | "false")'
            case "null":
                return '"None"'
            case "array":
                return self._array(schema)
            case "object":
                return self.object(schema)
        bounds = {key: schema[key] for key in _NUMERIC if key in schema}
        return self._scope.json({"type": kind, **bounds})

    def _string(self, schema: Schema) -> str:
        quote = self._scope.literal(self._quote)
        bounded = string_terminal(schema)
        if bounded is not None:
            inside = self._scope.terminal(f"{bounded} & {without(self._quote)}")
            return f"{quote} {inside} {quote}"
        return f"{quote} {self._scope.until(self._quote)}"

    def _array(self, schema: Schema) -> str:
        items = schema.get("items")
        item = self.value(items) if isinstance(items, Mapping) else self.anything()
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        low = low if isinstance(low, int) else 0
        if high == 0:
            return '"[]"'
        more = f"{max(low - 1, 0)},{high - 1 if isinstance(high, int) else ''}"
        filled = f'"[" {item} ("," {item}){{{more}}} "]"'
        return f'({filled} | "[]")' if low == 0 else f"({filled})"


def loose(value: object, quote: str) -> str:
    """A value in the loose notation."""
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
