"""Arguments as a Python call has them, or as an object with bare keys and marked strings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from causerie.chat.call_syntax import members as grammars
from causerie.chat.call_syntax.base import Read, Schema
from causerie.chat.call_syntax.choices import choices, kinds, kinds_of, refused
from causerie.chat.call_syntax.relaxed import RelaxedReader, loose_text
from causerie.chat.grammar_text import GrammarText
from causerie.chat.schema.keywords import constants

# The reader accepts what models write: either quotes, constants of Python and of JSON, values by
# position. The grammar writes constants as Python does and everything else as JSON.

_WORDS = {"boolean": ("True", "False"), "null": ("None",)}
_KEY = "/[a-zA-Z_][a-zA-Z0-9_]*/"


class PythonReader:
    """Reads keyword arguments, or one object that has them all, up to the ``)``, which is left."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._relaxed_reader: RelaxedReader | None = None

    def feed(self, text: str) -> Read:
        if self._relaxed_reader is None:
            text = text.lstrip()
            if not text:
                return Read()
            names = grammars.names_in(self._schema)
            expected = kinds(grammars.property_in(self._schema, names[0])) if names else ()
            whole = text[0] == "{" and expected and "object" not in expected
            self._relaxed_reader = RelaxedReader() if whole else RelaxedReader(parameters=names)
        return self._relaxed_reader.feed(text)


def python_grammar(schema: Schema, grammar: GrammarText) -> str:
    """Return the expression of arguments: the declared ones in order, then other possible ones."""
    ways = (_write_arguments_rule(choice, grammar) for choice in choices(schema))
    return f"({grammars.either(schema, ways)})"


def _write_arguments_rule(choice: Schema, grammar: GrammarText) -> str | None:
    members = grammars.members_of(choice, _KEY, lambda name: name == name.strip())
    if members is None:
        return None
    written = []
    for one in members.named:
        key = grammar.literal(f"{one.name}=")
        written.append((one.required, grammar.rule(f"{key} {_write_value(one.schema, grammar)}")))
    others = [
        grammar.rule(f'{grammar.terminal(key)} "=" {_write_value(of, grammar)}')
        for key, of in members.free
    ]
    return separated(written, others, members, grammar.literal(", "), grammar)


def separated(
    parts: list[tuple[bool, str]],
    others: list[str],
    members: grammars.ObjectMembers,
    comma: str,
    grammar: GrammarText,
) -> str:
    """Return the rule of ``parts`` in order (``True``: required), then ``others`` in any order."""
    other = grammar.rule(" | ".join(others)) if others else ""
    rest = [f"({comma} {other}){members.how_many()}" if other else '""']  # behind what is written
    for needed, part in reversed(parts):
        one = f"{comma} {part}" if needed else f"({comma} {part})?"
        rest.append(grammar.rule(f"{one} {rest[-1]}"))
    rest.reverse()
    options = []
    for at, (needed, part) in enumerate(parts):
        options.append(f"{part} {rest[at + 1]}")
        if needed:
            break
    else:
        if other:
            more = f"({comma} {other}){members.how_many(but=1)}" if members.most != 1 else ""
            options.append(f"{other} {more}")
        if not (other and members.least):
            options.append('""')
    return grammar.rule(" | ".join(options))


def _write_value(schema: Schema, grammar: GrammarText) -> str:
    written, others = words(choices(schema))
    options = [f'"{word}"' for word in written] + ([grammar.json(schema)] if others else [])
    return f"({' | '.join(options)})"


def words(found: Sequence[Schema]) -> tuple[list[str], bool]:
    """Return the constants of Python that a value may be, and whether others are possible."""
    free = [kinds_of(choice) for choice in found if constants(choice) is None]
    expected = frozenset[str]().union(*free)
    written = [word for kind in sorted(expected & _WORDS.keys()) for word in _WORDS[kind]]
    return written, not expected or not expected <= _WORDS.keys() or len(free) < len(found)


# An object with bare keys and strings between a marker of the family's own.
#
# ``{city:<|"|>Paris<|"|>,days:3,tags:[<|"|>a<|"|>]}``: no white space, no escapes,
# keys in alphabetical order, ``None`` for null.

_BARE_KEY = "/[a-zA-Z0-9_.\\-]+/"
_BARE = re.compile(r"[^\s:,{}\[\]\"'<]([^:,{}\[\]]*[^\s:,{}\[\]])?")


def loose_grammar(quote: str, schema: Schema, grammar: GrammarText) -> str:
    writer = _Loose(quote, grammar)
    return writer.finish(schema, map(writer.object, choices(schema)))


class _Loose(grammars.JsonLikeRules):
    null = '"None"'

    def __init__(self, quote: str, grammar: GrammarText) -> None:
        super().__init__(grammar)
        self._string_mark = quote

    def constants(self, choice: Schema, values: Sequence[object]) -> Iterable[str]:
        if self._string_mark in json.dumps(values, ensure_ascii=False).replace('\\"', '"'):
            raise refused(choice, "a constant holds the text that ends a string of this model.")
        return [
            self.grammar.literal(loose_text(each, self._string_mark, ordered=True))
            for each in values
        ]

    def object(self, choice: Schema) -> str | None:
        members = grammars.members_of(choice, _BARE_KEY, lambda name: self._string_mark not in name)
        if members is None:
            return None
        named = sorted(members.named, key=lambda one: (one.name.lower(), one.name))
        parts = []
        for one in named:
            mark = "" if _BARE.fullmatch(one.name) else self._string_mark
            key = self.grammar.literal(f"{mark}{one.name}{mark}:")
            parts.append((one.required, f"{key} {self.item(one.schema)}"))
        free = members.free
        others = [f'{self.grammar.terminal(key)} ":" {self.item(of)}' for key, of in free]
        inside = separated(parts, others, members, '","', self.grammar)
        return f'"{{" {inside} "}}"'

    def string(self, choice: Schema) -> str:
        quote = self.grammar.literal(self._string_mark)
        bounded = grammars.text_terminal(choice)
        if bounded is not None:
            return f"{quote} {self.grammar.closed(bounded, self._string_mark)}"
        return f"{quote} {self.grammar.until(self._string_mark)}"
