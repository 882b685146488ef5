"""Arguments as a Python call has them: ``a=1, b="x", c=None``.

The reader understands what models write (either quotes, Python's and JSON's
constants, values by place); the grammar writes parameters in their order,
constants as Python does and everything else as JSON, which reads the same.
"""

from __future__ import annotations

from causerie.chat.segments.base import Read, Schema, Scope
from causerie.chat.segments.choices import choices, constants, definitions, kinds, properties
from causerie.chat.segments.relaxed import RelaxedReader

_KEY = "/[a-zA-Z_][a-zA-Z0-9_]*/"


class PythonReader:
    """Reads keyword arguments up to the bracket that closes the call, which is left."""

    def __init__(self, schema: Schema) -> None:
        self._reader = RelaxedReader(parameters=tuple(properties(schema)))

    def feed(self, text: str) -> Read:
        return self._reader.feed(text)


def python_grammar(schema: Schema, scope: Scope) -> str:
    """Each declared parameter in order, the required ones always; any where none is declared."""
    lists = list(dict.fromkeys(_list(choice, scope) for choice in choices(schema)))
    return lists[0] if len(lists) == 1 else f"({' | '.join(lists)})"


def _list(schema: Schema, scope: Scope) -> str:
    declared = properties(schema)
    if not declared:
        extra = schema.get("additionalProperties", False)
        if extra is False:
            return '""'
        value = {**(extra if isinstance(extra, dict) else {}), **definitions(schema)}
        each = scope.rule(f'{_KEY} "=" {_value(value, scope)}')
        return f'({each} (", " {each})*)?'
    required = schema.get("required")
    names = set(required) if isinstance(required, list) else set()
    written = [
        (name in names, scope.rule(f"{scope.literal(name + '=')} {_value(value, scope)}"))
        for name, value in declared.items()
    ]
    return separated(written, ", ", scope)


def separated(parts: list[tuple[bool, str]], separator: str, scope: Scope) -> str:
    """The parts in order with separators between; the first of each pair: must it be there."""
    comma = scope.literal(separator)
    rest = ['""']  # what may follow once something has been written
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
        options.append('""')
    return scope.rule(" | ".join(options))


def _value(schema: Schema, scope: Scope) -> str:
    words = {"boolean": '"True" | "False"', "null": '"None"'}
    expected = kinds(schema)
    listed = any(constants(choice) is not None for choice in choices(schema))
    if expected and expected <= words.keys() and not listed:
        return "(" + " | ".join(words[kind] for kind in sorted(expected)) + ")"
    return scope.json(schema)
