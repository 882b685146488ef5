"""Reads one section of tool calls by its declaration, call after call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from causerie.chat.call_syntax import base
from causerie.chat.call_syntax.elements import ElementReader
from causerie.chat.call_syntax.json import JsonReader
from causerie.chat.call_syntax.parameters import ParameterReader
from causerie.chat.call_syntax.python import PythonReader
from causerie.chat.call_syntax.relaxed import RelaxedReader, relaxed_json
from causerie.chat.formats import format as forms
from causerie.protocol.events import ContentEvent, ToolCallDelta, ToolCallStarted
from causerie.protocol.sse import Brackets

# Once its arguments are complete, a call is known, so text that deviates behind them may not cost
# it: more members (an id), brackets too many or too few, closing markers missing or doubled.

_BRACKETS = re.compile(r"[}\])\"]+(?=<(?!\]))")
# A blank behind a bar is part of a marker.
_CHUNK = re.compile(r"```(?=\S)|(?:｜ |\S)+?>(?=<)|(?:｜ |\S)+")
_STRING = r'"(?:[^"\\]|\\.)*"'
_MEMBER = re.compile(rf",\s*{_STRING}\s*:\s*(?:{_STRING}|[\w.+\-]+(?=[\s,}}\]]))", re.DOTALL)
_MAYBE_MEMBER = re.compile(
    rf',\s*(?:"(?:[^"\\]|\\.)*\\?|{_STRING}\s*(?::\s*(?:"(?:[^"\\]|\\.)*\\?|[\w.+\-]*))?)?',
    re.DOTALL,
)
_LONGEST_MEMBER = 512


def markers(text: str) -> list[str]:
    """Return the markers in fixed text around calls, without the brackets and quotes of JSON."""
    chunks = (_BRACKETS.sub("", chunk) for chunk in _CHUNK.findall(text))
    return [chunk for chunk in chunks if chunk.strip("{}[](),:;\"'")]


class CallTail:
    """Reads the rest of one call: the segments behind its arguments."""

    def __init__(self, segments: Sequence[forms.Segment], *, keep: str) -> None:
        """Prepare to skip the text of ``segments``, and brackets that do not begin ``keep``."""
        fixed = [one for one in segments if isinstance(one, forms.Literal)]
        text = "".join(max((one.text, *one.also), key=len) for one in fixed)
        self._may_skip_members = "}" in text
        self._skippable_brackets = "".join(each for each in "}])" if not keep.startswith(each))
        self._due_markers = [] if self._may_skip_members and '"' in text else markers(text)
        self._skipped_marker = ""
        self._unread = ""
        self._leading_space_pieces: list[str] = []  # before the text

    def feed(self, text: str) -> str | None:
        if not self._unread and text.isspace():
            self._leading_space_pieces.append(text)
            return None
        self._unread = "".join((*self._leading_space_pieces, self._unread, text))
        self._leading_space_pieces = []
        while (moved := self._skip_tail_part(self._unread.lstrip())) is not None:
            if moved == self._unread:
                return moved
            self._unread = moved
        if self._unread.isspace():
            self._leading_space_pieces, self._unread = [self._unread], ""
        return None

    def _skip_tail_part(self, text: str) -> str | None:
        if not text:
            return None
        if self._may_skip_members and text[0] == "," and (found := _MEMBER.match(text)):
            return text[found.end() :]
        if self._may_skip_members and len(text) < _LONGEST_MEMBER and _MAYBE_MEMBER.fullmatch(text):
            return None
        # Each marker may be missing, and the last one may come twice.
        for at, word in enumerate(self._due_markers):
            if text.startswith(word):
                self._skipped_marker, self._due_markers = word, self._due_markers[at + 1 :]
                return text[len(word) :]
        expected = [*self._due_markers, *([self._skipped_marker] if self._skipped_marker else [])]
        if self._skipped_marker and text.startswith(self._skipped_marker):
            return text[len(self._skipped_marker) :]
        if any(word.startswith(text) for word in expected):
            return None
        return text[1:] if text[0] in self._skippable_brackets else self._unread


# Models that may write several calls sometimes write the same one up to the limit. A call is held
# back while it equals the beginning of an earlier one, so that a repeated call is never delivered.


@dataclass(slots=True)
class Repeats:
    _earlier_calls: list[tuple[str, str]] = field(default_factory=list)  # name and arguments
    _function_name: str = ""
    _arguments: base.GrowingText = field(default_factory=base.GrowingText)
    _equal_earlier_arguments: list[str] = field(default_factory=list)  # so far
    _held_events: list[ContentEvent] = field(default_factory=list)

    def start(self, event: ToolCallStarted) -> Sequence[ContentEvent]:
        """Begin a call; return the events to deliver now."""
        self._function_name, self._arguments, self._held_events = event.name, base.GrowingText(), []
        self._equal_earlier_arguments = [
            arguments for name, arguments in self._earlier_calls if name == event.name
        ]
        return self._hold_or_release_event(event)

    def add(self, event: ToolCallDelta) -> Sequence[ContentEvent]:
        """Add a piece of the arguments; return the events to deliver now."""
        text, size = event.arguments, self._arguments.size
        self._equal_earlier_arguments = [
            one for one in self._equal_earlier_arguments if one.startswith(text, size)
        ]
        self._arguments.add(text)
        return self._hold_or_release_event(event)

    def end(self) -> Sequence[ContentEvent] | None:
        """End the call; return the events left to deliver, or ``None`` if it is a repetition."""
        arguments = str(self._arguments)
        if arguments in self._equal_earlier_arguments:
            return None
        self._earlier_calls.append((self._function_name, arguments))
        held, self._held_events = self._held_events, []
        return held

    def _hold_or_release_event(self, event: ContentEvent) -> Sequence[ContentEvent]:
        self._held_events.append(event)
        if self._equal_earlier_arguments:
            return ()
        ready, self._held_events = self._held_events, []
        return ready


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The beginning of a call: the name of its function, and the model's own ``id`` or nothing."""

    name: str
    id: str


