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
    """Tells whether a list or an object, which comes in pieces, ends inside a string so far."""

    def __init__(self) -> None:
        self._unscanned_pieces: list[str] = []  # and not read
        self._first_value_character = ""  # character of the value
        self._is_next_escaped = False  # what comes next is escaped
        self._is_in_string = False  # as many quotes as would leave a string open
        self._reader_to_find_end: RelaxedReader | None = RelaxedReader(parameters=("value",))

    def add(self, text: str) -> None:
        self._unscanned_pieces.append(text)

    @property
    def holds(self) -> bool:
        """Return whether the value so far is a list or an object, and ends inside a string."""
        piece, self._unscanned_pieces = "".join(self._unscanned_pieces), []
        self._first_value_character = self._first_value_character or piece.lstrip()[:1]
        if self._first_value_character not in ("[", "{"):
            return False
        at = min(int(self._is_next_escaped), len(piece))
        for found in _COUNTED.finditer(piece, at):
            at = found.end()
            self._is_in_string ^= found.group() == '"'
        self._is_next_escaped = piece.endswith("\\", at) if piece else self._is_next_escaped
        if self._reader_to_find_end is not None:
            try:
                self._reader_to_find_end.feed(piece)
            except base.Unreadable:
                self._reader_to_find_end = None
        reader = self._reader_to_find_end
        return self._is_in_string and not (reader is not None and reader.whole)


_CONSTANTS = ("True", "False", "None")
_ANY_KEY = "/[a-zA-Z0-9_.\\-]+/"


@cache
def _compile_loose_pattern(text: str) -> re.Pattern[str]:
    words = re.split(r"\s+|(?<=>)(?=<)", text.strip())
    return re.compile(r"\s*".join(map(re.escape, words)))


@cache
def _compile_end_or_next_key_pattern(end_text: str, key_marker: str = "") -> re.Pattern[str]:
    either = rf"|(?:\A|(?<=\n))(?={re.escape(key_marker)})" if key_marker else ""
    return re.compile(re.escape(end_text) + either)


