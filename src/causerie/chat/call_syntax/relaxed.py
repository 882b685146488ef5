"""Values in a notation that is looser than JSON, turned into JSON as they arrive.

Python literals (``True``, ``'x'``, ``(1, 2)``) and objects with bare keys and other quotes differ
only in their quotes and in how the outermost list is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from causerie.chat.call_syntax.base import LONGEST_WORD, Read, StepReader, Unreadable, text_overlap
from causerie.chat.taint import write_json

_CLOSERS = {"{": "}", "[": "]", "(": ")"}
_WORD = re.compile(r"[^\s,:=()\[\]{}\"']+")
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_KEYWORD = re.compile(r"([^\W\d]\w*)\s*=(?!=)")
_MAYBE_KEYWORD = re.compile(r"[^\W\d]\w*\s*=?")
_ESCAPED = {mark: re.compile(rf"[^{mark}\\]*(?:\\.[^{mark}\\]*)*", re.DOTALL) for mark in "\"'"}
_STRING_STOP = {mark: re.compile(rf"[{mark}\\]") for mark in "\"'"}
_HEX = {"x": 2, "u": 4, "U": 8}
_SAME = {'"': '\\"', "\\": "\\\\", "/": "/", "'": "'", "\n": ""}
_SHORT = {letter: f"\\{letter}" for letter in "ntrbf"} | {"a": "\\u0007", "v": "\\u000b"}
_MAX_DEPTH = 64
_SLICE = 1024  # characters


@dataclass(slots=True)
class _Open:
    closer: str
    keyed: bool
    count: int = 0


class RelaxedReader(StepReader):
    """Reads one list of values and writes it as JSON.

    ``parameters`` makes it a Python call's: keyword arguments up to ``)``, which is left,
    positional ones named in this order. Without, it is an object in braces. ``quote`` is a marker
    of strings that knows no escapes; quotation marks with escapes are always understood.
    """

    def __init__(self, *, quote: str = "", parameters: Sequence[str] | None = None) -> None:
        super().__init__()
        self._quotes = tuple(mark for mark in (quote, '"', "'") if mark)
        self._positional_names = parameters
        # Names that Python has not, which functions may have all the same.
        self._non_identifier_names = [name for name in parameters or () if not name.isidentifier()]
        self._bracket_stack: list[_Open] = []
        self._closing_quote = ""  # what ends the string being read
        self._string_allows_escapes = False
        self._next_step = self._read_list_start

    def feed(self, text: str) -> Read:
        """Read the next piece in slices, because each step copies what is left of its slice."""
        out: list[str] = []
        for at in range(0, len(text), _SLICE) or (0,):
            read = super().feed(text[at : at + _SLICE])
            out.append(read.arguments)
            if read.rest is not None:
                return Read(arguments="".join(out), rest=read.rest + text[at + _SLICE :])
            if len(self._unread) > LONGEST_WORD:  # of a string nothing is held
                raise Unreadable
        return Read(arguments="".join(out))

    @property
    def whole(self) -> bool:
        """Return whether the first value of a call has ended, and nothing follows it yet."""
        ended = self._next_step == self._read_separator and len(self._bracket_stack) == 1
        return ended and self._bracket_stack[0].count == 1 and not self._unread.strip()

    def _skip_space_and_peek(self) -> str:
        self._unread = self._unread.lstrip()
        return self._unread[:1]

    def _pop_text(self, length: int = 1) -> str:
        taken, self._unread = self._unread[:length], self._unread[length:]
        return taken

    def _read_list_start(self) -> str | None:
        if self._positional_names is not None:
            self._bracket_stack.append(_Open(")", keyed=True))
            self._next_step = self._read_parameter
            return "{"
        if not self._skip_space_and_peek():
            return None
        if self._unread[0] != "{":
            raise Unreadable
        return self._enter_brackets(self._pop_text())

    def _enter_brackets(self, opener: str) -> str:
        if len(self._bracket_stack) == _MAX_DEPTH:
            raise Unreadable
        keyed = opener == "{"
        self._bracket_stack.append(_Open(_CLOSERS[opener], keyed))
        self._next_step = self._read_key if keyed else self._read_value
        return "{" if keyed else "["

    def _leave_brackets(self) -> str:
        closed = self._bracket_stack.pop()
        self._next_step = self._read_separator
        self._is_complete = not self._bracket_stack
        if not (self._is_complete and self._positional_names is not None):
            self._pop_text()  # a call's bracket belongs to what follows
        return "}" if closed.keyed else "]"

    def _write_separator_before_item(self) -> str:
        return "" if self._bracket_stack[-1].keyed else self._write_separator_before_member()

    def _write_separator_before_member(self) -> str:
        inner = self._bracket_stack[-1]
        inner.count += 1
        return ", " if inner.count > 1 else ""

    def _read_parameter(self) -> str | None:
        if not self._skip_space_and_peek():
            return None
        if self._unread[0] == ")":
            return self._leave_brackets()
        for name in self._non_identifier_names:
            if self._unread.startswith(f"{name}="):
                self._pop_text(len(name) + 1)
                return self._begin_keyed_value(name)
            if f"{name}=".startswith(self._unread):
                return None
        found = _KEYWORD.match(self._unread)
        if found is None and _MAYBE_KEYWORD.fullmatch(self._unread):
            return None
        if found is not None and found.end() == len(self._unread):
            return None  # one ``=`` or two
        place = self._bracket_stack[-1].count
        if found is not None:
            name = found.group(1)
            self._pop_text(found.end())
        elif self._positional_names is not None and place < len(self._positional_names):
            name = self._positional_names[place]
        else:
            raise Unreadable
        return self._begin_keyed_value(name)

    def _begin_keyed_value(self, key: str) -> str:
        self._next_step = self._read_value
        return f"{self._write_separator_before_member()}{_encode_json_string(key)}: "

    def _read_key(self) -> str | None:
        if not self._skip_space_and_peek():
            return None
        if self._unread[0] == "}":
            return self._leave_brackets()
        mark = self._match_quote_or_empty_none_if_cut()
        if mark is None:
            return None
        found = _parse_quoted_key(self._unread, mark) if mark else _parse_bare_key(self._unread)
        if found is None:
            return None
        name, size = found
        self._pop_text(size)
        return self._begin_keyed_value(name)

    def _read_value(self) -> str | None:
        first = self._skip_space_and_peek()
        if not first:
            return None
        inner = self._bracket_stack[-1]
        if not inner.keyed and first == inner.closer:
            return self._leave_brackets()
        mark = self._match_quote_or_empty_none_if_cut()
        if mark is None:
            return None
        if mark:
            self._pop_text(len(mark))
            self._closing_quote, self._string_allows_escapes = mark, mark in "\"'"
            self._next_step = self._read_string
            return self._write_separator_before_item() + '"'
        if first in _CLOSERS:
            return self._write_separator_before_item() + self._enter_brackets(self._pop_text())
        found = _WORD.match(self._unread)
        if found is None:
            raise Unreadable
        if found.end() == len(self._unread):
            return None
        written = _encode_number_or_constant_word(self._pop_text(found.end()))
        if written is None:
            raise Unreadable
        self._next_step = self._read_separator
        return self._write_separator_before_item() + written

    def _match_quote_or_empty_none_if_cut(self) -> str | None:
        for mark in self._quotes:
            if self._unread.startswith(mark):
                return mark
            if len(self._unread) < len(mark) and mark.startswith(self._unread):
                return None
        return ""

    def _read_string(self) -> str | None:
        if self._string_allows_escapes:
            out = ""
            while self._unread:
                if self._unread[0] == self._closing_quote:
                    self._pop_text()
                    self._next_step = self._read_separator
                    return out + '"'
                if self._unread[0] == "\\":
                    escape = self._read_escape()
                    if escape is None:
                        break
                    out += escape
                    continue
                stop = _STRING_STOP[self._closing_quote].search(self._unread)
                out += _escape_json(self._pop_text(stop.start() if stop else len(self._unread)))
            return out or None
        end = self._unread.find(self._closing_quote)
        if end >= 0:
            piece = self._pop_text(end)
            self._pop_text(len(self._closing_quote))
            self._next_step = self._read_separator
            return _escape_json(piece) + '"'
        ready = len(self._unread) - text_overlap(self._unread, self._closing_quote)
        return _escape_json(self._pop_text(ready)) if ready else None

    def _read_escape(self) -> str | None:
        kind = self._unread[1:2]
        if not kind:
            return None
        if kind in _HEX:
            digits = self._unread[2 : 2 + _HEX[kind]]
            if len(digits) < _HEX[kind] and re.fullmatch(r"[0-9a-fA-F]*", digits):
                return None
            number = int(digits, 16) if re.fullmatch(r"[0-9a-fA-F]+", digits) else -1
            if kind == "u" and number >= 0:
                return self._pop_text(2 + _HEX[kind])  # as JSON has it, halves of a pair too
            if 0 <= number < 0x110000 and not 0xD800 <= number < 0xE000:
                self._pop_text(2 + _HEX[kind])
                return _escape_json(chr(number))
        self._pop_text(2)
        known = _SAME.get(kind, _SHORT.get(kind))
        return known if known is not None else "\\\\" + _escape_json(kind)

    def _read_separator(self) -> str | None:
        first = self._skip_space_and_peek()
        if not first:
            return None
        inner = self._bracket_stack[-1]
        if first == inner.closer:
            return self._leave_brackets()
        if first != ",":
            raise Unreadable
        self._pop_text()
        if len(self._bracket_stack) == 1 and self._positional_names is not None:
            self._next_step = self._read_parameter
        else:
            self._next_step = self._read_key if inner.keyed else self._read_value
        return ""


def relaxed_json(text: str) -> str | None:
    """Return one Python literal as JSON, ``None`` if the text is none."""
    reader = RelaxedReader(parameters=("value",))
    try:
        read = reader.feed(text + ")")
    except Unreadable:
        return None
    prefix = '{"value": '
    if read.rest != ")" or not read.arguments.startswith(prefix):
        return None
    return read.arguments[len(prefix) : -1]


def loose_text(value: object, quote: str, *, ordered: bool = False) -> str:
    """Return a value as text with bare keys (``ordered`` by name) and strings between ``quote``."""
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, list):
        return "[" + ",".join(loose_text(of, quote, ordered=ordered) for of in value) + "]"
    if not isinstance(value, Mapping):
        return "None" if value is None else write_json(value)
    pairs: Iterable[tuple[str, object]] = value.items()
    if ordered:
        pairs = sorted(pairs, key=lambda item: (item[0].lower(), item[0]))
    members = (f"{key}:{loose_text(of, quote, ordered=ordered)}" for key, of in pairs)
    return "{" + ",".join(members) + "}"


def _parse_bare_key(text: str) -> tuple[str, int] | None:
    end = text.find(":")
    if end < 0:
        if re.search(r"[{}\[\],]", text):
            raise Unreadable
        return None
    name = text[:end].strip()
    if not name or re.search(r"[{}\[\],]", name):
        raise Unreadable
    return name, end + 1


def _parse_quoted_key(text: str, quote: str) -> tuple[str, int] | None:
    inside = _ESCAPED.get(quote)
    if inside is None:
        end = text.find(quote, len(quote))
    else:
        found = inside.match(text, 1)
        end = found.end() if found and found.end() < len(text) else -1
    if end < 0:
        return None
    colon = text[end + len(quote) :].lstrip()
    if not colon:
        return None
    if colon[0] != ":":
        raise Unreadable
    name = text[len(quote) : end]
    if inside is not None and "\\" in name:
        name = json.loads(relaxed_json(text[: end + 1]) or _encode_json_string(name))
    return name, len(text) - len(colon) + 1


def _encode_number_or_constant_word(word: str) -> str | None:
    word = _CONSTANTS.get(word, word)
    if word in ("true", "false", "null") or _JSON_NUMBER.fullmatch(word):
        return word
    try:
        return str(int(word, 0))
    except ValueError:
        pass
    try:
        number = float(word)
    except ValueError:
        return None
    return repr(number) if number - number == 0 else None  # neither infinite nor no number


def _encode_json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _escape_json(text: str) -> str:
    return _encode_json_string(text)[1:-1]