CallPart = CallStarted | str | None  # its beginning, a part of its arguments, or its end


@dataclass(slots=True)
class _Call:
    name: str = ""
    id: str = ""
    started: bool = False
    arguments: list[str] = field(default_factory=list)
    """Arguments so far that the client has not been given: no more than an empty object."""


def _list_start_and_end_marks(call_form: forms.CallSection) -> tuple[list[str], list[str]]:
    fixed = [one for one in call_form.call if isinstance(one, forms.Literal)] or [forms.Literal("")]
    heads = (text.partition("{")[0] for text in (call_form.begin, fixed[0].text))
    opening = [mark.rstrip("[") for text in heads for mark in markers(text)]
    triggers = [mark for mark in call_form.starts if not mark.endswith(('"', "=", ":"))]
    marks = [mark for mark in opening if mark.endswith((">", "]", "json"))]
    last = (fixed[-1].text, *fixed[-1].also)
    closing = ([mark for mark in markers(text) if mark.endswith(">")] for text in last)
    ends = [*(mark for marks in closing for mark in marks[-1:]), *markers(call_form.end)]
    return [call_form.separator.strip(), *triggers, *marks], ends


def _find_rest_or_cut_mark(text: str, mark: str) -> tuple[str | None, bool]:
    try:
        rest = base.LiteralReader(mark).feed(text).rest
    except base.Unreadable:
        return None, False
    return rest, rest is None


def name_triggers(calls: forms.CallSection, name: str) -> tuple[str, ...]:
    """Return the texts that a call begins with, if it begins with the name of its function."""
    behind, *others = calls.call[1:]
    if isinstance(behind, forms.Literal) and behind.text.strip():
        return (name + behind.text.strip(),)
    lists = [one for one in (behind, *others) if isinstance(one, forms.ParameterList)]
    texts = [one.text for one in others if isinstance(one, forms.Literal)]
    marks = [one.before.strip() for one in lists]
    marks += [mark for text in texts for mark in markers(text)[:1]]
    return tuple(f"{name}{space}{mark}" for space in ("", "\n") for mark in marks)


