"""Reads one section of tool calls by its declaration, call after call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from causerie.chat.call_syntax.base import Reader, Schema, Unreadable
from causerie.chat.call_syntax.elements import ElementReader
from causerie.chat.call_syntax.json import JsonReader
from causerie.chat.call_syntax.loose import LooseReader
from causerie.chat.call_syntax.parameters import ParameterReader
from causerie.chat.call_syntax.plain import CallIdReader, LiteralReader, NameReader
from causerie.chat.call_syntax.python import PythonReader
from causerie.chat.formats.format import (
    CallId,
    CallSection,
    ElementArguments,
    JsonArguments,
    Literal,
    LooseArguments,
    Name,
    ParameterList,
    PythonArguments,
    Segment,
)


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call's name is known; ``id`` is the model's own or empty."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    pass


_HOLDS_ARGUMENTS = (
    JsonArguments | ParameterList | PythonArguments | LooseArguments | ElementArguments
)

CallPart = CallStarted | CallArguments | CallEnded


def name_from_id(value: str) -> str:
    """Return the function in an id such as ``functions.weather:0`` (Kimi K2)."""
    return value.removeprefix("functions.").rpartition(":")[0] or value


@dataclass(slots=True)
class _Call:
    """The call being read."""

    name: str = ""
    id: str = ""
    started: bool = False


class SectionReader:
    """Reads ``begin`` call (``separator`` call)* ``end``.

    ``feed`` returns the parts understood; ``rest`` is the text behind the
    section once it has ended, ``None`` before. ``broken`` tells that the text
    is not of the form, ``open`` whether a call was started, ``complete`` how many
    have ended, ``unread`` what came since then if none was started. ``begin``
    is still to come; ``read`` came already, and so did the ``name`` of the first
    function if it is given.
    """

    def __init__(
        self,
        form: CallSection,
        tools: Mapping[str, Schema],
        *,
        begin: str,
        read: str,
        name: str = "",
    ) -> None:
        self._form = form
        self._tools = tools
        self._queue: list[Segment] = [Literal(begin)] if begin else []
        self._queue += form.call
        self._call = _Call(name)
        self._reader: Reader | None = None
        self._held = ""
        self.rest: str | None = None
        self.broken = False
        self.complete = 0
        self.unread = read

    @property
    def open(self) -> bool:
        """Return whether a call has started and not ended."""
        return self._call.started

    def feed(self, text: str) -> Sequence[CallPart]:
        """Read the next piece of text."""
        parts: list[CallPart] = []
        self.unread += text
        try:
            self._advance(text, parts)
        except Unreadable:
            self.broken = True
        return parts

    def _advance(self, text: str, parts: list[CallPart]) -> None:
        while self.rest is None:
            if not self._queue:
                text = self._between(self._held + text)
                if not self._queue:
                    return
            text = self._read(text, parts)
            if not text and self._queue:
                return

    def _read(self, text: str, parts: list[CallPart]) -> str:
        """Feed the segment at the head of the queue; returns what it left."""
        segment = self._queue[0]
        if self._reader is None:
            self._start_arguments(segment, parts)
            self._reader = self._reader_of(segment)
        read = self._reader.feed(text)
        if read.arguments:
            parts.append(CallArguments(read.arguments))
        if read.rest is None:
            return ""
        if isinstance(segment, Name):
            self._call.name = read.value
            if self._form.at_start and read.value not in self._tools:
                raise Unreadable  # an answer that looks alike
        elif isinstance(segment, CallId):
            self._call.id = read.value if segment.kept else ""
            if not self._call.name:
                self._call.name = name_from_id(read.value)
        self._reader = None
        self._queue.pop(0)
        if not self._queue:
            self._start_arguments(JsonArguments(), parts)
            parts.append(CallEnded())
            self._call = _Call()
            self.complete += 1
            self.unread = read.rest
        return read.rest

    def _start_arguments(self, segment: Segment, parts: list[CallPart]) -> None:
        """A call starts for the client when its arguments do: then the name is known."""
        if isinstance(segment, _HOLDS_ARGUMENTS) and not self._call.started:
            if not self._call.name:
                raise Unreadable
            self._call.started = True
            self.unread = ""
            parts.append(CallStarted(self._call.name, self._call.id))

    def _reader_of(self, segment: Segment) -> Reader:
        schema = self._tools.get(self._call.name, {})
        match segment:
            case Literal(text, also):
                return LiteralReader(text, also)
            case Name():
                return NameReader()
            case CallId():
                following = self._queue[1] if len(self._queue) > 1 else None
                return CallIdReader(following.text if isinstance(following, Literal) else "\n")
            case JsonArguments():
                return JsonReader()
            case ParameterList():
                return ParameterReader(segment, schema)
            case PythonArguments():
                return PythonReader(schema)
            case LooseArguments(quote):
                return LooseReader(quote)
            case ElementArguments(mark):
                return ElementReader(mark, schema)

    def _between(self, text: str) -> str:
        """Behind a call: another one, the end of the section, or other text."""
        self._held = ""
        stripped = text.lstrip()
        end, separator = self._form.end.strip(), self._form.separator.strip()
        again = separator or self._next_call_mark()
        for mark in (end, again):
            if mark and stripped.startswith(mark):
                if mark == end:
                    self.rest = stripped[len(end) :]
                    return ""
                self._queue = list(self._form.call)
                return stripped[len(separator) :]
        if any(mark and mark.startswith(stripped) for mark in (end, again)):
            self._held = text  # a mark may be arriving, or nothing more at all
            return ""
        if end:
            raise Unreadable
        self.rest = text
        return ""

    def _next_call_mark(self) -> str:
        first = self._form.call[0]
        return first.text.split()[0] if isinstance(first, Literal) and first.text.split() else ""
