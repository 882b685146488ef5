"""Watches JSON documents of a reply as they grow for what breaks a rule that no grammar has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile

from causerie.chat.call_syntax.base import GrowingList, GrowingText
from causerie.chat.parser import Mode, Parser
from causerie.chat.schema.certain import AppliedSchemas, applied_schemas
from causerie.chat.schema.compiled import Work, WorkExceeded
from causerie.chat.schema.keywords import step
from causerie.chat.schema.values import canonical
from causerie.chat.validation import AT_ONCE, MOST_STEPS, CheckedSchema
from causerie.protocol.events import ContentEvent, ReasoningDelta, TextDelta, ToolCallStarted

_MOST_STEPS = 10 * MOST_STEPS  # for all values of a reply


@dataclass(frozen=True, slots=True)
class Repeat:
    """An item that equals an earlier one of its array."""

    pointer: str  # of the array
    separated: int  # position of the text that has the comma before the item
    head: str  # that text, without the comma and what follows


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A complete value that breaks a rule."""

    reason: str
    start: int  # position of the text in which the value begins
    blamed: tuple[int, int] | None
    """Positions of the beginning and the end of the part that the fault is about, with its name."""


Fault = Repeat | BrokenRule


@dataclass(frozen=True, slots=True)
class _Value:
    certain: AppliedSchemas
    checked: tuple[Mapping[str, object], ...]
    start: int
    position: int


@dataclass(slots=True)
class _Container:
    schemas: AppliedSchemas
    is_array: bool
    distinct: bool
    pointer: str
    index: int = 0
    name: str = ""  # of the last property
    named: int = 0  # position of the last name
    before_name: bool = True
    start: int = 0  # offset at which the last item or name began
    empty: bool = True
    separated: int | None = None  # position of the comma before an item that may be a repeat
    head: str = ""
    earlier: set[str] = field(default_factory=set)

    def inside(self, schemas: AppliedSchemas) -> AppliedSchemas:
        return schemas.item(self.index) if self.is_array else schemas.property(self.name)


_Parts = GrowingList[tuple[str, int, int]]
_BoundedCheck = Callable[[Work], BrokenRule | None]


def _find_broken_rule(
    schema: CheckedSchema, value: object, pointer: str, position: int, parts: _Parts, work: Work
) -> BrokenRule | None:
    fault = schema.fault(value, work)
    if fault is None:
        return None
    if fault.pointer == "#":
        return BrokenRule(fault.reason, position, None)
    at = pointer + fault.pointer[1:]
    spans = ((begin, end) for place, begin, end in parts if place == at)
    return BrokenRule(fault.reason, position, next(spans, None))