class SectionReader:
    """Reads a section of tool calls: ``begin`` call (``separator`` call)* ``end``.

    ``feed`` returns the parts understood; ``rest`` is the text behind the section once it has
    ended, ``None`` before. ``broken`` tells that the text is no call, ``open`` whether a call was
    started, ``complete`` how many have ended, ``unread`` what came since then if none was started.
    ``begin`` is still to come; ``read`` came already, and so did the ``name`` of the first function
    if it is given.

    A call that deviates from the declared form before its arguments begin is read
    leniently; behind its arguments nothing can make it less of a call.
    """

    def __init__(
        self, form: forms.CallSection, tools: base.Tools, *, begin: str, read: str, name: str = ""
    ) -> None:
        self._form = form
        self._tools = tools
        self._segments_left: list[forms.Segment] = [forms.Literal(begin)] if begin else []
        self._segments_left += form.call
        self._current_call = _Call(name)
        self._segment_reader: base.Reader | None = None
        self._lenient_reader: LenientReader | None = None
        self._arguments_start: int | None = None  # characters of the unread call
        self._tail_reader: CallTail | None = None
        self._held_text = ""
        self._held_space_pieces: list[str] = []  # behind a call, before anything else
        self._read_part: Callable[[str, list[CallPart]], str | None] = self._read_segment
        self.rest: str | None = None
        self.broken = False
        self.complete = 0
        self.unread = base.GrowingText(read)

    @property
    def open(self) -> bool:
        return self._current_call.started

    @property
    def awaits_end(self) -> bool:
        """Return whether the call may be complete but for the end of its message."""
        if self._lenient_reader is not None:
            return True
        if isinstance(self._segment_reader, ParameterReader):
            return self._segment_reader.is_between
        unread = self._segment_reader is None and self._read_part == self._read_segment
        return unread and isinstance(self._segments_left[0], forms.ParameterList)

    def feed(self, text: str) -> Sequence[CallPart]:
        parts: list[CallPart] = []
        if not self._current_call.started:
            self.unread.add(text)
        left: str | None = text
        try:
            while self.rest is None and left is not None:
                left = self._read_part(left, parts)
        except base.Unreadable:
            self.broken = True
        return parts

    def _read_segment(self, text: str, call_parts: list[CallPart]) -> str | None:
        segment = self._segments_left[0]
        try:
            read = self._feed_segment_reader(segment, text)
        except base.Unreadable:
            if self._current_call.started or self._form.at_start:
                raise
            return self._begin_lenient_reading()
        if read.arguments:
            self._append_arguments(read.arguments, call_parts)
        if read.rest is None:
            return None
        if isinstance(segment, forms.Name):
            self._current_call.name = base.offered_name(read.value, self._tools)
            if self._form.at_start and self._current_call.name not in self._tools:
                raise base.Unreadable  # an answer that looks alike
        elif isinstance(segment, forms.CallId):
            self._current_call.id = read.value if segment.kept else ""
            if not self._current_call.name:  # it is in the id: ``functions.weather:0`` (Kimi K2)
                name = read.value.removeprefix("functions.").rpartition(":")[0]
                self._current_call.name = name or read.value
        self._segment_reader = None
        self._segments_left.pop(0)
        # An empty list of parameters is one only if the call ends behind it.
        is_sure = self._current_call.started or isinstance(segment, forms.JsonArguments)
        if not self._segments_left or (
            is_sure and not isinstance(segment, forms.Literal | forms.Name | forms.CallId)
        ):
            self._emit_start_and_arguments(call_parts)
            call_parts.append(None)
            self._current_call, self._arguments_start = _Call(), None
            self.complete += 1
            self._tail_reader = CallTail(self._segments_left, keep=self._form.end.strip())
            self._read_part = self._read_call_tail
        return read.rest

    def _feed_segment_reader(self, segment: forms.Segment, text: str) -> base.Read:
        if self._segment_reader is None:
            if not isinstance(segment, forms.Literal | forms.Name | forms.CallId):
                if not self._current_call.name:
                    raise base.Unreadable
                self._arguments_start = self.unread.size - len(text)
            self._segment_reader = self._new_segment_reader(segment)
        return self._segment_reader.feed(text)

    def _append_arguments(self, arguments_text: str, call_parts: list[CallPart]) -> None:
        # For the client, a call starts with its first argument.
        call = self._current_call
        call.arguments.append(arguments_text)
        if arguments_text.isspace() and not call.started:
            return
        if call.started or "".join(call.arguments).strip() not in ("", "{", "{}"):
            self._emit_start_and_arguments(call_parts)

    def _emit_start_and_arguments(self, call_parts: list[CallPart]) -> None:
        call = self._current_call
        if not call.started:
            call.started = True
            self.unread = base.GrowingText()
            call_parts.append(CallStarted(call.name, call.id))
        if call.arguments:
            call_parts.append("".join(call.arguments))
            call.arguments = []

    def _begin_lenient_reading(self) -> str:
        form, call, at = self._form, self._current_call, self._arguments_start
        marks, ends = _list_start_and_end_marks(form)
        named = call.name if at is not None and call.name in self._tools else ""
        self._lenient_reader = LenientReader(() if named else marks, ends, self._tools, named)
        self._segments_left, self._current_call = list(form.call), _Call()
        self._segment_reader = self._arguments_start = None
        self._read_part = self._read_leniently
        return str(self.unread)[at if named else 0 :]

    def _read_leniently(self, text: str, call_parts: list[CallPart]) -> str | None:
        assert self._lenient_reader is not None
        found = self._lenient_reader.feed(text)
        if found is None:
            return None
        calls, rest = found
        for name, arguments in calls:
            call_parts += (CallStarted(name, ""), arguments, None)
        self._lenient_reader = None
        self.complete += len(calls)
        behind = [one for one in self._form.call if isinstance(one, forms.Literal)][-1:]
        self._tail_reader = CallTail(behind, keep=self._form.end.strip())
        self.unread, self._read_part = base.GrowingText(rest), self._read_call_tail
        return rest

    def _read_call_tail(self, text: str, _: list[CallPart]) -> str | None:
        assert self._tail_reader is not None
        self.unread = base.GrowingText()
        rest = self._tail_reader.feed(text)
        if rest is not None:
            self.unread, self._read_part = base.GrowingText(rest), self._read_between_calls
        return rest

    def _read_between_calls(self, text: str, _: list[CallPart]) -> str | None:
        if not self._held_text and text.isspace():
            self._held_space_pieces.append(text)
            return None
        text = "".join((*self._held_space_pieces, self._held_text, text))
        self._held_text, self._held_space_pieces = "", []
        stripped = text.lstrip()
        separator = self._form.separator.strip()
        ends = tuple(filter(None, (self._form.end.strip(), *markers(self._form.end))))
        again = (separator,) if separator else self._list_next_call_marks()
        found = [_find_rest_or_cut_mark(stripped, end) for end in ends]
        if (rest := next((rest for rest, _ in found if rest is not None), None)) is not None:
            self.rest = rest
            return None
        if stripped.startswith(again):
            self._segments_left, self._read_part = list(self._form.call), self._read_segment
            return stripped[len(separator) :]
        arrives = any(partly for _, partly in found) and len(text) <= base.LONGEST_WORD
        if arrives or any(mark.startswith(stripped) for mark in again):
            self._held_text = text  # a mark may be arriving, or nothing more at all
            return None
        self.rest = text
        return None

    def _list_next_call_marks(self) -> tuple[str, ...]:
        first = self._form.call[0]
        if isinstance(first, forms.Name):  # only an offered function is told from other text
            return tuple(mark for name in self._tools for mark in name_triggers(self._form, name))
        words = first.text.split() if isinstance(first, forms.Literal) else []
        return ("{",) if words and words[0].startswith("{") else tuple(words[:1])

    def _new_segment_reader(self, segment: forms.Segment) -> base.Reader:
        schema = self._tools.get(self._current_call.name, {})
        following = self._segments_left[1] if len(self._segments_left) > 1 else None
        behind = following.text if isinstance(following, forms.Literal) else None
        match segment:
            case forms.Literal(text, also):
                return base.LiteralReader(text, also)
            case forms.Name():
                return base.NameReader()
            case forms.CallId():
                return base.CallIdReader("\n" if behind is None else behind)
            case forms.JsonArguments():
                return JsonReader()
            case forms.ParameterList():
                return ParameterReader(segment, schema, end="".join(markers(behind or "")[:1]))
            case forms.PythonArguments():
                return PythonReader(schema)
            case forms.LooseArguments(quote):
                return RelaxedReader(quote=quote)
            case forms.ElementArguments(mark):
                return ElementReader(mark, schema)


