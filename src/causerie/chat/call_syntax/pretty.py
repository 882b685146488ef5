"""JSON with the white space of a pretty printer.

Between two tokens stands nothing, a space, or up to two line breaks with an indent. The engines'
own grammar of JSON cannot say that: some of their versions admit one run of white space after
the other, so that a model may go on for ever. Strings with patterns or formats and numbers are
left to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from causerie.chat.call_syntax.base import Schema, spelled
from causerie.chat.call_syntax.choices import choices, kinds_of
from causerie.chat.call_syntax.conjunction import NUMERIC, constants, refused
from causerie.chat.call_syntax.items import items_of
from causerie.chat.call_syntax.members import members_of, patterns_of
from causerie.chat.call_syntax.python import separated
from causerie.chat.call_syntax.rules import ArgumentRules
from causerie.chat.grammar_text import GrammarText

_SPACE = r"( |\n{1,2}[ \t]{0,32})?"
_PLAIN = r'[^"\\\x00-\x1F\x7F]|\\["\\\/bfnrt]'
# Halves of a character come as a pair; where characters are counted, no escape stands for two.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_UNIT = r"\\u([0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})"
_CHARACTER = rf"({_PLAIN}|{_UNIT}|{_PAIR})"
_COUNTED = rf"({_PLAIN}|{_UNIT})"
_KEY = rf'/"{_CHARACTER}*"/'
_LENGTHS = ("minLength", "maxLength")
_MOST_EXACT = 2**53  # of whole numbers as floats
_RULES = (*_LENGTHS, "pattern", "format", "allOf")


def pretty_grammar(schema: Schema, scope: GrammarText) -> str:
    """Return the rule for a document.

    ``schema`` holds its references as :func:`causerie.chat.call_syntax.choices.anchored` leaves
    them. Raises ``InvalidRequest`` (``unsupported_schema``) for what only the engines' own grammar
    can say.
    """
    writer = _Pretty(scope)
    return writer.finish(schema, writer.ways(schema, None))


class _Pretty(ArgumentRules[None]):
    """Writes rules for values."""

    def __init__(self, scope: GrammarText) -> None:
        super().__init__(scope)
        self._open_object = scope.terminal(rf"/\{{{_SPACE}/")
        self._close_object = scope.terminal(rf"/{_SPACE}\}}/")
        self._open_array = scope.terminal(rf"/\[{_SPACE}/")
        self._close_array = scope.terminal(rf"/{_SPACE}\]/")
        self._comma = scope.terminal(rf"/{_SPACE},{_SPACE}/")
        self._colon = scope.terminal(rf"/{_SPACE}:{_SPACE}/")

    def ways(self, schema: Schema, place: None) -> Iterator[str | None]:
        """Yield the ways to write a value."""
        for choice in choices(schema):
            values = constants(choice)
            if values is None:
                yield from (self._kind(kind, choice) for kind in sorted(kinds_of(choice)))
            else:
                yield from (self._constant(value) for value in values)

    def _constant(self, value: object) -> str:
        if isinstance(value, Mapping):
            members = [
                f"{self._text(name)} {self._colon} {self._constant(each)}"
                for name, each in value.items()
            ]
            return self._enclosed(self._open_object, members, self._close_object)
        if isinstance(value, list):
            return self._enclosed(self._open_array, map(self._constant, value), self._close_array)
        if isinstance(value, float) and value.is_integer() and abs(value) <= _MOST_EXACT:
            return f"({self._text(value)} | {self._text(int(value))})"
        return self._text(value)

    def _enclosed(self, begin: str, parts: Iterable[str], end: str) -> str:
        return f"{begin} {f' {self._comma} '.join(parts)} {end}"

    def _text(self, value: object) -> str:
        written = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        return self.scope.literal(written)

    def _kind(self, kind: str, choice: Schema) -> str | None:
        match kind:
            case "string":
                return self._string(choice)
            case "boolean":
                return '("true" | "false")'
            case "null":
                return '"null"'
            case "array":
                inside = items_of(choice).grammar(self._item, self._comma)
                return (
                    None if inside is None else f"{self._open_array} {inside} {self._close_array}"
                )
            case "object":
                return self._object(choice)
        bounds = {key: choice[key] for key in NUMERIC if key in choice}
        return self.scope.json({"type": kind, **bounds})

    def _item(self, schema: Schema) -> str:
        return self.value(schema, None)

    def _string(self, choice: Schema) -> str:
        rules = {key: choice[key] for key in _RULES if key in choice}
        if not rules:
            return self.scope.terminal(rf'/"{_CHARACTER}*"/')
        if rules.keys() <= set(_LENGTHS):
            low, high = rules.get("minLength", 0), rules.get("maxLength", "")
            return self.scope.terminal(rf'/"{_COUNTED}{{{low},{high}}}"/')
        return self.scope.json({"type": "string", **rules})

    def _object(self, choice: Schema) -> str | None:
        members = members_of(choice, _KEY, lambda name: True)
        if members is None:
            return None
        if members.free and (members.named or len(members.free) > 1):
            raise refused(choice, "keys of the model's own stand alongside others.")
        parts = [
            (one.required, f"{self._text(one.name)} {self._colon} {self._item(one.schema)}")
            for one in members.named
        ]
        others = [
            f"{self._free_key(choice)} {self._colon} {self._item(of)}" for _, of in members.free
        ]
        inside = separated(parts, others, members, self._comma, self.scope)
        return f"{self._open_object} {inside} {self._close_object}"

    def _free_key(self, choice: Schema) -> str:
        """Return the rule for the names that no property has, where no other is possible."""
        patterns, shut = [*patterns_of(choice)], choice.get("properties")
        names = shut if isinstance(shut, Mapping) else {}
        if not patterns:
            taken = (f"~/{spelled(json.dumps(name, ensure_ascii=False))}/" for name in names)
            return self.scope.terminal(" & ".join([_KEY, *taken]))
        if names or len(patterns) > 1 or choice.get("additionalProperties") is not False:
            raise refused(choice, "keys of one pattern stand alongside others.")
        return self.scope.json({"type": "string", "pattern": patterns[0]})