class ParameterReader(base.StepReader):
    """Reads parameters up to the text ``end`` as JSON; a key without a value is left out."""

    def __init__(self, syntax: ParameterList, schema: base.Schema, *, end: str = "") -> None:
        super().__init__()
        self._syntax = syntax
        self._text_after_list = end
        self._arguments_schema = schema
        self._key_marker = syntax.before.strip()
        self._text_after_value = syntax.after.strip()
        self._value_start_patterns = [_compile_loose_pattern(syntax.between)]
        self._type_name_delimiters: tuple[str, str] | None = None
        if syntax.between_json is not None:
            head, typed, tail = syntax.between_json.partition("{type}")
            self._value_start_patterns.append(_compile_loose_pattern(syntax.between_json))
            self._type_name_delimiters = (head.strip(), tail.strip()) if typed else None
        self._parameter_count = 0
        self._held_json_key = ""  # of the value being read, which goes out with it
        self._begin_value({}, None)
        self._next_step = self._read_key

    @property
    def is_between(self) -> bool:
        """Return whether no parameter has begun since the last one: the list may end here."""
        return self._next_step == self._read_key and not self._unread.strip()

    def _read_key(self) -> str | None:
        text = self._unread = self._unread.lstrip()
        if not text.startswith(self._key_marker):
            if self._key_marker.startswith(text):
                return None
            return self._finish_list(text)
        typed = self._type_name_delimiters is not None
        found = self._find_gap_to_typed_value(text) if typed else self._find_gap_to_value(text)
        last = text.find(self._text_after_list) if self._text_after_list else -1
        if last >= 0 and (found is None or last < found[0]):
            return self._finish_list(text[last:])
        if found is None:
            if len(text) > base.LONGEST_WORD:
                raise base.Unreadable
            return None
        at, end, raw = found
        key = text[text.rfind(self._key_marker, 0, at) + len(self._key_marker) : at].strip()
        self._unread = text[end:]
        self._begin_value(property_in(self._arguments_schema, key), raw)
        lead = "{" if self._parameter_count == 0 else ", "
        self._parameter_count += 1
        name = f"{lead}{json.dumps(key, ensure_ascii=False)}: "
        self._held_json_key = "" if self._is_value_streamed else name
        return f'{name}"' if self._is_value_streamed else ""

    def _finish_list(self, rest: str) -> str:
        self._unread = rest
        self._is_complete = True
        return "}" if self._parameter_count else "{}"

    def _find_gap_to_value(self, text: str) -> tuple[int, int, bool | None] | None:
        matches = [mark.search(text, len(self._key_marker)) for mark in self._value_start_patterns]
        found = [(match.start(), -match.end(), match.re) for match in matches if match]
        if not found:
            return None
        at, end, mark = min(found, key=lambda each: each[:2])
        if len(self._value_start_patterns) > 1:
            # Where one announcement begins like the other, all of it has to come first.
            marks = (self._syntax.between.strip(), (self._syntax.between_json or "").strip())
            if max(base.text_overlap(text, mark) for mark in marks) >= len(text) - at:
                return None
        raw = (
            None if len(self._value_start_patterns) == 1 else mark is self._value_start_patterns[0]
        )
        return at, -end, raw

    def _find_gap_to_typed_value(self, text: str) -> tuple[int, int, bool | None] | None:
        assert self._type_name_delimiters is not None
        head, tail = self._type_name_delimiters
        at = text.find(head, len(self._key_marker))
        end = text.find(tail, at + len(head)) if at >= 0 else -1
        if end < 0:
            return None
        return at, end + len(tail), text[at + len(head) : end].strip() == "string"

    def _begin_value(self, schema: base.Schema, is_raw: bool | None) -> None:
        self._value_schema, self._is_raw_if_told = schema, is_raw
        self._types_unless_any = kinds(schema)
        self._is_value_streamed = is_raw is True or (
            is_raw is None and self._types_unless_any == {"string"}
        )
        self._set_value_end_texts(self._text_after_value)
        self._next_step = self._read_value
        self._is_at_value_start = True
        self._held_text = base.GrowingText()  # of a value that does not stream, before the text
        self._end_search_offset = 0  # characters of the text in which the end of a value is not
        self._string_tracker = OpenString()  # of a value
        self._string_scan_offset = 0  # characters of the text that it has

    def _read_value(self) -> str | None:
        if self._is_at_value_start and self._syntax.between.endswith("\n"):
            if not self._unread:
                return None
            self._unread = self._unread.removeprefix("\n")
        if self._is_at_value_start and not self._try_to_skip_value_wrap():
            return None
        self._is_at_value_start = False
        end = self._find_value_end_span()
        if end is not None:
            piece = str(self._held_text) + self._unread[: end[0]]
            self._unread = self._unread[end[1] :]
            self._next_step = self._read_key
            if self._syntax.after.startswith("\n"):
                piece = piece.removesuffix("\n")
            if (
                self._held_json_key
                and not piece.strip()
                and self._types_unless_any
                and not self._may_be_text
            ):
                self._parameter_count -= 1
                return ""
            return self._held_json_key + self._encode_rest_of_value(piece)
        if not self._is_value_streamed:
            size = max(self._end_search_offset - 1, 0)
            self._string_tracker.add(self._unread[self._string_scan_offset : size])
            self._held_text.add(self._unread[:size])
            self._unread = self._unread[size:]
            self._end_search_offset -= size
            self._string_scan_offset = max(self._string_scan_offset - size, 0)
            return None
        # The marker may be cut, and the line break before it is the marker's, not the value's.
        keep = max(base.text_overlap(self._unread, end) for end in self._value_end_texts)
        ready = len(self._unread) - keep
        if self._syntax.after.startswith("\n") and self._unread[:ready].endswith("\n"):
            ready -= 1
        if not ready:
            return None
        piece, self._unread, self._end_search_offset = self._unread[:ready], self._unread[ready:], 0
        return json.dumps(piece, ensure_ascii=False)[1:-1]

    def _set_value_end_texts(self, end_text: str) -> None:
        self._value_end_texts = (
            (end_text, self._key_marker) if self._syntax.open_ended else (end_text,)
        )
        self._value_end_pattern = _compile_end_or_next_key_pattern(*self._value_end_texts)

    def _find_value_end_span(self) -> tuple[int, int] | None:
        # JSON strings may hold the marker.
        is_json = not (self._is_value_streamed or self._may_be_text or self._is_raw_if_told)
        while found := self._value_end_pattern.search(self._unread, self._end_search_offset):
            if not is_json:
                return found.span()
            self._string_tracker.add(self._unread[self._string_scan_offset : found.start()])
            self._string_scan_offset = found.start()
            if not self._string_tracker.holds:
                return found.span()
            self._end_search_offset = found.start() + 1
        searched = len(self._unread) - max(map(len, self._value_end_texts)) + 1
        self._end_search_offset = max(self._end_search_offset, searched)
        return None

    def _try_to_skip_value_wrap(self) -> bool:
        if self._syntax.wrap is None:
            return True
        opener, closer = self._syntax.wrap
        if self._unread.startswith(opener):
            self._unread = self._unread[len(opener) :]
            self._set_value_end_texts(closer + self._text_after_value)
            self._is_raw_if_told = True
        return len(self._unread) >= len(opener) or not opener.startswith(self._unread)

    def _encode_rest_of_value(self, raw_text: str) -> str:
        if self._is_value_streamed:
            return json.dumps(raw_text, ensure_ascii=False)[1:-1] + '"'
        if self._is_raw_if_told is True:
            return json.dumps(raw_text, ensure_ascii=False)
        if "string" not in self._types_unless_any and (
            self._types_unless_any or raw_text.strip() in _CONSTANTS
        ):
            written = relaxed_json(raw_text.strip())
            if written is not None:
                return written
        try:
            value = base.json_value(raw_text)
        except (ValueError, RecursionError):
            return self._encode_python_word(raw_text) or json.dumps(raw_text, ensure_ascii=False)
        if isinstance(value, str):
            return json.dumps(value, ensure_ascii=False)
        if self._may_be_text and not is_meant(value, self._value_schema):
            return json.dumps(raw_text, ensure_ascii=False)
        return raw_text.strip()

    def _encode_python_word(self, raw_text: str) -> str | None:
        written = relaxed_json(raw_text.strip()) if raw_text.strip() in _CONSTANTS else None
        if written is None or not self._may_be_text or is_meant(raw_text, self._value_schema):
            return None
        return written if is_meant(json.loads(written), self._value_schema) else None

    @property
    def _may_be_text(self) -> bool:
        return self._is_raw_if_told is None and (
            not self._types_unless_any or "string" in self._types_unless_any
        )