class DocumentWatch:
    """Reads one JSON document as it grows, and finds the first item or value that breaks a rule.

    Text that is no JSON is passed over: the constraint or the last check reports it. What takes too
    long to check while it is read is left to :meth:`catch_up`.
    """

    def __init__(self, schema: CheckedSchema) -> None:
        rules = schema.rules
        self.fault: Fault | None = None
        self.content = 0
        """Characters so far of strings, numbers and literals that are values.

        Of an empty value it is the end.
        """
        self._remaining_work = Work(_MOST_STEPS)
        self._waiting_checks: list[_BoundedCheck] = []
        self._root_schemas = applied_schemas(rules, certain=False)
        self._certain_root_schemas = applied_schemas(rules, certain=True)
        self._stack: list[_Container] = []
        self._open_values: list[_Value] = []
        self._blamable_part_spans = _Parts()  # of complete parts of values that are checked
        self._document_text = GrowingText()
        self._piece_offset = 0  # offset at which the last piece began
        self._token_position = 0
        self._string_offset = 0  # offset at which the last string began
        self._is_in_string = self._is_escaped = self._is_in_scalar = self._is_not_json = False

    @property
    def depth(self) -> int:
        return len(self._stack)

    @property
    def held_from(self) -> int | None:
        """Return the position of the first token that may still be taken back, if any."""
        items = (one.separated for one in self._stack if one.separated is not None)
        values = (one.position for one in self._open_values if one.checked)
        held = [*islice(items, 1), *islice(values, 1)]
        return min(held) if held else None

    def feed(self, text: str, position: int) -> None:
        self._piece_offset, self._token_position = self._document_text.size, position
        self._document_text.add(text)
        for offset, character in enumerate(text, self._piece_offset):
            if self.fault is not None or self._is_not_json:
                return
            try:
                self._read_character(character, offset)
            except (ValueError, RecursionError):
                self._is_not_json = True

    def end(self) -> None:
        """Read the end of the text, which ends a number or a literal that is all of it."""
        if self._is_in_scalar and not self._stack and self.fault is None:
            self._is_in_scalar = False
            try:
                self._end_value_or_name(self._document_text.size)
            except ValueError:
                self._is_not_json = True

    def _read_character(self, character: str, offset: int) -> None:
        if self._is_in_string:
            self._read_string_character(character, offset)
        elif character == '"':
            self._begin_value_or_name(offset)
            self._is_in_string, self._string_offset = True, offset
        elif character in "{[":
            self._begin_value_or_name(offset)
            is_array = character == "["
            outer = self._stack[-1] if self._stack else None
            schemas = outer.inside(outer.schemas) if outer is not None else self._root_schemas
            distinct = is_array and schemas.distinct
            self._stack.append(_Container(schemas, is_array, distinct, self._current_pointer))
        elif character in "]},:" or character.isspace():
            if self._is_in_scalar:
                self._is_in_scalar = False
                self._end_value_or_name(offset)
            self._read_structural_character(character, offset)
        else:
            if not self._is_in_scalar:
                self._begin_value_or_name(offset)
                self._is_in_scalar = True
            self.content += 1

    def _read_structural_character(self, character: str, offset: int) -> None:
        if self.fault is not None or not self._stack:
            return
        if character in "]}":
            self.content += self._stack.pop().empty
            self._end_value_or_name(offset + 1)
        elif character == ",":
            container = self._stack[-1]
            container.before_name = True
            container.index += 1
            if container.distinct:
                container.separated = self._token_position
                container.head = self._document_text.between(self._piece_offset, offset)

    def _read_string_character(self, character: str, offset: int) -> None:
        if not self._is_escaped and character == '"':
            self._is_in_string = False
            self.content += offset == self._string_offset + 1 and not self._is_property_name
            self._end_value_or_name(offset + 1)
            return
        self._is_escaped = character == "\\" and not self._is_escaped
        self.content += not self._is_property_name

    @property
    def _is_property_name(self) -> bool:
        return bool(self._stack) and not self._stack[-1].is_array and self._stack[-1].before_name

    def _begin_value_or_name(self, offset: int) -> None:
        if self._stack:
            self._stack[-1].empty = False
            self._stack[-1].start = offset
        if self._is_property_name:
            self._stack[-1].named = self._token_position
        else:
            held = self._certain_root_schemas
            if self._stack:
                held = self._stack[-1].inside(self._open_values[-1].certain)
            self._open_values.append(_Value(held, held.checked, offset, self._token_position))

    def _end_value_or_name(self, offset: int) -> None:
        if self._is_property_name:
            container = self._stack[-1]
            container.name = json.loads(self._document_text.between(container.start, offset))
            container.before_name = False
            return
        value = self._open_values.pop()
        distinct = bool(self._stack) and self._stack[-1].distinct
        if value.checked or any(above.checked for above in self._open_values):
            named = bool(self._stack) and not self._stack[-1].is_array
            begin = self._stack[-1].named if named else value.position
            self._blamable_part_spans.append((self._current_pointer, begin, self._token_position))
        if not distinct and not value.checked:
            return
        read = json.loads(self._document_text.between(value.start, offset))
        self._set_fault_of_value(value, read)
        if not distinct or self.fault is not None:
            return
        container, written = self._stack[-1], canonical(read)
        repeated = written in container.earlier
        if repeated and container.separated is not None:
            self.fault = Repeat(container.pointer, container.separated, container.head)
            return
        if not repeated:
            container.earlier.add(written)
        container.separated = None

    @property
    def _current_pointer(self) -> str:
        if not self._stack:
            return "#"
        inner = self._stack[-1]
        return step(inner.pointer, inner.index if inner.is_array else inner.name)

    def _set_fault_of_value(self, open_value: _Value, decoded: object) -> None:
        for rules in open_value.checked:
            schema = CheckedSchema(rules)
            known = self._current_pointer, open_value.position, copy(self._blamable_part_spans)
            check = partial(_find_broken_rule, schema, decoded, *known)
            try:
                fault = self._run_check_on_budget(AT_ONCE, check)
            except WorkExceeded:
                self._waiting_checks.append(check)
                continue
            if fault is not None:
                self.fault = fault
                return
        if not any(above.checked for above in self._open_values):
            self._blamable_part_spans = _Parts()

    def _run_check_on_budget(self, max_steps: int, check: _BoundedCheck) -> BrokenRule | None:
        # All checks of a reply have a number of steps together.
        granted = min(max_steps, self._remaining_work.left)
        work = Work(granted)
        try:
            return check(work)
        finally:
            self._remaining_work.left -= granted - max(work.left, 0)

    @property
    def is_behind(self) -> bool:
        return bool(self._waiting_checks)

    def catch_up(self) -> None:
        """Do the checks that took too long while the text was read; give up longer ones."""
        waiting, self._waiting_checks = self._waiting_checks, []
        for check in waiting:
            if self.fault is not None:
                return
            with suppress(WorkExceeded):  # the last check says so
                self.fault = self._run_check_on_budget(MOST_STEPS, check)


