"""Requests and replies for the tests of upstreams."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import Any

from causerie.chat.parser import Separation
from causerie.protocol.events import (
    Event,
    Finished,
    Partial,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS, GENERIC
from causerie.providers.incoming import Incoming
from causerie.providers.outgoing import drafted, outgoing
from causerie.providers.target import BodyStream
from causerie.shapes.chat_completions.reader import parse


class BufferedBody:
    """A complete body with the interface of one that is still arriving."""

    __slots__ = ("_response_body", "due", "late", "taker")

    def __init__(self, body: bytes) -> None:
        self._response_body = body
        self.due = self.late = inf  # what is there cannot be late
        self.taker: Callable[[bytes], bool] | None = None  # nor does it arrive

    async def piece(self, late: float = inf) -> bytes:
        body, self._response_body = self._response_body, b""
        return body

    async def finish(self, seconds: float) -> None:
        """Do nothing: the body is complete."""

    def close(self) -> None:
        """Do nothing: no connection is open."""


QUESTION = [{"role": "user", "content": "Hi"}]
F = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
G = {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}
H = {"type": "function", "function": {"name": "h", "parameters": {"type": "object"}}}


def request(**fields: Any) -> ChatRequest:
    """A request as the wire has it, with every field that a door may know."""
    body = {"model": "ours", "messages": QUESTION, **fields}
    return parse(json.dumps(body).encode(), ParsingRules(reasoning_object=True))


def sent(
    dialect: str, partial: Partial | None = None, **fields: Any
) -> tuple[dict[str, Any], list[str]]:
    """Return the request to that dialect, without model and usual messages, and the changes.

    It is in the terms of chat completions, also where the server speaks another API.
    """
    told, asked = DIALECTS[dialect], request(**fields)
    if told.api.bodies == "chat":
        out = outgoing(asked, told, "theirs", partial)
        body, changes = json.loads(out.body), out.changes
    else:
        streamed = asked.stream or told.streams
        draft = drafted(asked, told, "theirs", partial, streamed=streamed)
        body, changes = json.loads(json.dumps(draft.fields)), tuple(draft.changes)
    assert body.pop("model") == "theirs"
    if body["messages"] == QUESTION:
        del body["messages"]
    return body, [*asked.changes, *changes]


def body_stream(body: BufferedBody, *most: int) -> BodyStream:
    there: Any = body
    return BodyStream(reader(), there, 60.0, inf, *most)


def reader(
    dialect: Dialect = GENERIC, *, partial: Partial | None = None, **fields: Any
) -> Incoming:
    """A reader of one reply, whose new ids count upwards; the request has functions."""
    numbers = count(1)
    fields.setdefault("tools", [F, G, H])
    return Incoming(
        request(**fields),
        dialect,
        separators=Separation(),
        partial=partial,
        call_id=lambda: f"call_{next(numbers)}",
    )


def joined(events: Sequence[Event]) -> list[Event]:
    """The same events with neighbours of one kind put together."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        match last, event:
            case (ReasoningDelta(), ReasoningDelta()) if last.choice == event.choice:
                out[-1] = ReasoningDelta(last.text + event.text, event.choice)
            case (TextDelta(), TextDelta()) if last.choice == event.choice:
                text = last.text + event.text
                out[-1] = TextDelta(text, last.logprobs + event.logprobs, event.choice)
            case (ToolCallDelta(), ToolCallDelta()) if last.index == event.index:
                arguments = last.arguments + event.arguments
                out[-1] = ToolCallDelta(event.index, arguments, event.choice)
            case _:
                out.append(event)
    return out


def in_order(events: Sequence[Event]) -> None:
    """Fail where events break the contract's order."""
    ended: set[int] = set()
    started: set[tuple[int, int]] = set()
    for position, event in enumerate(events):
        if isinstance(event, Usage):
            assert position == len(events) - 1
            continue
        assert event.choice not in ended
        if isinstance(event, Finished):
            ended.add(event.choice)
        elif isinstance(event, ToolCallStarted):
            assert (event.choice, event.index) not in started
            started.add((event.choice, event.index))
        elif isinstance(event, ToolCallDelta):
            assert (event.choice, event.index) in started
    assert isinstance(events[-1], Usage)


def chunk(finish: str | None = None, *, index: int = 0, **delta: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def fed(reader: Incoming, *data: bytes) -> list[Event]:
    """The events of chunks that came together."""
    events: list[Event] = []
    reader.feed(data, events)
    return events


def read(reader: Incoming, *chunks: dict[str, Any] | str | bytes) -> list[Event]:
    """All events of a stream, ended by ``[DONE]``."""
    events: list[Event] = []
    for piece in (*chunks, b"[DONE]"):
        data = json.dumps(piece).encode() if isinstance(piece, dict) else piece
        events += fed(reader, data.encode() if isinstance(data, str) else data)
    return events
