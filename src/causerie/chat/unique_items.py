"""Watches a JSON document as it grows for an item that repeats an earlier one of its array.

Knows the text of JSON and the rewritten schema of the document; knows nothing of tokens.
Positions are numbers that the caller gives with each piece of text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from causerie.chat.schema.distinct import Applicable, applicable
from causerie.chat.schema.refusal import step
from causerie.chat.schema.values import canonical


@dataclass(frozen=True, slots=True)
class Repeat:
    """An item that equals an earlier one of its array."""

    pointer: str
    """Of the array."""
    separated: int
    """Position of the text that has the comma before the item."""
    head: str
    """That text, without the comma and what follows."""


@dataclass(slots=True)
class _Container:
    """An array or object that is not closed yet."""

    schemas: Applicable
    is_array: bool
    distinct: bool
    pointer: str
    index: int = 0
    name: str = ""
    """Of the last property."""
    before_name: bool = True
    start: int = 0
    """Offset at which the last item or name began."""
    empty: bool = True
    separated: int | None = None
    """Position of the comma before an item that may still repeat an earlier one."""
    head: str = ""
    earlier: set[str] = field(default_factory=set)

    def inside(self) -> tuple[Applicable, str]:
        """Return what applies to the value that comes, and its pointer."""
        if self.is_array:
            return self.schemas.item(self.index), step(self.pointer, self.index)
        return self.schemas.property(self.name), step(self.pointer, self.name)


class UniqueItems:
    """One document, as far as it has been read.

    Text that is no JSON is passed over: the constraint or the last check reports it.
    """

    def __init__(self, rules: Mapping[str, object]) -> None:
        self.repeat: Repeat | None = None
        self.content = 0
        """Characters so far of strings, numbers and literals that are values.

        Of an empty value it is the end.
        """
        self._root = applicable(rules)
        self._open: list[_Container] = []
        self._text = ""
        self._piece = 0  # offset at which the last piece began
        self._position = 0
        self._in_string = self._escaped = self._in_scalar = self._broken = False

    @property
    def held_from(self) -> int | None:
        """The position from which the text may still have to be taken back."""
        return next((one.separated for one in self._open if one.separated is not None), None)

    def feed(self, text: str, position: int) -> None:
        """Read on, up to the first repeated item."""
        self._piece, self._position = len(self._text), position
        self._text += text
        for offset, character in enumerate(text, self._piece):
            if self.repeat is not None or self._broken:
                return
            try:
                self._read(character, offset)
            except (ValueError, RecursionError):
                self._broken = True

    def _read(self, character: str, offset: int) -> None:
        if self._in_string:
            self._read_string(character, offset)
        elif character == '"':
            self._begin(offset)
            self._in_string = True
        elif character in "{[":
            self._begin(offset)
            self._enter(is_array=character == "[")
        elif character in "]},:" or character.isspace():
            if self._in_scalar:
                self._in_scalar = False
                self._end(offset)
            self._read_structure(character, offset)
        else:
            if not self._in_scalar:
                self._begin(offset)
                self._in_scalar = True
            self.content += 1

    def _read_structure(self, character: str, offset: int) -> None:
        if self.repeat is not None or not self._open:
            return
        if character in "]}":
            self.content += self._open.pop().empty
            self._end(offset + 1)
        elif character == ",":
            self._separate(self._open[-1], offset)

    def _read_string(self, character: str, offset: int) -> None:
        if not self._escaped and character == '"':
            self._in_string = False
            self.content += self._text[offset - 1] == '"' and not self._is_name
            self._end(offset + 1)
            return
        self._escaped = character == "\\" and not self._escaped
        self.content += not self._is_name

    @property
    def _is_name(self) -> bool:
        return bool(self._open) and not self._open[-1].is_array and self._open[-1].before_name

    def _begin(self, offset: int) -> None:
        if not self._open:
            return
        self._open[-1].empty = False
        if self._open[-1].is_array or self._open[-1].before_name:
            self._open[-1].start = offset

    def _enter(self, *, is_array: bool) -> None:
        schemas, pointer = self._open[-1].inside() if self._open else (self._root, "#")
        distinct = is_array and schemas.distinct
        self._open.append(_Container(schemas, is_array, distinct, pointer))

    def _separate(self, container: _Container, offset: int) -> None:
        container.before_name = True
        container.index += 1
        if container.distinct:
            container.separated = self._position
            container.head = self._text[self._piece : offset]

    def _end(self, offset: int) -> None:
        """End a value or a name."""
        if not self._open:
            return
        container = self._open[-1]
        if self._is_name:
            container.name = json.loads(self._text[container.start : offset])
            container.before_name = False
        elif container.distinct:
            self._compare(container, json.loads(self._text[container.start : offset]))

    def _compare(self, container: _Container, item: object) -> None:
        written = canonical(item)
        if written in container.earlier and container.separated is not None:
            self.repeat = Repeat(container.pointer, container.separated, container.head)
            return
        container.earlier.add(written)
        container.separated = None
