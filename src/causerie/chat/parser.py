"""Parses a model's text into events by its format's declaration, however the text is cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Generator, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from causerie.chat.call_syntax.base import Tools, Unreadable, offered_name, text_overlap
from causerie.chat.call_syntax.unmarked import Admits, UnmarkedReader, section_marks
from causerie.chat.calls import CallPart, CallStarted, Repeats, SectionReader, name_triggers
from causerie.chat.formats.format import CallSection, MessageHeader, ModelFormat, Reasoning
from causerie.protocol import events

# Feeding the same text in any pieces gives the same events once joined. No text is lost: what only
# looked like a call becomes text of the answer.

_CLOSERS = " \t\r\n}])"  # brackets too many behind a call mean nothing
_SLICE = 4096  # characters: each part of a text copies what is behind it


_Rest = Generator[events.ContentEvent, None, str]
"""Yields events of what was read; returns the text that is left."""


class Mode(Enum):
    REASONING = "reasoning"
    ANSWER = "answer"
    CALLS = "calls"


class ReasoningEnd(Enum):
    """Choice of the markers that end reasoning: any, its own, or its own and those of calls.

    Where a grammar admits any text until one of them, others in it mean nothing: a call that the
    reasoning speaks of was never held to a schema.
    """

    ANY_MARKER = "any"
    OWN_MARKER = "own"
    OWN_OR_CALL = "own or call"  # its own, or the first marker of the family's calls


class Parser:
    """Parses one choice's text into events; ``call_id`` makes a call's id of its name and own id.

    ``reasoning_open`` says that the prompt ended inside the reasoning, and ``leading`` what white
    space the model still has to write there. Just the white space that the format declares is taken
    off the reasoning and the answer behind it, so that both, sent back, give the same prompt again.
    ``tools`` are the schemas by name of the functions that may be called; with none, nothing is
    read as a call. ``reasoning_end`` says what ends the reasoning.
    """

    def __init__(
        self,
        form: ModelFormat,
        *,
        tools: Tools | None,
        reasoning_open: bool,
        call_id: Callable[[str, str], str],
        leading: str = "",
        reasoning_end: ReasoningEnd = ReasoningEnd.ANY_MARKER,
    ) -> None:
        self._model_format = form
        self._schemas_by_tool = tools or {}
        self._call_form: CallSection | None = form.calls if tools else None
        self._make_call_id = call_id
        self._markers = _Marks(form, self._call_form, self._schemas_by_tool, reasoning_end)
        self._unmarked_reader: UnmarkedReader | None = None
        self._call_reader: SectionReader | None = None
        self._header_form_or_empty = form.header or MessageHeader((), "", ())
        self._partial_header: str | None = None  # of a message, as far as it has come
        self._has_read_header = False  # a header has been read
        self._opening_mark = ""  # of the header or section of calls that is read
        self._space_before_mark = ""  # white space before that marker
        self._unsent_earlier_equal_mark_text = ""  # the first of two equal markers, and white space
        self._mode_before_section = Mode.ANSWER  # what was being read before it
        self._was_part_unsent_before_section = True  # and nothing of it had been given out
        self._ignores_rest = False  # a call broke off in the middle: what follows means nothing
        self._pending_text = ""
        self._held_spaces: list[str] = []  # white space that is dropped if the part ends here
        self._is_part_unsent = True  # nothing of the current part has been given out
        self._has_sent_answer = False  # answer text has been given out
        self._has_sent_reasoning = False  # reasoning has been given out
        self._space_before_part = ""  # white space between an earlier part and this one
        self._fast_path: _Flow | None = None  # in the middle of a part, with nothing held back
        self.mode = Mode.REASONING if reasoning_open else Mode.ANSWER
        self._space_to_drop: str | None = leading  # white space to drop next; None: all there is
        self.calls = 0  # complete calls
        self.call_open = False  # a call was started and not completed
        self.repeated = False  # a call said what an earlier one had said: it ends the message
        self._repeated_call_filter = Repeats()

    def read_unmarked(self, admits: Admits) -> None:
        """Enable reading an answer that consists only of calls without their marker as calls."""
        calls = self._call_form
        if calls is not None:
            self._unmarked_reader = UnmarkedReader(
                self._schemas_by_tool, admits, section_marks(calls), fenced=calls.at_start
            )

    @property
    def holding(self) -> bool:
        """Return whether text is held back that may still become events."""
        section = self._call_reader
        unread = section is not None and not section.open and section.unread.size > 0
        held = self.unmarked_pieces or self._pending_text or self._held_spaces
        return unread or self._partial_header is not None or bool(held)

    @property
    def unmarked_pieces(self) -> int:
        """Return how many pieces of text are held that may be calls without a marker."""
        return len(self._unmarked_reader.pieces) if self._unmarked_reader is not None else 0

    @property
    def under_way(self) -> bool:
        """Return whether the text so far ends in the middle of a call."""
        section = self._call_reader
        if self._partial_header is not None:
            form, read = self._header_form_or_empty, self._partial_header
            called = bool(_split_header_words(form, read)) if form.call_close else "to=" in read
            return called and bool(self._schemas_by_tool)
        return section is not None and (section.open or bool(str(section.unread).strip()))

    def feed(self, text: str) -> list[events.ContentEvent]:
        """Return the events of ``text``; what may be the beginning of a marker is held back."""
        flow = self._fast_path
        if (
            flow is not None
            and text
            and flow.first_mark(text) is None
            and not (flow.trims and text[-1].isspace())
        ):
            return [flow.event(text)]
        read: list[events.ContentEvent] = []
        for at in range(0, len(text), _SLICE) or (0,):
            read += self._parse_model_output(text[at : at + _SLICE])
        held = self._ignores_rest or self._call_reader is not None or self.holding
        self._fast_path = None if held or self._is_part_unsent else self._markers.flows[self.mode]
        return read

    def end(self) -> list[events.ContentEvent]:
        """Complete a call that only the end of its message ends, and return its events."""
        section, header = self._call_reader, self._model_format.header
        if section is None or header is None or not section.awaits_end:
            return []
        return self.feed(header.ends[0])

    def finish(self) -> list[events.ContentEvent]:
        """Return the events of all text still held back, once the whole text has been fed."""
        return list(self._parse_held_back_text())

    def _parse_held_back_text(self) -> Iterator[events.ContentEvent]:
        yield from self._end_unmarked_calls()
        while self._call_reader is not None or self._partial_header is not None:
            if self._call_reader is not None:
                text = yield from self._give_up_call_section(self._call_reader)
            elif (
                self._opening_mark in self._header_form_or_empty.opens
            ):  # a marker of its own is never text
                self._partial_header, text = None, ""
            else:
                text = yield from self._give_up_header(self._partial_header or "")
            yield from self._parse_model_output(text)
        pending, self._pending_text = self._pending_text, ""
        yield from self._build_and_note_trimmed_events(pending)
        space = self._take_spaces()
        if self.mode is Mode.ANSWER and space and not self.calls:
            yield from self._build_and_note_text_events(space)

    def _parse_model_output(self, text: str) -> Iterator[events.ContentEvent]:
        text = self._pending_text + text
        self._pending_text = ""
        while text and not self._ignores_rest:
            if self._call_reader is not None:
                text = yield from self._read_call_section(self._call_reader, text)
                continue
            if self._partial_header is not None:
                text = yield from self._read_header(self._partial_header + text)
                continue
            unmarked = self._unmarked_reader
            is_answer_start = self._is_at_start_of_whole_answer
            if unmarked and (unmarked.started or (is_answer_start and unmarked.may_begin(text))):
                text = yield from self._read_unmarked_calls(unmarked, text)
                continue
            at_start = is_answer_start or (self.mode is Mode.REASONING and self._is_part_unsent)
            found = self._markers.find(self.mode, text, at_start=at_start)
            if found is None:
                keep = self._markers.overlap(self.mode, text, at_start=at_start)
                self._pending_text = text[len(text) - keep :] if keep else ""
                yield from self._build_and_note_trimmed_events(text[: len(text) - keep])
                return
            start, mark = found
            yield from self._build_and_note_trimmed_events(text[:start])
            reasoning = self._model_format.reasoning
            if mark in reasoning.closes and self.mode is Mode.REASONING:
                space = self._take_spaces().removesuffix(reasoning.before_close)
                yield from self._build_and_note_text_events(space)
            left = self._change_mode_at(mark, text[start:])
            if left is None:
                yield from self._build_and_note_trimmed_events(mark)
                left = text[start + len(mark) :]
            text = left

    def _read_unmarked_calls(self, reader: UnmarkedReader, text: str) -> _Rest:
        if not reader.started:
            resumed = text.lstrip()
            yield from self._build_and_note_trimmed_events(text[: len(text) - len(resumed)])
            text = resumed
        reader.feed(text)
        if reader.repeated:
            yield from self._end_unmarked_calls()
            self.repeated = self._ignores_rest = True
        elif not reader.possible:
            self._unmarked_reader = None
            return reader.text
        return ""

    def _end_unmarked_calls(self) -> Iterator[events.ContentEvent]:
        reader, self._unmarked_reader = self._unmarked_reader, None
        if reader is None or not reader.started:
            return
        if not reader.calls:
            yield from self._parse_model_output(reader.text)
            return
        self._held_spaces = []
        for name, arguments in reader.calls:
            for part in (CallStarted(name, ""), arguments, None):
                yield from self._iter_events_of_call_part(part)

    @property
    def _is_at_start_of_whole_answer(self) -> bool:
        said = self._has_sent_answer or self._has_read_header or self.calls
        return self.mode is Mode.ANSWER and not said

    def _change_mode_at(self, mark: str, text: str) -> str | None:
        form, rest = self._model_format, text[len(mark) :]
        reasoning = form.reasoning
        if mark in self._markers.headers:
            self._partial_header, self._opening_mark = "", mark
            return text
        if mark in self._markers.triggers:
            calls = self._markers.triggers[mark]
            self._begin_call_section(mark, calls, begin=calls.begin, read="")
            return text
        if mark in self._markers.lead_ins:
            self._begin_call_section(mark, self._markers.lead_ins[mark], begin="", read=mark)
            return rest
        if mark in reasoning.closes and self.mode is Mode.REASONING:
            self._begin_part(Mode.ANSWER, reasoning.after_close)
            return rest
        if mark in self._markers.answer:
            self._begin_part(Mode.ANSWER, form.answer_space if mark == form.answer_open else None)
            return rest
        if mark in reasoning.closes:
            return None if self._has_sent_answer else rest  # a stray one, before any answer
        if self._has_sent_answer and not self._is_part_unsent:
            return None  # an answer that only mentions the marker
        self._begin_part(Mode.REASONING, reasoning.after_open)
        return rest

    def _begin_part(self, mode: Mode, space_to_drop: str | None = None) -> None:
        self.mode = mode
        self._space_to_drop = space_to_drop
        self._is_part_unsent = True
        self._space_before_part = self._take_spaces() or self._space_before_part

    def _begin_call_section(
        self, mark: str, form: CallSection, *, begin: str, read: str, name: str = ""
    ) -> None:
        self._opening_mark, self._space_before_mark = mark, self._take_spaces()
        self._mode_before_section = self.mode
        self._was_part_unsent_before_section = self._is_part_unsent
        self._begin_part(Mode.CALLS)
        self._space_before_part = self._space_before_mark or self._space_before_part
        self._call_reader = SectionReader(
            form, self._schemas_by_tool, begin=begin, read=read, name=name
        )

    def _read_header(self, header_text: str) -> _Rest:
        self._partial_header = header_text
        try:
            header = read_header(self._header_form_or_empty, header_text)
        except Unreadable:
            return (yield from self._give_up_header(header_text))
        if header is None:
            return ""
        form, self._partial_header, self._has_read_header = self._header_form_or_empty, None, True
        self._begin_part(Mode.ANSWER, None if header.ended else self._model_format.answer_space)
        name = function_of(form, header, self._schemas_by_tool)
        if not header.ended and name is not None and self._call_form is not None:
            self._begin_call_section("", form.call, begin=form.call.begin, read="", name=name)
        elif not header.ended and is_reasoning(form, header):
            self._begin_part(Mode.REASONING, self._model_format.reasoning.after_open)
        return header_text[header.size :]

    def _give_up_header(self, header_text: str) -> _Rest:
        self._partial_header = None
        yield from self._build_and_note_trimmed_events(self._opening_mark)
        return header_text.removeprefix(self._opening_mark)

    def _read_call_section(self, reader: SectionReader, text: str) -> _Rest:
        for part in reader.feed(text):
            yield from self._iter_events_of_call_part(part)
            if self.repeated:
                self._call_reader, self._ignores_rest = None, True
                return ""
        if reader.broken:
            return (yield from self._give_up_call_section(reader))
        if reader.rest is None:
            return ""
        self._call_reader = None
        self._begin_part(Mode.ANSWER)
        return reader.rest

    def _iter_events_of_call_part(self, call_part: CallPart) -> Iterator[events.ContentEvent]:
        match call_part:
            case CallStarted(name, given):
                self.call_open, self._unsent_earlier_equal_mark_text = True, ""
                started = events.ToolCallStarted(self.calls, self._make_call_id(name, given), name)
                yield from self._repeated_call_filter.start(started)
            case str(text):
                yield from self._repeated_call_filter.add(events.ToolCallDelta(self.calls, text))
            case None:
                self.call_open = False
                left = self._repeated_call_filter.end()
                if left is None:
                    self.repeated = True
                else:
                    yield from left
                    self.calls += 1

    def _give_up_call_section(self, reader: SectionReader) -> _Rest:
        # A call that was started cannot be taken back.
        self._call_reader = None
        if reader.open:
            self._ignores_rest = self.call_open = True
            return ""
        if reader.complete:
            self._begin_part(Mode.ANSWER)
            return str(reader.unread)
        self._begin_part(self._mode_before_section, "")
        self._is_part_unsent = self._was_part_unsent_before_section
        mark = self._opening_mark
        rest = str(reader.unread).removeprefix(mark)
        lead = self._unsent_earlier_equal_mark_text + self._space_before_mark
        again = rest.lstrip()
        if not self._unsent_earlier_equal_mark_text and mark and again.startswith(mark):
            self._unsent_earlier_equal_mark_text = lead + mark + rest[: len(rest) - len(again)]
            return again
        self._unsent_earlier_equal_mark_text = ""
        yield from self._build_and_note_trimmed_events(lead + mark)
        return rest

    def _build_and_note_trimmed_events(self, text: str) -> list[events.ContentEvent]:
        if self._is_part_unsent and self._space_to_drop != "":
            text = self._drop_leading_space(text)
        if not text:
            return []
        kept = text.rstrip()
        behind = self._is_part_unsent and bool(self.calls) and not text.strip(_CLOSERS)
        resumed = self._has_sent_answer or bool(kept)  # else reasoning may come yet
        trims = self.mode is Mode.REASONING or self._call_form is not None or not resumed
        if behind and kept:
            self._space_to_drop = ""  # white space behind them is theirs
        if trims and (behind or not kept):
            self._held_spaces.append(text)  # put together each time it would be copied
            return []
        said, space = (kept, text[len(kept) :]) if trims else (text, "")
        said = self._take_spaces() + said
        self._held_spaces = [space] if space else []
        return self._build_and_note_text_events(said)

    def _take_spaces(self) -> str:
        space, self._held_spaces = "".join(self._held_spaces), []
        return space

    def _drop_leading_space(self, text: str) -> str:
        if self._space_to_drop is None:
            return text.lstrip()
        while text and self._space_to_drop:
            if text[0] != self._space_to_drop[0]:
                self._space_to_drop = ""
                return text
            text, self._space_to_drop = text[1:], self._space_to_drop[1:]
        return text

    def _build_and_note_text_events(self, text: str) -> list[events.ContentEvent]:
        if not text:
            return []
        said = self._has_sent_reasoning if self.mode is Mode.REASONING else self._has_sent_answer
        if self._is_part_unsent and said:
            text = (self._space_before_part or "\n") + text
        self._is_part_unsent, self._space_before_part = False, ""
        if self.mode is Mode.REASONING:
            self._has_sent_reasoning = True
            return [events.ReasoningDelta(text)]
        self._has_sent_answer = True
        return [events.TextDelta(text)]


@dataclass(frozen=True, slots=True)
class _Flow:
    """Fast path for text in the middle of a part: when to emit it at once, and as which event.

    Text is held back where it has what may begin a marker (``first_mark``), or ends in white
    space that may have to be dropped (where that ``trims``).
    """

    first_mark: Callable[[str], object | None]
    event: type[events.ReasoningDelta | events.TextDelta]
    trims: bool


class _Marks:
    """Compiled searches for a format's markers, by mode and whether a part is at its start."""

    def __init__(
        self,
        form: ModelFormat,
        calls: CallSection | None,
        names: Iterable[str],
        reasoning_end: ReasoningEnd,
    ) -> None:
        ways = (calls, *calls.also) if calls and form.header is None else ()
        unmarked = [(way, name) for way in ways if way.is_named for name in names]
        named = {mark: way for way, name in unmarked for mark in name_triggers(way, name)}
        self.triggers = {mark: way for way in reversed(ways) for mark in way.starts} | named
        self.lead_ins = {mark: way for way in reversed(ways) for mark in way.lead_ins}
        opens, closes = form.reasoning.opens, form.reasoning.closes
        answer, start = (form.answer_open, form.answer_close, *form.skip), tuple(self.triggers)
        self.headers: tuple[str, ...] = ()
        if form.header is not None:
            opens, answer, start = (), form.header.ends, form.header.recipients
            close = form.header.call_close
            start += tuple(name + close for name in names if close)
            self.headers = (*form.header.opens, *start)
            answer += (*form.header.opens, *(form.header.recipients[1:] if calls else ()))
        self.answer = answer
        answer += tuple(self.lead_ins)
        inside = [mark for mark, way in self.triggers.items() if not (way.at_start or way.is_named)]
        answering = _Search((*opens, *closes, *answer, *inside))
        ends: tuple[str, ...] = ()
        if reasoning_end is ReasoningEnd.ANY_MARKER:
            ends = (*answer, *inside)
        elif reasoning_end is ReasoningEnd.OWN_OR_CALL and calls is not None:
            ends = calls.starts
        thinking = _Search((*closes, *ends))
        self._searches_by_mode_and_start = {
            (Mode.REASONING, False): thinking,
            (Mode.REASONING, True): _Search((*thinking.marks, *opens, *self.headers)),
            (Mode.ANSWER, False): answering,
            (Mode.ANSWER, True): _Search((*answering.marks, *start)),
        }
        self.flows = {
            Mode.REASONING: thinking.flow(events.ReasoningDelta, trims=True),
            Mode.ANSWER: answering.flow(events.TextDelta, trims=calls is not None),
        }

    def find(self, mode: Mode, text: str, *, at_start: bool) -> tuple[int, str] | None:
        found = self._searches_by_mode_and_start[mode, at_start].find(text)
        anywhere = self._searches_by_mode_and_start[mode, False]
        if found and found[1] not in anywhere.marks and text[: found[0]].strip():
            return anywhere.find(text)
        return found

    def overlap(self, mode: Mode, text: str, *, at_start: bool) -> int:
        search = self._searches_by_mode_and_start[mode, at_start]
        return max((text_overlap(text, mark) for mark in search.marks), default=0)


