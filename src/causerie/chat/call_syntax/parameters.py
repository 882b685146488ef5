"""Arguments written one by one: ``before`` KEY ``between`` VALUE ``after``."""

from __future__ import annotations

import json
import re
from functools import cache

from causerie.chat.call_syntax import base
from causerie.chat.call_syntax.choices import (
    choices,
    is_meant,
    kinds,
    kinds_of,
    of_kinds,
    refused,
)
from causerie.chat.call_syntax.members import any_of, either, members_of, property_in, text_terminal
from causerie.chat.call_syntax.python import words
from causerie.chat.call_syntax.relaxed import RelaxedReader, relaxed_json
from causerie.chat.formats.format import ParameterList
from causerie.chat.grammar_text import ANY_TEXT, GrammarText
from causerie.chat.schema.keywords import constants

_COUNTED = re.compile(r'\\.|"', re.DOTALL)  # an escape, or a quote that counts


class OpenString:
    """Reads a value up to the places that are asked about; nothing of it is read twice."""

    def __init__(self) -> None:
        self._uncounted_pieces: list[str] = []  # and not read
        self._first_character = ""  # character of the value
        self._next_is_escaped = False  # what comes next is escaped
        self._in_string = False  # as many quotes as would leave a string open
        self._literal: RelaxedReader | None = RelaxedReader(parameters=("value",))

    def add(self, text: str) -> None:
        self._uncounted_pieces.append(text)

    @property
    def holds(self) -> bool:
        """Return whether the value so far is a list or an object that ends in a string of it.

        Quotes may be Python's: a literal that is complete there has no open string.
        """
        piece, self._uncounted_pieces = "".join(self._uncounted_pieces), []
        self._first_character = self._first_character or piece.lstrip()[:1]
        if self._first_character not in ("[", "{"):
            return False
        at = min(int(self._next_is_escaped), len(piece))
        for found in _COUNTED.finditer(piece, at):
            at = found.end()
            self._in_string ^= found.group() == '"'
        self._next_is_escaped = piece.endswith("\\", at) if piece else self._next_is_escaped
        if self._literal is not None:
            try:
                self._literal.feed(piece)
            except base.Unreadable:
                self._literal = None
        return self._in_string and not (self._literal is not None and self._literal.whole)


_CONSTANTS = ("True", "False", "None")
_ANY_KEY = "/[a-zA-Z0-9_.\\-]+/"


@cache
def _search_loosely(text: str) -> re.Pattern[str]:
    words = re.split(r"\s+|(?<=>)(?=<)", text.strip())
    return re.compile(r"\s*".join(map(re.escape, words)))


@cache
def _search_end(marker: str, opening: str = "") -> re.Pattern[str]:
    either = rf"|(?:\A|(?<=\n))(?={re.escape(opening)})" if opening else ""
    return re.compile(re.escape(marker) + either)


