"""Server-sent events as bytes, and the end of JSON that arrives in pieces."""

from __future__ import annotations

import re
from dataclasses import dataclass

from msgspec import Struct

from causerie.protocol.bounded_json import SMALL

_STRUCTURE = re.compile(r'[{}\[\]"]')
_END_OF_STRING = re.compile(r'(?:[^"\\]|\\.)*+"', re.DOTALL)


@dataclass(slots=True, eq=False)
class Brackets:
    """Finds the end of one JSON object or array that arrives in pieces, each read once."""

    strings: bool = False  # the value may also be a string
    _bracket_depth: int = 0
    quoted: bool = False  # in the middle of a string
    _is_next_escaped: bool = False  # behind a backslash in one
    closed: bool = False  # the last bracket has been read
    empty: bool = True  # nothing but white space has been read

    def read(self, text: str) -> int:
        """Read up to the end of the value, or of ``text``; return the number of characters read."""
        at = 0
        while at < len(text) and not self.closed:
            at = self._skip_string(text, at) if self.quoted else self._read_next_bracket(text, at)
        return at

    def _skip_string(self, text: str, position: int) -> int:
        if self._is_next_escaped:
            self._is_next_escaped = False
            return position + 1
        end = _END_OF_STRING.match(text, position)
        if end is not None:
            self.quoted = False
            self.closed = self.strings and not self._bracket_depth
            return end.end()
        self._is_next_escaped = (len(text) - len(text[position:].rstrip("\\")) - position) % 2 == 1
        return len(text)

    def _read_next_bracket(self, text: str, position: int) -> int:
        found = _STRUCTURE.search(text, position)
        if self.empty:
            self.empty = found is None and text[position:].isspace()
        if found is None:
            return len(text)
        mark = found.group()
        self.quoted = mark == '"'
        self._bracket_depth += (mark in "{[") - (mark in "}]")
        self.closed = mark in "}]" and self._bracket_depth <= 0
        return found.end()


BEFORE, BEHIND = b"data: ", b"\n\n"  # the data of an event that is a single line
_NAME = b"event: "
_NAMED_EVENTS = re.compile(
    rb"(?:event: (?!message\n)[!-~]+\ndata: [^\r\n]+\n\n)++"
)  # of a line with the name and one with the data, as most senders write them
_FIELD_LINE = re.compile(rb"(?:data|event|id|retry)(?::|\Z)")
DONE = BEFORE + b"[DONE]" + BEHIND
_LINE_BYTES = 16  # that a line takes in addition to its text, so that empty ones are bounded, too
PING = b": ping\n"  # one newline: an empty line after a comment breaks older clients


def encode(data: bytes) -> bytes:
    return BEFORE + data + BEHIND


class LineTooLong(ValueError):
    """Raised if a line or an event is longer than the decoder may hold."""


class NamedEvent(bytes):
    """Data of an event whose ``name`` is not ``message``."""

    name: bytes = b""

    @classmethod
    def of(cls, lines: bytes) -> NamedEvent:
        """Return the event in two lines, ``event: NAME`` and ``data: DATA``."""
        name, _, data = lines[len(_NAME) :].partition(b"\ndata: ")
        event = cls(data)
        event.name = name
        return event