# Calls that deviate from their declared form: a text between the markers of calls is a call if it
# names an offered function and its arguments are an object: JSON where tags are declared, the
# reverse, or another key for the arguments.

_MOST_LENIENT = 32_000  # characters of such a call
_NAMES = ("name", "tool_name", "function", "tool", "function_name")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "arguments_json")
_HEAD = re.compile(
    r"""(?:\S{0,24}?(?=<))?<(?:[^\s<>=]{1,16}[:｜][ ]?)?(?:function|invoke|tool|call)"""
    r"""\s*(?:=|\s+name\s*=)\s*"""
    r"""["']?(?P<name>[\w.\-]+)["']?\s*(?P<ended>/?)>\s*""",
    re.VERBOSE,
)
_PREFIX = r"(?:[^\s<>=]{1,16}[:｜] ?)?"  # of a tag: the name that a family gives its own
_OPENING = re.compile(
    rf"""<{_PREFIX}param(?:eter)?(?:=|\s{{1,9}}name\s?=\s?)["']?(?P<key>[^"'<>\s]+)["']?[^<>]*>"""
    r"""|<arg_key>(?P<before>[^<]*)</arg_key>\s*<arg_value>"""
)
_CLOSE = re.compile(rf"</{_PREFIX}param(?:eter)?>|</arg_value>")
_CLOSING = re.compile(r"(?:(?:[^\s<]{0,24}|\]<\]\w{1,16}\[>\[)</[^<>]*>|\s)*")
_CALLED = re.compile(r"(?:functions\.)?(?P<name>[\w.\-]+?)(?::\d+)?\s*(?=[({<]|$)")
_LIST = forms.ParameterList(before="\x00k", between="\x00v", after="\x00e", constants="python")


