"""One choice of a reply: its text, reasoning, calls and log-probabilities as they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from causerie.errors import UpstreamFailed
from causerie.protocol.events import (
    ContentEvent,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
)
from causerie.protocol.reasoning import are_plain, blocks_of, text_of
from causerie.providers.calls import ChoiceCalls, ConversationCallIds
from causerie.providers.separator import Separator, Separators
from causerie.providers.wire import (
    ProviderAlternative,
    ProviderChoice,
    ProviderDelta,
    ProviderLogprob,
)

FINISHES: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
    "safety": "content_filter",
}
_BROKEN = frozenset({"error", "network_error", "abort", "insufficient_system_resource"})
_LEAST = -9999.0  # a log-probability that stands for minus infinity, by OpenAI's convention


class AnswerStart(Struct, eq=False):
    """State of one choice of a reply."""

    index: int
    ids: ConversationCallIds
    """Ids of the calls of all choices."""
    separators: Separators | None = None
    top_logprobs: int | None = None
    """As in the request."""
    in_text: bool = False
    """The answer's text had started before, so the rest is not reasoning."""
    ahead: str = ""
    """Text that the server may repeat before it continues."""
    finish: str | None = None
    """The reason that the server gave, in lower case."""
    reasoned: int = 0
    """Characters of reasoning so far; ``size`` counts all characters."""
    texts: int = 0
    _calls: ChoiceCalls | None = None  # until there is one
    _separator: Separator | None = None
    _held: str = ""
    _logprobs: list[TokenLogprob] = []
    _plain: bool = False  # whether text is nothing but text from here on

    @property
    def size(self) -> int:
        """Characters of everything."""
        size = self.reasoned + self.texts
        return size if self._calls is None else size + self._calls.size

    def read(self, choice: ProviderChoice, events: list[Event], *, whole: bool) -> None:
        """The events of a piece; raises :class:`UpstreamFailed` where it tells of a breakdown.

        Some servers have both a piece and a message: empty is the piece of a ``whole`` reply, and
        the message of a stream repeats what was said.
        """
        delta = (choice.message or choice.delta) if whole else (choice.delta or choice.message)
        if delta is not None:
            reasoning = delta.reasoning_content or delta.reasoning
            if delta.reasoning_details:
                self._blocks(reasoning or text_of(delta.reasoning_details), delta, events)
            elif reasoning:
                self._reasoning(reasoning, events)
            if self.top_logprobs is not None and choice.logprobs is not None and not reasoning:
                self._logprobs += self._tokens(choice.logprobs.told)
            content = delta.content
            if content:
                if self._plain and content.__class__ is str:
                    self.texts += len(content)
                    events.append(TextDelta(content, (), self.index))
                else:
                    self._content(content, events)
            if delta.tool_calls or delta.refusal:
                self._others(delta, events, whole=whole)
        if choice.finish_reason:
            finish = choice.finish_reason.lower()
            if finish in _BROKEN:
                raise UpstreamFailed("The provider broke its reply off.")
            self.finish = finish

    def goes_on(self, choice: ProviderChoice) -> ContentEvent | None:
        """The event of a piece that has more of the same text, else ``None``: nothing was read."""
        delta = choice.delta
        if delta is None or choice.finish_reason or self.finish is not None:
            return None
        if delta.tool_calls or delta.refusal or delta.reasoning_details:
            return None
        content, reasoning = delta.content, delta.reasoning_content or delta.reasoning
        if content:
            if reasoning or not self._plain or content.__class__ is not str:
                return None
            return self.more(content, reasoning=False)
        apart = self.separators is None and self._separator is None  # from the text, by the server
        if not reasoning or not apart or self.in_text or self.texts:
            return None
        return self.more(reasoning, reasoning=True)

    def more(self, text: str, *, reasoning: bool) -> ContentEvent:
        """The event of more of the text, or of the reasoning, that came last."""
        if reasoning:
            self.reasoned += len(text)
            return ReasoningDelta(text, self.index)
        self.texts += len(text)
        return TextDelta(text, (), self.index)

    def end(self, events: list[Event]) -> None:
        """End the choice: emit the text that was held back, and the finish reason."""
        if self._held:
            self._text(self._held, events)
        if self._separator is not None:
            self._separated(events)
        if self._logprobs:
            events.append(TextDelta("", tuple(self._logprobs), self.index))
        reason = FINISHES.get(self.finish or "stop", "stop")
        started = 0
        if self._calls is not None:
            self._calls.finish(events, cut=reason in ("length", "content_filter"))
            started = self._calls.started
        if started and reason == "stop":
            reason = "tool_calls"
        elif not started and reason == "tool_calls":
            reason = "stop"
        events.append(Finished(reason, self.index))

    def _reasoning(self, text: str, events: list[Event]) -> None:
        """The server tells reasoning and answer apart itself."""
        if not text:
            return
        if self.in_text:
            self._content(text, events)
            return
        self._separated(events)
        self.reasoned += len(text)
        events.append(ReasoningDelta(text, self.index))

    def _blocks(self, text: str, delta: ProviderDelta, events: list[Event]) -> None:
        """Reasoning in blocks; those that are more than their text are kept for their provider."""
        blocks = blocks_of(delta.reasoning_details)
        if are_plain(blocks) or self.in_text:
            self._reasoning(text, events)
            return
        self._separated(events)
        self.reasoned += len(text)
        events.append(ReasoningDelta(text, self.index, blocks))

    def _separated(self, events: list[Event]) -> None:
        """No more tags are looked for."""
        separator, self._separator, self.separators = self._separator, None, None
        if separator is not None:
            self._give(separator.finish(), events)

    def _content(self, content: str | list[Any], events: list[Event]) -> None:
        if isinstance(content, str):
            self._heard(content, events)
            return
        for part in content:
            thought, text = _part(part)
            if thought:
                self._reasoning(thought, events)
            if text:
                self._heard(text, events)

    def _heard(self, text: str, events: list[Event]) -> None:
        """Text, without what the server only repeats."""
        if not self.ahead:
            self._text(text, events)
            return
        heard = self._held + text
        if self.ahead.startswith(heard) and heard != self.ahead:
            self._held = heard
            return
        ahead, self.ahead, self._held = self.ahead, "", ""
        rest = heard.removeprefix(ahead)
        if rest:
            self._text(rest, events)

    def _text(self, text: str, events: list[Event]) -> None:
        if self.separators is not None:  # the content begins
            if self.separators.may_begin(text):
                self._separator, self.separators = self.separators.separator(), None
            else:
                self._separated(events)
        if self._separator is not None:
            self._give(self._separator.feed(text), events)
            return
        self._plain = self.top_logprobs is None
        self._say(text, events)

    def _give(self, found: Iterable[ContentEvent], events: list[Event]) -> None:
        for event in found:
            if isinstance(event, ReasoningDelta):
                self.reasoned += len(event.text)
                self._logprobs.clear()  # those are of the answer
                events.append(ReasoningDelta(event.text, self.index))
            elif isinstance(event, TextDelta):
                self._say(event.text, events)

    def _say(self, text: str, events: list[Event]) -> None:
        self.texts += len(text)
        events.append(TextDelta(text, tuple(self._logprobs), self.index))
        self._logprobs.clear()

    def _others(self, delta: ProviderDelta, events: list[Event], *, whole: bool) -> None:
        """A refusal is the answer's text; calls end the text before them."""
        if delta.refusal:
            self._heard(delta.refusal, events)
        if delta.tool_calls:
            self._separated(events)
            if self._calls is None:
                self._calls = ChoiceCalls(self.index, self.ids)
            self._calls.feed(delta.tool_calls, events, whole=whole)

    def _tokens(self, tokens: Iterable[ProviderLogprob]) -> list[TokenLogprob]:
        return [
            _token(token, tuple(map(_token, (token.top_logprobs or ())[: self.top_logprobs])))
            for token in tokens
        ]


def _token(
    token: ProviderLogprob | ProviderAlternative, top: tuple[TokenLogprob, ...] = ()
) -> TokenLogprob:
    logprob = _LEAST if token.logprob is None else token.logprob
    return TokenLogprob(token.token, logprob, _raw(token), top)


def _raw(token: ProviderLogprob | ProviderAlternative) -> bytes:
    if token.bytes is not None and all(0 <= byte < 256 for byte in token.bytes):
        return bytes(token.bytes)
    return token.token.encode("utf-8", "surrogatepass")


def _part(part: Any) -> tuple[str, str]:
    """The reasoning and the text of one part of a content that is a list."""
    if isinstance(part, str):
        return "", part
    if not isinstance(part, dict):
        return "", ""
    thinking = part.get("thinking")
    if isinstance(thinking, list):
        return "".join(_part(inner)[1] for inner in thinking), ""
    if isinstance(thinking, str):
        return thinking, ""
    text = part.get("text") or part.get("refusal")
    return "", text if isinstance(text, str) else ""