class EventDecoder(Struct, eq=False):
    """Decodes the bytes of server-sent events, as they arrive, into the data of whole events.

    The pieces may be cut anywhere. Comments, other fields and events without data are passed over;
    several ``data`` lines of one event are joined with a newline.
    """

    max_bytes: int = 64 * 1024 * 1024  # that are held of an unfinished event
    values: bool = False  # a JSON object or array between events is the data of one, too
    lines: bool = False  # a whole named event is `event: …` and `data: …`, not a `NamedEvent`
    is_between: bool = True  # nothing of an event is held
    _partial_line: list[bytes] = []  # the beginning of a line, in the pieces that it came in
    _partial_line_length: int = 0  # of these
    _data_lines: list[bytes] = []
    _event_name: bytes = b""
    _data_byte_count: int = 0
    _bare_json_brackets: Brackets | None = None  # of a value without a field name
    _is_past_byte_order_mark: bool = False
    _is_after_cr: bool = False  # a line feed that comes next belongs to the last line
    _max_one_event_size: int = SMALL  # bytes of a piece that is read as one event

    def __post_init__(self) -> None:
        self._max_one_event_size = min(self.max_bytes, SMALL)

    @property
    def held(self) -> int:
        return self._partial_line_length + self._data_byte_count

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of every event that ``piece`` completes; raise :class:`LineTooLong`."""
        if piece.startswith(_NAME) and (named := self._split_if_all_are_named(piece)) is not None:
            return named
        if (only := self.only(piece)) is not None:
            return [only]
        if self.is_between and piece.startswith(b"data: ") and len(piece) <= self.max_bytes:
            # Whole events of one line each, as most senders write them.
            events = piece[6:-2].split(b"\n\ndata: ")
            whole = piece.endswith(b"\n\n") and piece.count(b"\n") == 2 * len(events)
            if whole and all(events) and piece.find(b"\r") < 0:  # `in` raises before it looks
                self._is_past_byte_order_mark = True
                return events
        if piece and (self._is_after_cr or piece.find(b"\r") >= 0):
            if self._is_after_cr:
                piece = piece.removeprefix(b"\n")
            self._is_after_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events = self._decode_events_line_by_line(piece)
        self.is_between = not self._partial_line and not self._data_lines and not self._event_name
        return events

    def only(self, piece: bytes) -> bytes | None:
        """Return the data of a small piece that is just one event; else ``None``, unread."""
        if self.is_between and piece.startswith(BEFORE) and len(piece) <= self._max_one_event_size:
            if piece.find(b"\n") != len(piece) - 2 or not piece.endswith(b"\n"):
                return None
            event = piece[6:-2]
            if event and event.find(b"\r") < 0:  # which ends a line as well
                self._is_past_byte_order_mark = True
                return event
        elif piece.startswith(_NAME) and piece.count(b"\n") == 3:
            named = self._split_if_all_are_named(piece)
            return None if named is None else named[0]
        return None

    def _split_if_all_are_named(self, piece: bytes) -> list[bytes] | None:
        is_small = self.is_between and len(piece) <= self.max_bytes
        if not is_small or _NAMED_EVENTS.fullmatch(piece) is None:
            return None
        self._is_past_byte_order_mark = True
        events = piece[:-2].split(BEHIND)
        return events if self.lines else [NamedEvent.of(event) for event in events]

    def _decode_events_line_by_line(self, piece: bytes) -> list[bytes]:
        if not self._is_past_byte_order_mark:
            started = self._strip_byte_order_mark_or_hold(piece)
            if started is None:
                return []
            piece = started
        *lines, rest = piece.split(b"\n")
        if lines and self._partial_line:
            lines[0] = self._take_partial_line() + lines[0]
        events = [event for line in lines if (event := self._read_line(line)) is not None]
        if rest:
            self._partial_line.append(rest)
            self._partial_line_length += len(rest)
            self._check_held_size(self._partial_line_length)
        return events

    def close(self) -> list[bytes]:
        """Return the last event where the sender left out the empty line after it."""
        rest = self._take_partial_line()
        if not self._data_lines and self._is_json_start(rest):
            return [rest]
        events = [self._read_line(rest), self._read_line(b"")]
        if self._bare_json_brackets is not None:
            events.append(self._take_event_data())
        return [event for event in events if event is not None]

    def _take_partial_line(self) -> bytes:
        rest = b"".join(self._partial_line)
        self._partial_line.clear()
        self._partial_line_length = 0
        return rest

    def _strip_byte_order_mark_or_hold(self, piece: bytes) -> bytes | None:
        # None while a byte order mark may still be coming.
        piece = self._take_partial_line() + piece
        if b"\xef\xbb\xbf".startswith(piece) and len(piece) < 3:
            self._partial_line.append(piece)
            return None
        self._is_past_byte_order_mark = True
        return piece.removeprefix(b"\xef\xbb\xbf")

    def _read_line(self, line: bytes) -> bytes | None:
        if self._bare_json_brackets is not None:
            return self._read_bare_json_line(line)
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._append_data(value.removeprefix(b" "))
            elif name == b"event":
                self._event_name = value.strip()
            elif not self._data_lines and self._is_json_start(line):
                self._bare_json_brackets = Brackets()
                return self._read_bare_json_line(line)
            return None
        name, self._event_name = self._event_name, b""
        event = self._take_event_data() if self._data_lines else None
        if event and name and name != b"message":
            event = NamedEvent(event)
            event.name = name
        return event or None

    def _is_json_start(self, line: bytes) -> bool:
        return self.values and line.lstrip()[:1] in (b"{", b"[")

    def _read_bare_json_line(self, line: bytes) -> bytes | None:
        brackets = self._bare_json_brackets
        assert brackets is not None
        if _FIELD_LINE.match(line):
            value = self._take_event_data()
            self._read_line(line)
            return value
        self._append_data(line)
        brackets.read(line.decode("latin-1"))
        return self._take_event_data() if brackets.closed else None

    def _append_data(self, data: bytes) -> None:
        self._data_lines.append(data)
        self._data_byte_count += len(data) + _LINE_BYTES
        self._check_held_size(self._data_byte_count)

    def _take_event_data(self) -> bytes:
        event = b"\n".join(self._data_lines)
        self._data_lines.clear()
        self._data_byte_count = 0
        self._bare_json_brackets = None
        return event

    def _check_held_size(self, byte_count: int) -> None:
        if byte_count > self.max_bytes:
            raise LineTooLong(f"an event of the stream has more than {self.max_bytes} bytes")
