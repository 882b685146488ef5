"""Arguments as a Python call has them: ``a=1, b="x", c=None``.

The reader understands what models write (either quotes, Python's and JSON's
constants, values by place); the grammar writes parameters in their order,
constants as Python does and everything else as JSON, which reads the same. Alongside
other values a constant may be either.
"""

from __future__ import annotations

from collections.abc import Sequence

from causerie.chat.call_syntax.base import Read, Schema
from causerie.chat.call_syntax.choices import choices, kinds, kinds_of
from causerie.chat.call_syntax.conjunction import constants, refused
from causerie.chat.call_syntax.members import ObjectMembers, members_of, names_in, property_in
from causerie.chat.call_syntax.relaxed import RelaxedReader
from causerie.chat.grammar_text import GrammarText

_WORDS = {"boolean": ("True", "False"), "null": ("None",)}
_KEY = "/[a-zA-Z_][a-zA-Z0-9_]*/"


class PythonReader:
    """Reads keyword arguments up to the bracket that closes the call, which is left.

    An object in their place, where no first argument can be one, has them all.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._reader: RelaxedReader | None = None

    def feed(self, text: str) -> Read:
        if self._reader is None:
            text = text.lstrip()
            if not text:
                return Read()
            names = names_in(self._schema)
            whole = text[0] == "{" and names and not self._may_be_object(names[0])
            self._reader = RelaxedReader() if whole else RelaxedReader(parameters=names)
        return self._reader.feed(text)

    def _may_be_object(self, name: str) -> bool:
        expected = kinds(property_in(self._schema, name))
        return not expected or "object" in expected


def python_grammar(schema: Schema, scope: GrammarText) -> str:
    """Return the declared parameters in order, required ones always; then other possible ones."""
    found = (_list(choice, scope) for choice in choices(schema))
    lists = list(dict.fromkeys(each for each in found if each is not None))
    if not lists:
        raise refused(schema, "nothing can follow it.")
    return lists[0] if len(lists) == 1 else f"({' | '.join(lists)})"


def _list(schema: Schema, scope: GrammarText) -> str | None:
    members = members_of(schema, _KEY, lambda name: name == name.strip())
    if members is None:
        return None
    written = [
        (one.required, scope.rule(f"{scope.literal(one.name + '=')} {_value(one.schema, scope)}"))
        for one in members.named
    ]
    others = [
        scope.rule(f'{scope.terminal(key)} "=" {_value(of, scope)}') for key, of in members.free
    ]
    return separated(written, others, members, scope.literal(", "), scope)


def separated(
    parts: list[tuple[bool, str]],
    others: list[str],
    members: ObjectMembers,
    comma: str,
    scope: GrammarText,
) -> str:
    """Return the parts in order, then the others in any order; a pair's flag means required."""
    other = scope.rule(" | ".join(others)) if others else ""
    rest = [f"({comma} {other}){members.how_many()}" if other else '""']  # behind what is written
    for needed, part in reversed(parts):
        one = f"{comma} {part}" if needed else f"({comma} {part})?"
        rest.append(scope.rule(f"{one} {rest[-1]}"))
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
    return scope.rule(" | ".join(options))


def _value(schema: Schema, scope: GrammarText) -> str:
    written, others = words(choices(schema))
    options = [f'"{word}"' for word in written] + ([scope.json(schema)] if others else [])
    return f"({' | '.join(options)})"


def words(found: Sequence[Schema]) -> tuple[list[str], bool]:
    """Return the constants that values of some choices may be, and whether others are possible.

    The values that a choice lists are written as JSON.
    """
    free = [kinds_of(choice) for choice in found if constants(choice) is None]
    expected = frozenset[str]().union(*free)
    written = [word for kind in sorted(expected & _WORDS.keys()) for word in _WORDS[kind]]
    return written, not expected or not expected <= _WORDS.keys() or len(free) < len(found)
