"""Ids of the tool calls of one reply: the model's own where they are new, else generated."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass, field

from causerie.chat.formats.format import CallId, ModelFormat
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
