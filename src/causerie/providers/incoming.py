"""Turn a reply, as it arrives, into events in the contract's order; count its tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from causerie.errors import UpstreamFailed
from causerie.protocol.bounded_json import SMALL
from causerie.protocol.events import (
    Batch,
    ContentEvent,
    Event,
    Partial,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from causerie.protocol.request import ChatRequest, prompt_estimate
from causerie.protocol.sse import BEFORE, BEHIND, EventDecoder, LineTooLong, NamedEvent
from causerie.providers.answer import AnswerState, Separators
from causerie.providers.calls import ConversationCallIds, new_call_id
from causerie.providers.dialect import Dialect
from causerie.providers.other_replies import MessagesReader, ResponsesReader
from causerie.providers.refusal import failure_in_reply
from causerie.providers.wire import (
    NoJson,
    ProviderChoice,
    ProviderChunk,
    ProviderCompletionDetails,
    ProviderDelta,
    ProviderPromptDetails,
    ProviderUsage,
    is_cut,
    mended,
    merged,
    read_chunk,
    read_mended,
)

# Tokens of a reply: as the server tells them, and the best guess where it does not.
#
# A missing prompt is the estimate of the request. A missing total is counted by what has arrived (a
# piece of a stream is about a token, one of many characters a token for each four), and so is what
# arrived after it was last told; a missing share of reasoning is that of the characters. If the
# total is that of prompt, completion and reasoning, the completion was told without the reasoning;
# if more was cached than the prompt has, the prompt was told without that. A number that is
# impossible, by the bytes that came or the limits of request and model, counts as not told.

_CHARACTERS = 4  # a token, about
_OF_ONE = 8  # characters a piece: more are more than one token
UNSHOWN = 128  # most tokens of a reply that are not visible in it, such as the marks of its parts
_MARGIN = 16  # tokens beyond a limit: ends that some servers count in addition
BELIEVED_PROMPT = 131_072
"""Tokens that a server may add to a prompt: its own instructions, results of its own searches."""
_BYTES_PER_ESTIMATE = 4  # at most: a token for four bytes of ASCII, or three of other text
_MOST_OF_CHOICE = 1_048_576  # tokens, where no limit is known


class ReportedUsage(Struct, frozen=True, gc=False):
    """The last usage that a server reported, and how many pieces and characters it covers."""

    usage: ProviderUsage
    pieces: int
    size: int


_UNTOLD = ReportedUsage(ProviderUsage(), 0, 0)


def counted(
    last: ReportedUsage, pieces: int, answers: Collection[AnswerState], request: ChatRequest
) -> Usage:
    """Return the token usage so far, as reported last, with estimates for what is missing."""
    told = last.usage
    reasoned = size = 0
    for answer in answers:
        reasoned += answer.reasoning_length
        size += answer.length
    prompt = told.prompt_tokens or told.input_tokens
    completion = told.completion_tokens or told.output_tokens
    asked = told.prompt_tokens_details or ProviderPromptDetails()
    made = told.completion_tokens_details or ProviderCompletionDetails()
    reasoning = told.reasoning_tokens if made.reasoning_tokens is None else made.reasoning_tokens
    other_cached = told.prompt_cache_hit_tokens or told.cached_tokens or 0
    cached = other_cached if asked.cached_tokens is None else asked.cached_tokens
    if reasoning and told.total_tokens == (prompt or 0) + (completion or 0) + reasoning:
        completion = (completion or 0) + reasoning
    if prompt and cached > prompt:  # counted apart
        prompt += cached
    impossible = False
    if completion and not _are_counts_plausible(completion, reasoning or 0, size, answers, request):
        impossible, completion, reasoning = True, None, None
    if prompt and prompt > BELIEVED_PROMPT and prompt > most_of_prompt(request):
        impossible, prompt, cached = True, None, 0
    unsure = not completion or not prompt or pieces > last.pieces
    if not completion:
        completion = estimated_tokens(pieces, size)
    elif pieces > last.pieces:
        completion += estimated_tokens(pieces - last.pieces, size - last.size)
    if not prompt:
        prompt = prompt_estimate(request)
    if reasoning is None:
        reasoning = round(completion * reasoned / size) if reasoned else 0
    cached, reasoning = min(cached, prompt), min(reasoning, completion)
    written = min(asked.cache_write_tokens or 0, prompt - cached)
    return Usage(
        prompt, completion, cached, reasoning, unsure, impossible=impossible, written=written
    )


def _are_counts_plausible(
    completion: int,
    reasoning: int,
    size: int,
    answers: Collection[AnswerState],
    request: ChatRequest,
) -> bool:
    # A token makes a byte or more, but for a few that show nowhere. Hidden reasoning makes none:
    # only the limits of the request and the model bound it.
    count, bounds = max(request.n, len(answers)), request.bounds
    model = bounds.max_output_tokens or bounds.context_length or _MOST_OF_CHOICE
    most = model if request.max_tokens is None else request.max_tokens
    if completion - reasoning > most * count + _MARGIN or completion > model * count + _MARGIN:
        return False
    if completion <= size + UNSHOWN or reasoning or request.thinking.enabled:
        return True
    if any(each.has_reasoning for each in answers):
        return True
    if request.max_tokens is not None and any(is_cut(each.finish) for each in answers):
        return True
    return completion <= sum(each.bytes() for each in answers) + UNSHOWN


def most_of_prompt(request: ChatRequest) -> int:
    """Return the most tokens of a prompt that a server may report for the request."""
    most = BELIEVED_PROMPT + _BYTES_PER_ESTIMATE * prompt_estimate(request)
    context = request.bounds.context_length
    return most if context is None else min(most, context)


def estimated_tokens(pieces: int, size: int) -> int:
    """Estimate a reply's tokens from the number of its streamed pieces and of its characters."""
    apart = pieces > 1 and size <= pieces * _OF_ONE
    return pieces if apart else -(-size // _CHARACTERS)


def unreadable_reply(what: str) -> UpstreamFailed:
    return UpstreamFailed(f"The provider sent a reply that cannot be read ({what}).")


# Chunks that differ from the one before in their text alone, as most of a stream do.
#
# All other bytes of such a chunk are known, so it says what the one before said, with another text:
# one string is decoded where that took a whole document.

_decode = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
_QUOTE = ord('"')
_SHORTEST_TEXT = 3  # bytes, with its quotes


class ChunkForm(Struct, frozen=True, gc=False):
    """Bytes around the text of chunks that differ in their text alone, and where texts go."""

    before: bytes
    behind: bytes
    size: int  # of both
    keep: Callable[[str], object]
    choice: int
    reasoning: bool

    @classmethod
    def of(cls, data: bytes, delta: ProviderDelta, answer: AnswerState) -> ChunkForm | None:
        """Return the form of a chunk whose only text is that of ``delta``; ``None`` if unclear."""
        if delta.content:
            name = b'"content"'
        else:
            name = b'"reasoning_content"' if delta.reasoning_content else b'"reasoning"'
        quoted = _encode(delta.content or delta.reasoning_content or delta.reasoning)
        if data.count(name) != 1 or len(data) > SMALL or data.find(b"\n") >= 0:
            return None
        start = data.find(b'"', data.find(name) + len(name))
        if not data.startswith(quoted, start):  # it is written in another way
            return None
        before, behind = BEFORE + data[:start], data[start + len(quoted) :] + BEHIND
        size, reasoning = len(before) + len(behind), not delta.content
        keep = answer.writer(reasoning=reasoning)
        return cls(before, behind, size, keep, answer.index, reasoning)

    def event(self, piece: bytes) -> ContentEvent | None:
        """Return the event of a chunk of this form; ``None``, and keep nothing, for others.

        ``piece`` is the event of the stream: one line, with the empty one behind it.
        """
        quoted = piece.removeprefix(self.before).removesuffix(self.behind)
        length = len(quoted)
        if len(piece) - length != self.size or length < _SHORTEST_TEXT:
            return None
        if quoted[0] != _QUOTE or quoted[-1] != _QUOTE:  # white space may end a line
            return None
        try:
            text = _decode(quoted)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        self.keep(text)
        if self.reasoning:
            return ReasoningDelta(text, self.choice)
        return TextDelta(text, (), self.choice)


_SHORT = 64  # bytes: the end is no longer, with the white space around it
_MOST_UNLIKE = 8  # forms in a row, until none is looked for
_MOST_TO_MEND = 256 * 1024  # bytes of a chunk
MAX_EVENT_BYTES = 16 * 1024 * 1024  # most bytes of one event of a stream, or of a plain reply
PlainRead = tuple[tuple[*tuple[Event, ...], Usage], str | None]
"""The events of a whole reply that was read in one pass, and the server's fingerprint."""


@dataclass(eq=False, slots=True)  # a Struct is made for less, but writes its fields for more
class Incoming:
    """Reads one reply of a provider into events; ``partial`` is what came before that reply.

    ``fingerprint`` is the server's own. ``ended`` is set at the end that the server declares;
    ``complete`` says that every choice has an end, so that only usage may be missing.
    """

    request: ChatRequest
    dialect: Dialect
    separators: Separators | None = None
    partial: Partial | None = None
    call_id: Callable[[], str] = new_call_id
    ended: bool = False
    fingerprint: str | None = None
    _answers: dict[int, AnswerState] = field(default_factory=dict)
    _call_id_allocator: ConversationCallIds | None = None
    _content_piece_count: int = 0  # that brought content
    _last_report_or_untold: ReportedUsage = _UNTOLD
    _chunk_template: ChunkForm | None = None  # of the chunk that came last
    _template_misses_in_a_row: int = 0  # chunks in a row that had other forms
    _other_api_reader: MessagesReader | ResponsesReader | None = None  # of a server's other API

    def __post_init__(self) -> None:
        if self.dialect.api.bodies == "messages":
            self._other_api_reader = MessagesReader()

    @property
    def complete(self) -> bool:
        for answer in self._answers.values():
            if not answer.finish:
                return False
        return len(self._answers) >= self.request.n

    @property
    def usage(self) -> Usage:
        told, pieces = self._last_report_or_untold, self._content_piece_count
        found = counted(told, pieces, self._answers.values(), self.request)
        return self.dialect.reported(found, self.request.cache_scope)

    def feed(self, stream: Iterable[bytes], events: list[Event]) -> None:
        """Read chunks of a stream, or a whole reply, and add their events to ``events``.

        Raises :class:`ServiceError`, with what came before it added. Before the first
        content it may be the refusal of the request, after it it is :class:`UpstreamFailed`.
        """
        if self.ended:
            return
        for data in stream:
            form, other = self._chunk_template, self._other_api_reader
            event = None if form is None else form.event(BEFORE + data + BEHIND)
            if event is not None:
                self._template_misses_in_a_row = 0
                self._content_piece_count += 1
            elif other is not None:
                event = self._read_other_api_event_if_only_text(data, other)
            if event is not None:
                events.append(event)
                continue
            self._read_event(data, events)
            if self.ended:
                return

    def _read_event(self, event_data: bytes, events: list[Event]) -> None:
        if len(event_data) < _SHORT and event_data.strip() == b"[DONE]":
            self._end_reply(events)
            return
        try:
            chunk, mended = self._decode_or_mend_chunk(event_data)
        except UpstreamFailed:
            if b"\n" not in event_data:
                raise
            self.feed(event_data.split(b"\n"), events)  # no empty lines stood between events
            return
        event = None if mended else self._read_if_continuing(chunk, event_data)
        if event is not None:
            events.append(event)
            return
        self._chunk_template = None  # of what may be over now
        other = self._other_api_reader
        if chunk.error is not None:
            raise failure_in_reply(chunk.error, started=self._content_piece_count > 0)
        if chunk.choices:
            self._read_choices(chunk.choices, events, mended=mended)
        elif isinstance(event_data, NamedEvent) and other is None and event_data.name == b"error":
            told = event_data.decode("utf-8", "replace")
            raise failure_in_reply({"message": told}, started=self._content_piece_count > 0)
        self._record_usage_and_fingerprint(chunk)
        if other is not None and other.ended:
            self._end_reply(events)

    def _decode_or_mend_chunk(self, chunk_json: bytes) -> tuple[ProviderChunk, bool]:
        other = self._other_api_reader
        try:
            return (read_chunk if other is None else other.read)(chunk_json), False
        except (ValueError, RecursionError) as error:
            named = chunk_json.__class__ is NamedEvent and other is None
            if named or chunk_json.strip() == b"null":
                return ProviderChunk(), False
            if len(chunk_json) > _MOST_TO_MEND or not isinstance(error, NoJson):
                raise unreadable_reply(str(error)) from error
            try:
                if other is None:
                    return read_mended(chunk_json), True
                return other.read(msgspec.json.encode(mended(chunk_json))), False
            except (ValueError, RecursionError):
                raise unreadable_reply(str(error)) from error

    def _read_choices(
        self, choices: Sequence[ProviderChoice], events: list[Event], *, mended: bool
    ) -> None:
        answers, before = self._answers, len(events)
        if self.request.n > 1:
            # Some servers give all choices the same index.
            whole = all(choice.message is not None for choice in choices)
            if whole and len({choice.index for choice in choices}) < len(choices):
                for index, choice in enumerate(choices):
                    choice.index = index
        for choice in choices:
            answer = answers.get(choice.index)
            if answer is None:
                if len(answers) >= self.request.n:
                    continue  # nobody asked for one more
                answer = self._add_answer_state(choice.index)
            answer.read(choice, events, mended=mended)
        if len(events) > before:
            self._content_piece_count += 1

    def goes_on(self, piece: bytes, decoder: EventDecoder) -> Batch:
        """Return the event of a piece that only continues a text, else nothing, and read nothing.

        ``decoder`` has read what came before it.
        """
        form = self._chunk_template
        if form is not None and decoder.is_between:
            event = form.event(piece)
            if event is not None:
                self._template_misses_in_a_row = 0
                self._content_piece_count += 1
                return (event,)
        data = decoder.only(piece)
        if data is None:
            return ()
        if self._other_api_reader is not None:
            event = self._read_other_api_event_if_only_text(data, self._other_api_reader)
        else:
            event = None
            with suppress(ValueError, RecursionError):
                event = self._read_if_continuing(read_chunk(data), data)
        return () if event is None else (event,)

    def _read_other_api_event_if_only_text(
        self, event_json: bytes, reader: MessagesReader | ResponsesReader
    ) -> ContentEvent | None:
        answer = self._answers.get(0)
        if answer is None or not answer.takes_text or not (text := reader.text(event_json)):
            return None
        self._content_piece_count += 1
        return answer.more_text(text)

    def _read_if_continuing(self, chunk: ProviderChunk, chunk_json: bytes) -> ContentEvent | None:
        # The event of a chunk that only continues one text. Of other chunks nothing is read.
        choices = chunk.choices
        if choices is None or len(choices) != 1 or chunk.error is not None:
            return None
        [choice] = choices
        answer = self._answers.get(choice.index)
        event = None if answer is None else answer.goes_on(choice)
        if event is None or answer is None or choice.delta is None:
            return None
        self._content_piece_count += 1
        self._record_usage_and_fingerprint(chunk)
        self._template_misses_in_a_row += 1
        plain = chunk.usage is None and choice.usage is None and chunk.x_groq is None
        alike = self._template_misses_in_a_row < _MOST_UNLIKE
        forms = plain and alike and self._other_api_reader is None
        self._chunk_template = ChunkForm.of(chunk_json, choice.delta, answer) if forms else None
        return event

    def whole(self, body: bytes) -> list[Event]:
        """Return the events of a reply that is no stream; raises :class:`ServiceError`."""
        events: list[Event] = []
        decoder = EventDecoder(MAX_EVENT_BYTES, values=True)
        try:
            self.feed(decoder.feed(body), events)
            self.feed(decoder.close(), events)
        except LineTooLong as error:
            raise unreadable_reply(str(error)) from error
        if not self._answers:
            raise unreadable_reply("no chat completion")
        self.finish(events)
        return events

    def finish(self, events: list[Event]) -> None:
        """Add the end of a stream whose server did not declare it; raise if it was cut off."""
        if self.ended:
            return
        answers = self._answers.values()
        whole = answers and all(answer.finish or answer.whole for answer in answers)
        if not self.complete and not whole:
            raise UpstreamFailed("The provider ended its reply before it was complete.")
        self._end_reply(events)

    def _record_usage_and_fingerprint(self, chunk: ProviderChunk) -> None:
        # Some servers put usage inside the only choice.
        usage = chunk.usage
        if usage is None and chunk.x_groq is not None:
            usage = chunk.x_groq.usage
        if usage is None and chunk.choices and self.request.n == 1:
            usage = chunk.choices[0].usage
        if usage is not None:
            size = sum([answer.length for answer in self._answers.values()])
            if self._last_report_or_untold is not _UNTOLD:
                usage = merged(self._last_report_or_untold.usage, usage)
            self._last_report_or_untold = ReportedUsage(usage, self._content_piece_count, size)
        if chunk.system_fingerprint:
            self.fingerprint = chunk.system_fingerprint

    def _add_answer_state(self, choice_index: int) -> AnswerState:
        ids = self._call_id_allocator or ConversationCallIds(self.request.messages, self.call_id)
        self._call_id_allocator = ids
        top = self.request.top_logprobs
        said, ahead = self.partial.text if self.partial is not None else "", ""
        if self.dialect.continuing.repeats:
            begun = self.request.continue_final_message
            ahead = self.request.messages[-1].text + said if begun else said
        # Where the answer's text had started before, nothing that comes is reasoning.
        separators = self.separators if self.dialect.tags and not said else None
        answer = AnswerState(choice_index, ids, separators, top, in_text=bool(said), ahead=ahead)
        answer.functions = frozenset([tool.name for tool in self.request.tools])
        self._answers[choice_index] = answer
        return answer

    def _end_reply(self, events: list[Event]) -> None:
        # A choice without a reason ended as it should.
        self.ended = True
        if not self._answers:
            raise UpstreamFailed("The provider ended its reply before it began.")
        for index in sorted(self._answers):
            self._answers[index].end(events)
        events.append(self.usage)
