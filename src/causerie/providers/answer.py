"""One choice of a reply: its text, reasoning, calls and log-probabilities as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from io import StringIO
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import astuple

from causerie.protocol.events import (
    ContentEvent,
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
)
from causerie.protocol.reasoning import are_plain, blocks_of, text_of
from causerie.providers.calls import ChoiceCalls, ConversationCallIds
from causerie.providers.wire import (
    ProviderAlternative,
    ProviderChoice,
    ProviderDelta,
    ProviderLogprobs,
    finish_reason,
    is_cut,
    later,
    whole_characters,
)


class Separator(Protocol):
    """Separates reasoning from text in the content of one choice, however the content is cut."""

    def feed(self, text: str) -> Sequence[ContentEvent]:
        """Read more content; return events of the reasoning and text that are told apart by now."""

    def finish(self) -> Sequence[ContentEvent]:
        """Return the events held back, at the end of the content."""


class Separators(Protocol):
    """Makes a separator for each choice that needs one."""

    def may_open_reasoning(self, text: str) -> bool:
        """Return true if content that starts with ``text`` may open a reasoning tag."""

    def separator(self) -> Separator:
        """Return a new separator for a choice."""


class Repetition:
    """Drops from new text what repeats an earlier text, white space aside, until ``over``."""

    def __init__(self, text: str) -> None:
        self._unspaced_text = "".join(text.split())
        self._repeated_length = 0
        self._held_pieces: list[str] = []
        self.over = not self._unspaced_text
        self.repeated = False

    def feed(self, text: str) -> str:
        """Return no text while undecided, then the new text that repeats nothing earlier."""
        if self.over:
            return text
        squeezed, left = "".join(text.split()), len(self._unspaced_text) - self._repeated_length
        if not self._unspaced_text.startswith(squeezed[:left], self._repeated_length):
            return self.end() + text
        self._held_pieces.append(text)
        self._repeated_length += min(len(squeezed), left)
        if self._repeated_length < len(self._unspaced_text):
            return ""
        self.over = self.repeated = True
        self._held_pieces.clear()
        return _drop_visible_characters(text, left).lstrip()

    def end(self) -> str:
        self.over = True
        held = "".join(self._held_pieces)
        self._held_pieces.clear()
        return held


def _drop_visible_characters(text: str, count: int) -> str:
    for at, character in enumerate(text):
        if not count:
            return text[at:]
        count -= not character.isspace()
    return ""


_LEAST = -9999.0  # a log-probability that stands for minus infinity, by OpenAI's convention
_MOST_COMPARED = 16 * 1024 * 1024  # characters of reasoning that repetitions are looked for in
_TAGGED = "<think>{}</think>"


class AnswerState(Struct, eq=False):
    """State of one choice of a reply."""

    index: int
    ids: ConversationCallIds  # ids of the calls of all choices
    separators: Separators | None = None
    top_logprobs: int | None = None  # as in the request
    in_text: bool = False  # the answer's text had started before, so the rest is not reasoning
    ahead: str = ""  # text that the server may repeat before it continues
    functions: Collection[str] = ()  # names of the functions that may be called
    finish: str | None = None
    """The word for the reason that counts so far, as in the table of ``finish``."""
    stop_sequence: str | None = None
    whole: bool = False  # all of it came in one message, so that it needs no reason for its end
    _calls: ChoiceCalls | None = None  # until there is one
    _think_splitter: Separator | None = None
    _held_possible_prefill: str = ""
    _logprobs: list[TokenLogprob] = []
    _is_rest_plain_text: bool = False  # whether text is nothing but text from here on
    _has_non_text_blocks: bool = False  # of reasoning, such as signed ones
    _text_buffer: StringIO = field(default_factory=StringIO)
    _thoughts: StringIO = field(default_factory=StringIO)
    _tagged_echo_filter: Repetition | None = None  # of the reasoning, where the text begins
    _late_reasoning_echo_filter: Repetition | None = None  # of the reasoning, behind text
    _compared_character_count: int = 0  # characters of reasoning with which later text was compared
    _text_at_last_message: str | None = None  # the text so far, when the last whole message came
    _has_begun_with_whole_message: bool = False  # whether the first piece was a whole message
    _high_surrogates: dict[str, str] = {}  # by the field whose text ends with a first half

    @property
    def text_length(self) -> int:
        return self._text_buffer.tell()

    @property
    def reasoning_length(self) -> int:
        return self._thoughts.tell()

    @property
    def length(self) -> int:
        """Return the number of characters of text, reasoning and calls."""
        length = self.reasoning_length + self.text_length
        return length if self._calls is None else length + self._calls.size

    @property
    def has_reasoning(self) -> bool:
        return self.reasoning_length > 0 or self._has_non_text_blocks

    def bytes(self) -> int:
        arguments = "" if self._calls is None else self._calls.arguments()
        texts = (self._text_buffer.getvalue(), self._thoughts.getvalue(), arguments)
        return sum(len(text.encode("utf-8", "replace")) for text in texts)

    def read(self, choice: ProviderChoice, events: list[Event], *, mended: bool = False) -> None:
        """Read a choice of a chunk or reply into ``events``; raises :class:`UpstreamFailed`.

        Some servers have both a piece and a message: the piece is empty where the message is the
        whole reply, else the message repeats what was said. ``mended``: characters may be halves.
        """
        delta, message = choice.delta, choice.message
        if delta is None and message is None and choice.text:
            delta = ProviderDelta(content=choice.text)
        is_whole = message is not None and (
            delta is None or not any(astuple(delta)) or self._is_delta_whole_text(delta, message)
        )
        said = message if is_whole else delta
        if said is not None:
            if mended or self._high_surrogates:
                self._join_split_surrogates_in_place(said)
            if is_whole:
                self._read_message(said, choice, events)
            else:
                self._read_delta(said, events, choice.logprobs, last=bool(choice.finish_reason))
        if choice.finish_reason:
            self.finish = later(self.finish, choice.finish_reason)
            if isinstance(choice.stop_reason, str):
                self.stop_sequence = choice.stop_reason

    def _is_delta_whole_text(self, delta: ProviderDelta, message: ProviderDelta) -> bool:
        text = delta.content
        return (
            isinstance(text, str)
            and self.text_length > 0
            and text == message.content
            and text.startswith(self._text_buffer.getvalue())
        )

    def _read_delta(
        self,
        delta: ProviderDelta,
        events: list[Event],
        logprobs: ProviderLogprobs | None,
        *,
        last: bool,
        whole: bool = False,
    ) -> None:
        reasoning = delta.reasoning_content or delta.reasoning
        content = delta.content
        if delta.reasoning_details:
            self._add_reasoning_blocks(reasoning or text_of(delta.reasoning_details), delta, events)
        elif reasoning and not (content and self._is_repeat_of_all_reasoning(reasoning)):
            self._add_reasoning(reasoning, events, last=last)
        if self.top_logprobs is not None and logprobs is not None and not reasoning:
            most = self.top_logprobs
            for token in logprobs.entries:
                top = tuple(map(_build_logprob, (token.top_logprobs or ())[:most]))
                self._logprobs.append(_build_logprob(token, top))
        if content:
            if self._is_rest_plain_text and content.__class__ is str:
                self._text_buffer.write(content)
                events.append(TextDelta(content, (), self.index))
            else:
                self._add_content(content, events)
        if delta.tool_calls or delta.refusal or delta.function_call:
            self._read_refusal_and_calls(delta, events, whole=whole)

    def _read_message(
        self, message: ProviderDelta, choice: ProviderChoice, events: list[Event]
    ) -> None:
        self.whole, logprobs = True, choice.logprobs
        if self.text_length or self.reasoning_length or self._calls is not None:
            message, logprobs = self._remove_earlier_content(message), None
        else:
            self._text_at_last_message = _join_text(message.content)
            self._has_begun_with_whole_message = True
        self._read_delta(message, events, logprobs, last=True, whole=True)

    def _remove_earlier_content(self, message: ProviderDelta) -> ProviderDelta:
        thought, text = message.reasoning_content or message.reasoning or "", ""
        told_more = not self.text_length and len(thought) > self.reasoning_length
        known = self._thoughts.getvalue() if told_more else thought
        if message.content:
            text = _join_text(message.content)
            if text.lstrip().startswith("<") and self._spend_comparison_budget():
                text = Repetition(_TAGGED.format(thought or self._thoughts.getvalue())).feed(text)
        before = self._text_at_last_message
        if before is None:
            before = self._text_buffer.getvalue()
        more, self._text_at_last_message = "", before
        if text.startswith(before):
            more, self._text_at_last_message = text[len(before) :], text
        elif self._has_begun_with_whole_message and not before.startswith(text):
            more = text  # a server that calls its pieces messages
        return ProviderDelta(
            content=more or None,
            reasoning_content=thought[len(known) :] if thought.startswith(known) else None,
            tool_calls=message.tool_calls,
            function_call=message.function_call,
        )

    @property
    def takes_text(self) -> bool:
        """Return true if the next text may pass as it is, with nothing to look for in it."""
        return self._is_rest_plain_text and self.finish is None and not self._high_surrogates

    def goes_on(self, choice: ProviderChoice) -> ContentEvent | None:
        """Read a piece that only continues text or reasoning; return its event, else ``None``."""
        delta = choice.delta
        if delta is None or choice.finish_reason or self.finish is not None:
            return None
        if delta.tool_calls or delta.refusal or delta.reasoning_details or delta.function_call:
            return None
        if self._high_surrogates or choice.message is not None:
            return None
        content, reasoning = delta.content, delta.reasoning_content or delta.reasoning
        if content:
            if reasoning or not self._is_rest_plain_text or content.__class__ is not str:
                return None
            return self.more_text(content)
        apart = self.separators is None and self._think_splitter is None  # by the server
        if not (reasoning and apart) or self.in_text or self.text_length or self._calls is not None:
            return None
        return self.more_reasoning(reasoning)

    def writer(self, *, reasoning: bool) -> Callable[[str], object]:
        """Return the function that adds a piece to the reasoning, or to the text of the reply."""
        return (self._thoughts if reasoning else self._text_buffer).write

    def more_text(self, text: str) -> TextDelta:
        """Add to the reply's text; return the event for it."""
        self._text_buffer.write(text)
        return TextDelta(text, (), self.index)

    def more_reasoning(self, text: str) -> ReasoningDelta:
        """Add to the reply's reasoning; return the event for it."""
        self._thoughts.write(text)
        return ReasoningDelta(text, self.index)

    def end(self, events: list[Event]) -> None:
        """End the choice: emit the text that was held back, and the finish reason.

        Raises :class:`UpstreamFailed` where a call is not whole, or where nothing was said and no
        reason is known for that.
        """
        if self._held_possible_prefill:
            self._add_text(self._held_possible_prefill, events)
        if self._tagged_echo_filter is not None:
            self._add_text(self._tagged_echo_filter.end(), events)
        if self._high_surrogates:
            halves, self._high_surrogates = self._high_surrogates, {}
            if "content" in halves or "refusal" in halves:
                self._add_text_without_prefill("\ufffd", events)
            elif halves.keys() & {"reasoning_content", "reasoning"} and not self.text_length:
                self._add_reasoning("\ufffd", events)
        if self._think_splitter is not None:
            self._finish_and_drop_splitter(events)
        if self._logprobs:
            events.append(TextDelta("", tuple(self._logprobs), self.index))
        started = 0
        if self._calls is not None:
            self._calls.finish(events, cut=is_cut(self.finish))
            started = self._calls.started
        said = self.length > 0 or self._has_non_text_blocks
        reason = finish_reason(self.finish, calls=started > 0, said=said)
        events.append(Finished(reason, self.index, stop_sequence=self.stop_sequence))

    def _add_reasoning(self, reasoning: str, events: list[Event], *, last: bool = False) -> None:
        if not reasoning:
            return
        if self.in_text:
            self._add_content(reasoning, events)
            return
        if self.text_length or (self._calls is not None and self.reasoning_length):
            reasoning = self._remove_repeated_reasoning(reasoning, last=last)
            if not reasoning:
                return
        self._finish_and_drop_splitter(events)
        events.append(self.more_reasoning(reasoning))

    def _remove_repeated_reasoning(self, reasoning: str, *, last: bool) -> str:
        if (echo := self._late_reasoning_echo_filter) and echo.repeated and reasoning.isspace():
            return ""  # the end of what was repeated, whose white space is not compared
        if self._late_reasoning_echo_filter is None or self._late_reasoning_echo_filter.repeated:
            if not self._spend_comparison_budget():
                return reasoning
            self._late_reasoning_echo_filter = Repetition(self._thoughts.getvalue())
            self._is_rest_plain_text = False
            if last and self._thoughts.getvalue().endswith(reasoning):
                return ""
        return self._late_reasoning_echo_filter.feed(reasoning)

    def _spend_comparison_budget(self) -> bool:
        self._compared_character_count += self.reasoning_length
        return self._compared_character_count <= _MOST_COMPARED

    def _is_repeat_of_all_reasoning(self, reasoning: str) -> bool:
        return self.reasoning_length == len(reasoning) and self._thoughts.getvalue() == reasoning

    def _add_reasoning_blocks(self, text: str, delta: ProviderDelta, events: list[Event]) -> None:
        blocks = blocks_of(delta.reasoning_details)
        if are_plain(blocks) or self.in_text:
            self._add_reasoning(text, events)
            return
        self._finish_and_drop_splitter(events)
        self._has_non_text_blocks = True
        self._thoughts.write(text)
        events.append(ReasoningDelta(text, self.index, blocks))

    def _finish_and_drop_splitter(self, events: list[Event]) -> None:
        separator, self._think_splitter, self.separators = self._think_splitter, None, None
        if separator is not None:
            self._emit_reasoning_and_text(separator.finish(), events)

    def _add_content(self, content: str | list[Any], events: list[Event]) -> None:
        if isinstance(content, str):
            self._add_text_without_prefill(content, events)
            return
        for part in content:
            thought, text = _split_reasoning_and_text(part)
            if thought:
                self._add_reasoning(thought, events)
            if text:
                self._add_text_without_prefill(text, events)

    def _add_text_without_prefill(self, text: str, events: list[Event]) -> None:
        if not self.ahead:
            self._add_text(text, events)
            return
        heard = self._held_possible_prefill + text
        if self.ahead.startswith(heard) and heard != self.ahead:
            self._held_possible_prefill = heard
            return
        ahead, self.ahead, self._held_possible_prefill = self.ahead, "", ""
        rest = heard.removeprefix(ahead)
        if rest:
            self._add_text(rest, events)

    def _add_text(self, text: str, events: list[Event]) -> None:
        if self._late_reasoning_echo_filter is not None:  # what began like a repetition was none
            late, self._late_reasoning_echo_filter = self._late_reasoning_echo_filter.end(), None
            if late:
                events.append(self.more_reasoning(late))
        if not self.text_length and self.reasoning_length and self._think_splitter is None:
            text = self._remove_reasoning_echo(text)
        if not text:
            return
        if self.separators is not None:  # the content begins
            if self.separators.may_open_reasoning(text):
                self._think_splitter, self.separators = self.separators.separator(), None
            else:
                self._finish_and_drop_splitter(events)
        if self._think_splitter is not None:
            self._emit_reasoning_and_text(self._think_splitter.feed(text), events)
            return
        self._is_rest_plain_text = self.top_logprobs is None
        self._emit_text(text, events)

    def _remove_reasoning_echo(self, text: str) -> str:
        if self._tagged_echo_filter is None:
            tagged = text.isspace() or text.lstrip().startswith("<")
            if not tagged or not self._spend_comparison_budget():
                return text
            self._tagged_echo_filter = Repetition(_TAGGED.format(self._thoughts.getvalue()))
        new = self._tagged_echo_filter.feed(text)
        return new.lstrip() if self._tagged_echo_filter.repeated else new

    def _join_split_surrogates_in_place(self, delta: ProviderDelta) -> None:
        if (
            delta.content
            and not (delta.reasoning_content or delta.reasoning)
            and (ended := self._high_surrogates.keys() & {"reasoning_content", "reasoning"})
        ):
            for name in ended:
                del self._high_surrogates[name]
            delta.reasoning_content = "\ufffd"
        for name in ("reasoning_content", "reasoning", "content", "refusal"):
            text = getattr(delta, name)
            if isinstance(text, str):
                setattr(delta, name, self._join_surrogates(name, text))
        for call in delta.calls:
            function = call.function
            if function is not None and isinstance(function.arguments, str):
                key = f"{call.index} {call.id or ''}"
                function.arguments = self._join_surrogates(key, function.arguments)

    def _join_surrogates(self, field_key: str, text: str) -> str:
        text = self._high_surrogates.pop(field_key, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._high_surrogates[field_key], text = text[-1], text[:-1]
        return whole_characters(text)

    def _emit_reasoning_and_text(self, parts: Iterable[ContentEvent], events: list[Event]) -> None:
        for event in parts:
            if isinstance(event, ReasoningDelta):
                self._logprobs.clear()  # those are of the answer
                events.append(self.more_reasoning(event.text))
            elif isinstance(event, TextDelta):
                self._emit_text(event.text, events)

    def _emit_text(self, text: str, events: list[Event]) -> None:
        self._text_buffer.write(text)
        events.append(TextDelta(text, tuple(self._logprobs), self.index))
        self._logprobs.clear()

    def _read_refusal_and_calls(
        self, delta: ProviderDelta, events: list[Event], *, whole: bool
    ) -> None:
        if delta.refusal:
            self._add_text_without_prefill(delta.refusal, events)
        calls = delta.calls
        if calls:
            self._finish_and_drop_splitter(events)
            if self._calls is None:
                self._calls = ChoiceCalls(self.index, self.ids, self.functions)
            (self._calls.feed_whole if whole else self._calls.feed)(calls, events)


def _build_logprob(token: ProviderAlternative, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
    logprob = _LEAST if token.logprob is None else token.logprob
    raw = token.bytes
    if raw is None or not all(0 <= byte < 256 for byte in raw):
        return TokenLogprob(token.token, logprob, token.token.encode("utf-8", "surrogatepass"), top)
    return TokenLogprob(token.token, logprob, bytes(raw), top)


def _join_text(content: str | list[Any] | None) -> str:
    if isinstance(content, list):
        return "".join(_split_reasoning_and_text(part)[1] for part in content)
    return content or ""


def _split_reasoning_and_text(content_part: Any) -> tuple[str, str]:
    if isinstance(content_part, str):
        return "", content_part
    if not isinstance(content_part, dict):
        return "", ""
    thinking = content_part.get("thinking")
    if isinstance(thinking, list):
        return "".join(_split_reasoning_and_text(inner)[1] for inner in thinking), ""
    if isinstance(thinking, str):
        return thinking, ""
    text = content_part.get("text") or content_part.get("refusal")
    return "", text if isinstance(text, str) else ""