def parameter_grammar(syntax: ParameterList, schema: base.Schema, grammar: GrammarText) -> str:
    """Return the expression of parameters: the declared ones in order, then other possible ones."""
    ways = (_write_parameters(syntax, choice, grammar) for choice in choices(schema))
    return f"({either(schema, ways)})"


def _write_parameters(
    syntax: ParameterList, choice: base.Schema, grammar: GrammarText
) -> str | None:
    between = {mark.strip() for mark in (syntax.between, syntax.between_json or syntax.between)}
    heads = [mark.partition("{type}")[0].strip() for mark in between]
    members = members_of(
        choice,
        _ANY_KEY,
        lambda name: name == name.strip() and not any(head in name for head in heads),
    )
    if members is None:
        return None
    apart = f"({grammar.literal(syntax.apart)})? " if syntax.apart else ""
    before = apart + grammar.literal(syntax.before)
    parts = []
    for one in members.named:
        head = apart + grammar.literal(syntax.before + one.name)
        each = grammar.rule(f"{head} {_write_value(syntax, one.schema, grammar)}")
        parts.append(each if one.required else f"{each}?")
    if members.free:
        others = [
            grammar.rule(f"{before} {grammar.terminal(key)} {_write_value(syntax, of, grammar)}")
            for key, of in members.free
        ]
        parts.append(f"({' | '.join(others)}){members.how_many()}")
    return " ".join(parts) or '""'