class _Search:
    def __init__(self, marks: tuple[str, ...]) -> None:
        self.marks = tuple(sorted({mark for mark in marks if mark}, key=len, reverse=True))
        self._marks_re = re.compile("|".join(map(re.escape, self.marks))) if self.marks else None

    def flow(self, event: type[events.ReasoningDelta | events.TextDelta], *, trims: bool) -> _Flow:
        firsts = "|".join(sorted({re.escape(mark[0]) for mark in self.marks}))
        return _Flow(re.compile(firsts or "(?!)").search, event, trims)

    def find(self, text: str) -> tuple[int, str] | None:
        found = self._marks_re.search(text) if self._marks_re else None
        return (found.start(), found.group()) if found else None


# The family of another's model is not known: the tags are those that most families use, and calls
# are not looked for.


class Separation:
    """Makes parsers that split leading tagged reasoning off content; ``tag`` is one more tag."""

    def __init__(self, tag: str = "") -> None:
        reasoning = Reasoning()
        if tag:
            reasoning = Reasoning(also_open=(f"<{tag}>",), also_close=(f"</{tag}>",))
        self._reasoning_only_format = ModelFormat(reasoning=reasoning)

    def may_open_reasoning(self, text: str) -> bool:
        """Return whether content that starts with ``text`` may open a reasoning tag."""
        return text.lstrip()[:1] in ("", "<")

    def separator(self) -> Parser:
        form = self._reasoning_only_format
        return Parser(form, tools=None, reasoning_open=False, call_id=lambda _, own: own)