LenientCall = tuple[str, str]  # name and arguments (JSON) of a call that was read


class LenientReader:
    """Reads a call, or a list of calls, that deviates from its declared form, between markers.

    ``marks`` are the texts that it may begin with, ``ends`` markers that end it, and ``name`` is
    its function, if that came already. Raises :class:`Unreadable` as soon as the text cannot be a
    call.
    """

    def __init__(
        self, marks: Iterable[str], ends: Iterable[str], tools: base.Tools, name: str = ""
    ) -> None:
        self._start_marks_left = sorted({mark for mark in marks if mark}, key=len, reverse=True)
        self._awaited_marks = ("", *self._start_marks_left)
        self._end_marks = tuple(ends)
        self._tools = tools
        self._known_function_name = name
        self._unread = ""
        self._is_past_marks = False
        self._bracket_scanner, self._scanned_length = Brackets(), 0
        self._search_start = 0

    def feed(self, text: str) -> tuple[list[LenientCall], str] | None:
        """Return the calls and the text behind them, or ``None`` while more may come."""
        self._unread += text
        if len(self._unread) > _MOST_LENIENT:
            raise base.Unreadable
        if not self._is_past_marks and not self._skip_marks_to_call_start():
            return None
        if self._unread[0] in "{[":
            start, self._scanned_length = self._scanned_length, len(self._unread)
            end = start + self._bracket_scanner.read(self._unread[start:])
            if not self._bracket_scanner.closed:
                return None
            return self._require_calls(self._unread[:end]), self._unread[end:]
        if not self._may_be_call():
            raise base.Unreadable
        return self._read_calls_to_end_mark()

    def _skip_marks_to_call_start(self) -> bool:
        self._unread = self._unread.lstrip()
        while found := next(filter(self._unread.startswith, self._start_marks_left), None):
            self._unread = self._unread[len(found) :].lstrip()
            self._start_marks_left.remove(found)
        self._is_past_marks = not any(mark.startswith(self._unread) for mark in self._awaited_marks)
        return self._is_past_marks

    def _may_be_call(self) -> bool:
        if self._unread[0] in ('<]"' if self._known_function_name else "<]"):
            return True
        text, names = self._unread.removeprefix("functions."), (*self._tools, "functions.")
        whole = any(text.startswith(name) and not text[len(name) :][:1].isalnum() for name in names)
        begins = whole or any(name.startswith(text) for name in names)
        return begins and not self._known_function_name

    def _read_calls_to_end_mark(self) -> tuple[list[LenientCall], str] | None:
        head = _HEAD.match(self._unread)
        if head is not None and head["ended"]:
            return self._require_calls(head.group()), self._unread[head.end() :]
        places = [
            at for end in self._end_marks if (at := self._unread.find(end, self._search_start)) >= 0
        ]
        if not places:
            longest = max(map(len, self._end_marks), default=0)
            if not longest:
                raise base.Unreadable
            self._search_start = max(len(self._unread) - longest, 0)
            return None
        return self._require_calls(self._unread[: min(places)]), self._unread[min(places) :]

    def _require_calls(self, text: str) -> list[LenientCall]:
        text = text.strip()
        if text[:1] not in ("{", "["):
            return [_require_tagged_call(text, self._tools, self._known_function_name)]
        value = _require_lenient_json(text)
        values = value if isinstance(value, list) else [value]
        if not values:
            raise base.Unreadable
        keys = value.keys() if isinstance(value, Mapping) else ()
        named = not (set(_NAMES).isdisjoint(keys) or set(_ARGUMENTS).isdisjoint(keys))
        if self._known_function_name and not named:
            return [_require_offered_call(self._known_function_name, value, self._tools)]
        return [_require_json_call(one, self._tools) for one in values]