class ParameterReader(base.StepReader):
    """Reads the list; the arguments come out as JSON, strings as they stream.

    ``end`` is the text that follows it. A key without a value is left out.
    """

    def __init__(self, form: ParameterList, schema: base.Schema, *, end: str = "") -> None:
        super().__init__()
        self._form = form
        self._list_end = end
        self._schema = schema
        self._key_mark = form.before.strip()
        self._value_end = form.after.strip()
        self._value_marks = [_search_loosely(form.between)]
        self._typed_marks: tuple[str, str] | None = None
        if form.between_json is not None:
            head, typed, tail = form.between_json.partition("{type}")
            self._value_marks.append(_search_loosely(form.between_json))
            self._typed_marks = (head.strip(), tail.strip()) if typed else None
        self._parameters_read = 0
        self._pending_key = ""  # of the value being read, which goes out with it
        self._open_value({}, None)
        self._next_step = self._read_key

    @property
    def is_between(self) -> bool:
        """Return whether no parameter has begun since the last one: the list may end here."""
        return self._next_step == self._read_key and not self._unread.strip()

    def _read_key(self) -> str | None:
        text = self._unread = self._unread.lstrip()
        if not text.startswith(self._key_mark):
            if self._key_mark.startswith(text):
                return None
            return self._close_list(text)
        found = self._announced(text) if self._typed_marks is None else self._find_typed_mark(text)
        last = text.find(self._list_end) if self._list_end else -1
        if last >= 0 and (found is None or last < found[0]):
            return self._close_list(text[last:])
        if found is None:
            if len(text) > base.LONGEST_WORD:
                raise base.Unreadable
            return None
        at, end, raw = found
        key = text[text.rfind(self._key_mark, 0, at) + len(self._key_mark) : at].strip()
        self._unread = text[end:]
        self._open_value(property_in(self._schema, key), raw)
        lead = "{" if self._parameters_read == 0 else ", "
        self._parameters_read += 1
        name = f"{lead}{json.dumps(key, ensure_ascii=False)}: "
        self._pending_key = "" if self._value_streams else name
        return f'{name}"' if self._value_streams else ""

    def _close_list(self, text: str) -> str:
        self._unread = text
        self._is_complete = True
        return "}" if self._parameters_read else "{}"

    def _announced(self, text: str) -> tuple[int, int, bool | None] | None:
        matches = [mark.search(text, len(self._key_mark)) for mark in self._value_marks]
        found = [(match.start(), -match.end(), match.re) for match in matches if match]
        if not found:
            return None
        at, end, mark = min(found, key=lambda each: each[:2])
        if len(self._value_marks) > 1:
            # Where one announcement begins like the other, all of it has to come first.
            marks = (self._form.between.strip(), (self._form.between_json or "").strip())
            if max(base.text_overlap(text, mark) for mark in marks) >= len(text) - at:
                return None
        return at, -end, None if len(self._value_marks) == 1 else mark is self._value_marks[0]

    def _find_typed_mark(self, text: str) -> tuple[int, int, bool | None] | None:
        assert self._typed_marks is not None
        head, tail = self._typed_marks
        at = text.find(head, len(self._key_mark))
        end = text.find(tail, at + len(head)) if at >= 0 else -1
        if end < 0:
            return None
        return at, end + len(tail), text[at + len(head) : end].strip() == "string"

    def _open_value(self, schema: base.Schema, raw: bool | None) -> None:
        self._value, self._is_raw = schema, raw
        self._kinds = kinds(schema)
        self._value_streams = raw is True or (raw is None and self._kinds == {"string"})
        self._set_value_end(self._value_end)
        self._next_step = self._read_value
        self._value_is_new = True
        self._held = base.GrowingText()  # of a value that does not stream, before the text
        self._search_from = 0  # characters of the text in which the end of a value is not
        self._open_string = OpenString()  # of a value
        self._counted_to = 0  # characters of the text that it has

    def _read_value(self) -> str | None:
        if self._value_is_new and self._form.between.endswith("\n"):
            if not self._unread:
                return None
            self._unread = self._unread.removeprefix("\n")
        if self._value_is_new and not self._strip_wrapper():
            return None
        self._value_is_new = False
        end = self._end_of_value()
        if end is not None:
            piece, self._unread = str(self._held) + self._unread[: end[0]], self._unread[end[1] :]
            self._next_step = self._read_key
            if self._form.after.startswith("\n"):
                piece = piece.removesuffix("\n")
            if self._pending_key and not piece.strip() and self._kinds and not self._is_text:
                self._parameters_read -= 1
                return ""
            return self._pending_key + self._close_value(piece)
        if not self._value_streams:
            size = max(self._search_from - 1, 0)
            self._open_string.add(self._unread[self._counted_to : size])
            self._held.add(self._unread[:size])
            self._unread = self._unread[size:]
            self._search_from -= size
            self._counted_to = max(self._counted_to - size, 0)
            return None
        # The marker may be cut, and the line break before it is the marker's, not the value's.
        keep = max(base.text_overlap(self._unread, end) for end in self._end_texts)
        ready = len(self._unread) - keep
        if self._form.after.startswith("\n") and self._unread[:ready].endswith("\n"):
            ready -= 1
        if not ready:
            return None
        piece, self._unread, self._search_from = self._unread[:ready], self._unread[ready:], 0
        return json.dumps(piece, ensure_ascii=False)[1:-1]

    def _set_value_end(self, marker: str) -> None:
        self._end_texts = (marker, self._key_mark) if self._form.open_ended else (marker,)
        self._end_pattern = _search_end(*self._end_texts)

    def _end_of_value(self) -> tuple[int, int] | None:
        # JSON strings may hold the marker.
        is_json = not (self._value_streams or self._is_text or self._is_raw)
        while found := self._end_pattern.search(self._unread, self._search_from):
            if not is_json:
                return found.span()
            self._open_string.add(self._unread[self._counted_to : found.start()])
            self._counted_to = found.start()
            if not self._open_string.holds:
                return found.span()
            self._search_from = found.start() + 1
        searched = len(self._unread) - max(map(len, self._end_texts)) + 1
        self._search_from = max(self._search_from, searched)
        return None

    def _strip_wrapper(self) -> bool:
        if self._form.wrap is None:
            return True
        opener, closer = self._form.wrap
        if self._unread.startswith(opener):
            self._unread = self._unread[len(opener) :]
            self._set_value_end(closer + self._value_end)
            self._is_raw = True
        return len(self._unread) >= len(opener) or not opener.startswith(self._unread)

    def _close_value(self, piece: str) -> str:
        if self._value_streams:
            return json.dumps(piece, ensure_ascii=False)[1:-1] + '"'
        if self._is_raw is True:
            return json.dumps(piece, ensure_ascii=False)
        if "string" not in self._kinds and (self._kinds or piece.strip() in _CONSTANTS):
            written = relaxed_json(piece.strip())
            if written is not None:
                return written
        try:
            value = base.json_value(piece)
        except (ValueError, RecursionError):
            return self._constant(piece) or json.dumps(piece, ensure_ascii=False)
        if isinstance(value, str):
            return json.dumps(value, ensure_ascii=False)
        if self._is_text and not is_meant(value, self._value):
            return json.dumps(piece, ensure_ascii=False)
        return piece.strip()

    def _constant(self, piece: str) -> str | None:
        written = relaxed_json(piece.strip()) if piece.strip() in _CONSTANTS else None
        if written is None or not self._is_text or is_meant(piece, self._value):
            return None
        return written if is_meant(json.loads(written), self._value) else None

    @property
    def _is_text(self) -> bool:
        return self._is_raw is None and (not self._kinds or "string" in self._kinds)


