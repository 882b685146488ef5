"""Arguments as one JSON object, plain or with the white space of a pretty printer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from causerie.chat.call_syntax.base import Read, Schema, Unreadable, spelled
from causerie.chat.call_syntax.choices import refused
from causerie.chat.call_syntax.members import JsonLikeRules, members_of, patterns_of
from causerie.chat.call_syntax.python import separated
from causerie.chat.grammar_text import GrammarText
from causerie.chat.schema.keywords import as_mapping
from causerie.protocol.sse import Brackets


class JsonReader:
    """Reads an object, or a string that holds the text of one, up to its last bracket or quote."""

    def __init__(self) -> None:
        self._pieces_if_quoted: list[str] | None = None  # ``None`` where it is an object
        self._has_begun = False
        self._bracket_tracker = Brackets(strings=True)

    def feed(self, text: str) -> Read:
        if not self._has_begun:
            text = text.lstrip()
            if not text:
                return Read()
            if text[0] not in '"{':
                raise Unreadable
            self._has_begun = True
            self._pieces_if_quoted = [] if text[0] == '"' else None
        end = self._bracket_tracker.read(text)
        if self._pieces_if_quoted is not None:
            self._pieces_if_quoted.append(text[:end])
            if not self._bracket_tracker.closed:
                return Read()
            try:
                inside = json.loads("".join(self._pieces_if_quoted), strict=False).strip()
                if not isinstance(json.loads(inside), dict):
                    raise Unreadable
            except (ValueError, RecursionError):
                raise Unreadable from None
            return Read(arguments=inside, rest=text[end:])
        if not self._bracket_tracker.closed:
            return Read(arguments=text)
        return Read(arguments=text[:end], rest=text[end:])


# Some versions of the engines' own grammar of JSON admit one run of white space after the other, so
# that a model may go on for ever. Here white space is bounded; strings with patterns or formats,
# and numbers, are left to the engines' grammar.

MOST_RULES = 100_000
"""Characters of rules: a longer grammar takes long to compile."""
SPACE = r"( |\n{1,2}[ \t]{0,32})?"
_PLAIN = r'[^"\\\x00-\x1F\x7F]|\\["\\\/bfnrt]'
# Halves of a character come as a pair; where characters are counted, no escape stands for two.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_UNIT = r"\\u([0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})"
_CHARACTER = rf"({_PLAIN}|{_UNIT}|{_PAIR})"
_COUNTED = rf"({_PLAIN}|{_UNIT})"
_KEY = rf'/"{_CHARACTER}*"/'
_LENGTHS = ("minLength", "maxLength")


def pretty_grammar(schema: Schema, grammar: GrammarText) -> str:
    """Return the rule of a pretty-printed document; raise ``SchemaRefused`` if it has none.

    ``schema`` is one that :func:`causerie.chat.call_syntax.choices.anchored` has rewritten.
    """
    writer = _Pretty(grammar)
    return writer.finish(schema, writer.ways(schema, None))


class _Pretty(JsonLikeRules):
    def __init__(self, grammar: GrammarText) -> None:
        super().__init__(grammar)
        self._opening_brace = grammar.terminal(rf"/\{{{SPACE}/")
        self._closing_brace = grammar.terminal(rf"/{SPACE}\}}/")
        self.brackets = (grammar.terminal(rf"/\[{SPACE}/"), grammar.terminal(rf"/{SPACE}\]/"))
        self.comma = grammar.terminal(rf"/{SPACE},{SPACE}/")
        self._colon = grammar.terminal(rf"/{SPACE}:{SPACE}/")

    def constants(self, choice: Schema, values: Sequence[object]) -> Iterable[str]:
        return map(self._write_constant, values)

    def _write_constant(self, constant: object) -> str:
        if isinstance(constant, Mapping):
            members = [
                f"{self._json_literal(name)} {self._colon} {self._write_constant(each)}"
                for name, each in constant.items()
            ]
            return self._join_with_brackets(self._opening_brace, members, self._closing_brace)
        if isinstance(constant, list):
            begin, end = self.brackets
            return self._join_with_brackets(begin, map(self._write_constant, constant), end)
        if isinstance(constant, float) and constant.is_integer() and abs(constant) <= 2**53:
            return f"({self._json_literal(constant)} | {self._json_literal(int(constant))})"
        return self._json_literal(constant)

    def _join_with_brackets(self, opening: str, items: Iterable[str], closing: str) -> str:
        return f"{opening} {f' {self.comma} '.join(items)} {closing}"

    def _json_literal(self, constant: object) -> str:
        written = json.dumps(constant, ensure_ascii=False).replace("\x7f", "\\u007f")
        return self.grammar.literal(written)

    def string(self, choice: Schema) -> str:
        known = (*_LENGTHS, "pattern", "format", "allOf")
        rules = {key: choice[key] for key in known if key in choice}
        if not rules:
            return self.grammar.terminal(rf'/"{_CHARACTER}*"/')
        if rules.keys() <= set(_LENGTHS):
            low, high = rules.get("minLength", 0), rules.get("maxLength", "")
            return self.grammar.terminal(rf'/"{_COUNTED}{{{low},{high}}}"/')
        return self.grammar.json({"type": "string", **rules})

    def object(self, choice: Schema) -> str | None:
        members = members_of(choice, _KEY, lambda name: True)
        if members is None:
            return None
        if members.free and (members.named or len(members.free) > 1):
            raise refused(choice, "keys of the model's own stand alongside others.")
        parts = [
            (one.required, f"{self._json_literal(one.name)} {self._colon} {self.item(one.schema)}")
            for one in members.named
        ]
        others = [
            f"{self._write_free_key_name(choice)} {self._colon} {self.item(of)}"
            for _, of in members.free
        ]
        inside = separated(parts, others, members, self.comma, self.grammar)
        return f"{self._opening_brace} {inside} {self._closing_brace}"

    def _write_free_key_name(self, choice: Schema) -> str:
        patterns, names = [*patterns_of(choice)], as_mapping(choice.get("properties"))
        if not patterns:
            taken = (f"~/{spelled(json.dumps(name, ensure_ascii=False))}/" for name in names)
            return self.grammar.terminal(" & ".join([_KEY, *taken]))
        if names or len(patterns) > 1 or choice.get("additionalProperties") is not False:
            raise refused(choice, "keys of one pattern stand alongside others.")
        return self.grammar.json({"type": "string", "pattern": patterns[0]})