# A header is read however models spell it: the recipient before or behind the channel, with or
# without a type of content.


_MOST_CHARACTERS = 200
_LONGEST_MARKER = 40
_MOST_WORDS = 6
_WORDS = re.compile(r"[\w.=\-\s]*")
_RECIPIENT = re.compile(r"to\s*=\s*([\w\-]+(?:\s*\.\s*[\w\-]+)*)")
_SPACED_DOT = re.compile(r"\s*\.\s*")


@dataclass(frozen=True, slots=True)
class ParsedHeader:
    """A header that was read; ``size`` counts its characters, closing marker included."""

    recipient: str
    channel: str
    size: int
    close: str  # marker that it ends with
    ended: bool = False  # whether the message ended within its header, so it has no text


def read_header(form: MessageHeader, text: str) -> ParsedHeader | None:
    """Return the header at the beginning of ``text``, or ``None`` while more of it may come.

    Raises :class:`Unreadable` where the text is no header.
    """
    marks = (*form.closes, *form.ends)
    whole, text = text, text[: _MOST_CHARACTERS + _LONGEST_MARKER]
    found = min(((at, mark) for mark in marks if (at := text.find(mark)) >= 0), default=None)
    if found is None:
        inside = (*marks, *form.opens, *form.within)
        text = text[: len(text) - max(text_overlap(text, mark) for mark in inside)]
        _split_header_words(form, text)
        if len(whole) > _MOST_CHARACTERS + _LONGEST_MARKER:
            raise Unreadable
        return None
    at, mark = found
    words = _split_header_words(form, text[:at])
    _, channel, behind = text[:at].rpartition(form.channel or mark)
    words_behind = behind.split() if channel else []
    recipient = _RECIPIENT.search(text, 0, at)
    named = _SPACED_DOT.sub(".", recipient[1]) if recipient else ""
    return ParsedHeader(
        " ".join(words) if mark == form.call_close else named,
        words_behind[0] if words_behind and "=" not in words_behind[0] else "",
        at + len(mark),
        mark,
        ended=mark not in form.closes,
    )


def _split_header_words(header_form: MessageHeader, text: str) -> list[str]:
    if len(text) > _MOST_CHARACTERS:
        raise Unreadable
    for mark in (*header_form.opens, *header_form.within):
        if not _WORDS.fullmatch(mark):
            text = text.replace(mark, " ")
    words = text.split()
    if len(words) > _MOST_WORDS or not _WORDS.fullmatch(text):
        raise Unreadable
    return words


def function_of(form: MessageHeader, header: ParsedHeader, tools: Container[str]) -> str | None:
    """Return the function that a header calls, empty if the message's text names it, or ``None``.

    A recipient in the functions' own namespace is always one; another only by the name of a tool.
    """
    name = offered_name(header.recipient, tools)
    if not name and header.close == form.call_close:
        return ""
    if form.functions and name.startswith(form.functions):
        return name.removeprefix(form.functions)
    return name if name in tools else None


def is_reasoning(form: MessageHeader, header: ParsedHeader) -> bool:
    """Decide by its header whether a message that calls no function is reasoning.

    A message to a tool that nobody offered is not for the user.
    """
    if header.recipient and header.recipient not in form.readers:
        return True
    if header.close in (form.reasoning_close, form.call_close):
        return True
    return header.channel in form.reasoning