def parameter_grammar(form: ParameterList, schema: base.Schema, scope: GrammarText) -> str:
    """Return the declared properties in order, required ones always; then other possible ones."""
    return f"({either(schema, (_list_grammar(form, choice, scope) for choice in choices(schema)))})"


def _list_grammar(form: ParameterList, schema: base.Schema, scope: GrammarText) -> str | None:
    between = {mark.strip() for mark in (form.between, form.between_json or form.between)}
    heads = [mark.partition("{type}")[0].strip() for mark in between]
    members = members_of(
        schema,
        _ANY_KEY,
        lambda name: name == name.strip() and not any(head in name for head in heads),
    )
    if members is None:
        return None
    apart = f"({scope.literal(form.apart)})? " if form.apart else ""
    before = apart + scope.literal(form.before)
    parts = []
    for one in members.named:
        head = apart + scope.literal(form.before + one.name)
        each = scope.rule(f"{head} {_value(form, one.schema, scope)}")
        parts.append(each if one.required else f"{each}?")
    if members.free:
        others = [
            scope.rule(f"{before} {scope.terminal(key)} {_value(form, of, scope)}")
            for key, of in members.free
        ]
        parts.append(f"({' | '.join(others)}){members.how_many()}")
    return " ".join(parts) or '""'


def _value(form: ParameterList, schema: base.Schema, scope: GrammarText) -> str:
    found = choices(schema)
    texts = [choice for choice in found if "string" in kinds_of(choice)]
    others = [of_kinds(choice, left) for choice in found if (left := kinds_of(choice) - {"string"})]
    raw = [_raw_value(form, choice, scope) for choice in texts]
    if form.between_json is None:
        if None in raw:
            return f"{scope.literal(form.between)} {_any_value(form, scope)}"
        options = [option for option in raw if option is not None]
        if others:
            options.append(_other_value(form, others if texts else [schema], scope))
        return f"{scope.literal(form.between)} ({' | '.join(options)})"
    between = scope.literal(form.between)
    options = [f"{between} {option or _any_value(form, scope)}" for option in raw]
    options += _announced(form, others, scope)
    return f"({' | '.join(dict.fromkeys(options))})"


def _other_value(form: ParameterList, options: list[base.Schema], scope: GrammarText) -> str:
    found = [choice for option in options for choice in choices(option)]
    written, others = words(found) if form.constants == "python" else ([], True)
    written = [scope.literal(word + form.after) for word in written]
    if others:
        written.append(f"{scope.json(any_of(options))} {scope.literal(form.after)}")
    return " | ".join(written)


def _announced(form: ParameterList, others: list[base.Schema], scope: GrammarText) -> list[str]:
    between, after = form.between_json or "", scope.literal(form.after)
    if not others:
        return []
    if "{type}" not in between:
        return [f"{scope.literal(between)} {scope.json(any_of(others))} {after}"]
    return [
        f"{scope.literal(between.replace('{type}', 'number' if kind == 'integer' else kind))} "
        f"{scope.json(of_kinds(choice, {kind}))} {after}"
        for choice in others
        for kind in sorted(kinds_of(choice))
    ]


def _raw_value(form: ParameterList, choice: base.Schema, scope: GrammarText) -> str | None:
    values = constants(choice)
    if values is not None:
        texts = [value for value in values if isinstance(value, str)]
        marks = [form.after.strip(), *([form.before] if form.open_ended else [])]
        if any(mark in text for text in texts for mark in marks):
            raise refused(choice, "a constant holds the text that ends a value of this model.")
        return "(" + " | ".join(scope.literal(text + form.after) for text in texts) + ")"
    terminal = text_terminal(choice)
    if terminal is None:
        return None
    return scope.closed(_without_key_mark(form, terminal), form.after)


def _without_key_mark(form: ParameterList, terminal: str) -> str:
    return f"{terminal} & {base.without(form.before)}" if form.open_ended else terminal


def _any_value(form: ParameterList, scope: GrammarText) -> str:
    if form.open_ended:
        return scope.closed(_without_key_mark(form, ANY_TEXT), form.after)
    core = form.after.strip()
    margin = form.after[form.after.index(core) + len(core) :]
    return f"{scope.until(core)} {scope.literal(margin)}".strip()