def _write_value(syntax: ParameterList, schema: base.Schema, grammar: GrammarText) -> str:
    found = choices(schema)
    texts = [choice for choice in found if "string" in kinds_of(choice)]
    others = [of_kinds(choice, left) for choice in found if (left := kinds_of(choice) - {"string"})]
    raw = [_write_bounded_string(syntax, choice, grammar) for choice in texts]
    if syntax.between_json is None:
        if None in raw:
            return f"{grammar.literal(syntax.between)} {_write_any_text(syntax, grammar)}"
        options = [option for option in raw if option is not None]
        if others:
            options.append(_write_non_strings(syntax, others if texts else [schema], grammar))
        return f"{grammar.literal(syntax.between)} ({' | '.join(options)})"
    between = grammar.literal(syntax.between)
    options = [f"{between} {option or _write_any_text(syntax, grammar)}" for option in raw]
    options += _list_json_value_options(syntax, others, grammar)
    return f"({' | '.join(dict.fromkeys(options))})"


def _write_non_strings(
    syntax: ParameterList, options: list[base.Schema], grammar: GrammarText
) -> str:
    found = [choice for option in options for choice in choices(option)]
    written, others = words(found) if syntax.constants == "python" else ([], True)
    written = [grammar.literal(word + syntax.after) for word in written]
    if others:
        written.append(f"{grammar.json(any_of(options))} {grammar.literal(syntax.after)}")
    return " | ".join(written)


def _list_json_value_options(
    syntax: ParameterList, non_strings: list[base.Schema], grammar: GrammarText
) -> list[str]:
    between, after = syntax.between_json or "", grammar.literal(syntax.after)
    if not non_strings:
        return []
    if "{type}" not in between:
        return [f"{grammar.literal(between)} {grammar.json(any_of(non_strings))} {after}"]
    return [
        f"{grammar.literal(between.replace('{type}', 'number' if kind == 'integer' else kind))} "
        f"{grammar.json(of_kinds(choice, {kind}))} {after}"
        for choice in non_strings
        for kind in sorted(kinds_of(choice))
    ]


def _write_bounded_string(
    syntax: ParameterList, choice: base.Schema, grammar: GrammarText
) -> str | None:
    values = constants(choice)
    if values is not None:
        texts = [value for value in values if isinstance(value, str)]
        marks = [syntax.after.strip(), *([syntax.before] if syntax.open_ended else [])]
        if any(mark in text for text in texts for mark in marks):
            raise refused(choice, "a constant holds the text that ends a value of this model.")
        return "(" + " | ".join(grammar.literal(text + syntax.after) for text in texts) + ")"
    terminal = text_terminal(choice)
    if terminal is None:
        return None
    return grammar.closed(_exclude_key_marker(syntax, terminal), syntax.after)


def _exclude_key_marker(syntax: ParameterList, terminal: str) -> str:
    return f"{terminal} & {base.without(syntax.before)}" if syntax.open_ended else terminal


def _write_any_text(syntax: ParameterList, grammar: GrammarText) -> str:
    if syntax.open_ended:
        return grammar.closed(_exclude_key_marker(syntax, ANY_TEXT), syntax.after)
    core = syntax.after.strip()
    margin = syntax.after[syntax.after.index(core) + len(core) :]
    return f"{grammar.until(core)} {grammar.literal(margin)}".strip()