def _require_lenient_json(text: str) -> object:
    try:
        return base.json_value(text)
    except (ValueError, RecursionError):
        written = relaxed_json(text)
        if written is None:
            raise base.Unreadable from None
        return base.json_value(written)


def _require_json_call(call_object: object, tools: base.Tools) -> LenientCall:
    if not isinstance(call_object, Mapping):
        raise base.Unreadable
    inner = call_object.get("function")
    if isinstance(inner, Mapping):
        call_object = inner
    name = next((of for key in _NAMES if isinstance(of := call_object.get(key), str)), None)
    if name is None and len(call_object) == 1:  # {NAME: ARGUMENTS}
        [(name, arguments)] = call_object.items()
        return _require_offered_call(str(name), arguments, tools)
    found = [call_object[key] for key in _ARGUMENTS if key in call_object]
    return _require_offered_call(name or "", found[0] if found else None, tools)


def _require_offered_call(name: str, arguments: object, tools: base.Tools) -> LenientCall:
    name = base.offered_name(name, tools)
    if name not in tools:
        raise base.Unreadable
    if isinstance(arguments, str) and arguments.strip():
        arguments = _require_lenient_json(arguments.strip())
    if not arguments:
        arguments = {}
    if not isinstance(arguments, Mapping) or (not arguments and tools[name].get("required")):
        raise base.Unreadable
    return name, json.dumps(arguments, ensure_ascii=False)


def _require_tagged_call(text: str, tools: base.Tools, function_name: str) -> LenientCall:
    if not function_name:
        head = _HEAD.match(text) or _CALLED.match(text)
        function_name = base.offered_name(head["name"], tools) if head else ""
        text = text[head.end() :] if head else text
    if function_name not in tools:
        raise base.Unreadable
    if text.startswith("("):
        read = PythonReader(tools[function_name]).feed(text[1:])
        if read.rest is None or not _CLOSING.fullmatch(read.rest[1:]):
            raise base.Unreadable
        return function_name, read.arguments
    if text[:1] != "{" and _OPENING.search(text):
        return function_name, _encode_tagged_arguments(text, tools[function_name])
    value = Brackets(strings=True)
    end = value.read(text) if text[:1] in ("{", '"') else 0
    end = end if value.closed else 0
    if not _CLOSING.fullmatch(text, end):
        raise base.Unreadable
    arguments = _require_lenient_json(text[:end]) if end else None
    return _require_offered_call(function_name, arguments, tools)


def _encode_tagged_arguments(text: str, schema: base.Schema) -> str:
    found = list(_OPENING.finditer(text))
    pairs = ""
    for at, opening in enumerate(found):
        stop = found[at + 1].start() if at + 1 < len(found) else len(text)
        close = _CLOSE.search(text, opening.end(), stop)
        if close is None or not _CLOSING.fullmatch(text, close.end(), stop):
            raise base.Unreadable
        value = text[opening.end() : close.start()].removeprefix("\n").removesuffix("\n")
        pairs += f"\x00k{(opening['key'] or opening['before']).strip()}\x00v{value}\x00e"
    return ParameterReader(_LIST, schema).feed(f"{pairs}\n.").arguments
