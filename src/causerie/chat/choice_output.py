"""Events of one choice as they go out: ids of calls, stop strings, log-probabilities."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import structs

from causerie.chat.call_syntax.base import text_overlap
from causerie.chat.formats.format import CallId, ModelFormat
from causerie.engines.base import Token
from causerie.protocol.events import ContentEvent, TextDelta, TokenLogprob
from causerie.protocol.request import ChatRequest

_ALPHANUMERIC = string.ascii_letters + string.digits


@dataclass(slots=True)
class GeneratedCallIds:
    """Return the id of each call, by the order of the calls."""

    taken: set[str]
    """All ids of the conversation."""
    short: bool
    """Ids are nine letters and digits: the template of the format accepts no others."""
    resumed: list[str] = field(default_factory=list)
    """Ids of the calls that have been sent to the client already, in order."""

    def __call__(self, name: str, given: str) -> str:
        del name
        if self.resumed:
            return self.resumed.pop(0)
        if given and given not in self.taken:
            self.taken.add(given)
            return given
        while True:
            made = (
                "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))
                if self.short
                else f"call_{secrets.token_hex(12)}"
            )
            if made not in self.taken:
                self.taken.add(made)
                return made


def call_ids(request: ChatRequest, form: ModelFormat, known: list[str]) -> GeneratedCallIds:
    """Return the ids for one choice of a request; ``known`` are those of calls already sent."""
    taken = {call.id for message in request.messages for call in message.tool_calls}
    segments = form.calls.call if form.calls else ()
    short = any(
        isinstance(segment, CallId) and segment.pattern == CallId().pattern for segment in segments
    )
    return GeneratedCallIds(taken.union(known), short, known)


class ChoiceOutput:
    """Places the events that the parser has read into the choice with this index."""

    __slots__ = ("_choice", "_logprobs", "_stops", "_undecided", "plain", "stopped")

    def __init__(self, choice: int, stop: Sequence[str], *, logprobs: bool) -> None:
        self._choice = choice
        self._stops = StopStrings(stop) if stop else None
        self._logprobs: list[TokenLogprob] = []  # of text that is held back for a stop string
        self._undecided: list[TokenLogprob] = []  # of tokens that may still become answer text
        # Events go out exactly as the parser returns them.
        self.plain = not (choice or stop or logprobs)
        self.stopped = False  # a stop string has ended the choice

    @property
    def stop_sequence(self) -> str | None:
        """Return the stop string that has ended the choice."""
        return self._stops.text if self._stops is not None and self.stopped else None

    def note(self, token: Token) -> None:
        """Keep the log-probability of a token until its text is known to be answer text."""
        if token.logprob is not None and _has_visible_text(token):
            self._undecided.append(_logprob(token))

    def forget(self) -> None:
        """Drop the kept log-probabilities: the tokens were no part of the answer."""
        self._undecided.clear()

    def place(self, events: list[ContentEvent], *, uncut: bool) -> list[ContentEvent]:
        """Return the events for this choice; ``uncut`` text is not searched for stop strings."""
        if self.plain:
            return events
        out: list[ContentEvent] = []
        for event in events:
            if not isinstance(event, TextDelta):
                self._undecided.clear()
                out.append(structs.replace(event, choice=self._choice))
                continue
            self._logprobs += self._undecided
            self._undecided.clear()
            text = event.text
            if self._stops is not None and not uncut:
                text = self._stops.feed(text)
                self.stopped = self._stops.met
            if text:
                out.append(self._delta(text))
            if self.stopped:
                break
        return out

    def finish(self) -> list[ContentEvent]:
        """Return the text that was held back because a stop string might have started in it."""
        held = self._stops.finish() if self._stops is not None else ""
        return [self._delta(held)] if held or self._logprobs else []

    def _delta(self, text: str) -> TextDelta:
        logprobs, self._logprobs = tuple(self._logprobs), []
        return TextDelta(text, logprobs, self._choice)


def _has_visible_text(token: Token) -> bool:
    return bool(token.text) or token.raw.decode("utf-8", "replace").endswith("\ufffd")


def _logprob(token: Token) -> TokenLogprob:
    return TokenLogprob(
        text=token.text or token.raw.decode("utf-8", "replace"),
        logprob=token.logprob or 0.0,
        raw=token.raw,
        top=tuple(TokenLogprob(other.text, other.logprob, other.raw) for other in token.top),
    )


class StopStrings:
    """Passes text on until one of ``texts`` appears; the stop string itself is not passed."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(texts)
        self._held = ""
        self.met = False
        self.text = ""
        """The one that appeared."""

    def feed(self, text: str) -> str:
        """Return the part of the text that can no longer belong to a stop string."""
        text = self._held + text
        found = [at for at in (text.find(stop) for stop in self._texts) if at >= 0]
        if found:
            self.met = True
            self.text = next(one for one in self._texts if text.startswith(one, min(found)))
            self._held = ""
            return text[: min(found)]
        keep = max((text_overlap(text, stop) for stop in self._texts), default=0)
        self._held = text[len(text) - keep :] if keep else ""
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Return the held-back text at the end of the text."""
        held, self._held = self._held, ""
        return held