# Tokens that are taken back are read here alone, never by the parser whose events are sent.

_PIECE = 4096  # characters
_TOKENS_A_COPY = 64


class WatchedDocuments:
    """Watches a reply's answer, or each call's arguments, for values that break a schema's rules.

    ``answer`` and ``functions`` are the rewritten schemas, ``resumed`` is the beginning of the
    answer that the prompt has, and ``texts`` came before the tokens that are counted here; see
    :meth:`read_before`.
    """

    def __init__(
        self,
        parser: Parser,
        answer: CheckedSchema | None,
        functions: Mapping[str, CheckedSchema],
        *,
        resumed: str = "",
        texts: Sequence[str] = (),
    ) -> None:
        self._parser = parser
        self._schemas_by_function = functions
        self.document = DocumentWatch(answer) if answer is not None else None
        self.read = 0  # tokens that have been read
        self._token_count_at_last_event = 0  # tokens read when the parser last returned events
        self.final = 0  # tokens that nothing will take back
        # Positions of the tokens that have a part of a value, and not only structure.
        self._value_token_positions = GrowingList[int]()
        self._resumed_answer, self._earlier_token_texts = resumed, texts

    def read_before(self) -> Iterator[None]:
        """Read the text before the watched tokens, piece by piece."""
        for at in range(0, len(self._resumed_answer), _PIECE):
            if self.document is not None:
                self.document.feed(self._resumed_answer[at : at + _PIECE], -1)
            yield
        for text in self._earlier_token_texts:
            self._feed_and_detect_content(self._parser.feed(text), -1)
            yield
        self._resumed_answer, self._earlier_token_texts = "", ()

    @property
    def cost_of_copy(self) -> int:
        """Return about how many tokens could be read in the time that a copy takes."""
        held = self.document.depth if self.document is not None else 0
        return _TOKENS_A_COPY + held + self._parser.unmarked_pieces

    def content_behind(self, token: int) -> list[int]:
        """Return the positions of the tokens, from ``token`` on, that hold a part of a value."""
        return [*takewhile(lambda at: at >= token, self._value_token_positions)][::-1]

    @property
    def fault(self) -> Fault | None:
        """Return the complete item or value that breaks a rule; ``None`` if there is none."""
        return self.document.fault if self.document is not None else None

    def feed(self, text: str) -> None:
        events = self._parser.feed(text)
        if self._feed_and_detect_content(events, max(self._token_count_at_last_event, self.final)):
            self._value_token_positions.append(self.read)
        self.read += 1
        if events:
            self._token_count_at_last_event = self.read
        held = self.document.held_from if self.document is not None else None
        parser = self._parser
        answers = self.document is not None and parser.mode is not Mode.CALLS
        may_hold_back = not parser.repeated and (parser.call_open or answers)
        known = self._token_count_at_last_event if may_hold_back else self.read
        self.final = max(self.final, known if held is None else min(held, known))

    def _feed_and_detect_content(self, events: Sequence[ContentEvent], position: int) -> bool:
        found = False
        for event in events:
            if isinstance(event, ToolCallStarted):
                rules = self._schemas_by_function.get(event.name)
                self.document = DocumentWatch(rules) if rules is not None else None
                continue
            document = self.document
            if document is None or isinstance(event, ReasoningDelta):
                continue
            before = document.content
            document.feed(event.text if isinstance(event, TextDelta) else event.arguments, position)
            found = found or document.content > before
        return found
