"""Contents of one request and its reply, within bounds, for projects that keep them.

They are gathered alongside the reply and serialized only when it has ended, by the component that
keeps them. This module does not know why they are kept, or for how long.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from causerie.protocol.chunk_encoder import ResponseContext
from causerie.protocol.events import Batch, Event, Finished, ReasoningDelta, TextDelta, Usage
from causerie.protocol.events import ToolCallDelta as Arguments
from causerie.protocol.request import ChatRequest, Message, TextPart

MOST_BYTES = 256 * 1024  # of the request, and of the reply
_FIELDS = ("messages", "tools", "response_format")
_HELD = MOST_BYTES * 15 // 16  # of a reply: what is cut is cut where its JSON still ends
_LOGPROB = 60  # about what one is in JSON


class Excerpt(Struct, frozen=True):
    """JSON; where it is cut, its beginning."""

    text: str
    cut: bool


class Contents:
    """The contents of one request, while it is answered.

    ``context`` is what its reply is told in, and may be replaced before the end.
    """

    __slots__ = ("_cut", "_kept", "_open", "_request", "_size", "_told", "context")

    def __init__(self, request: ChatRequest, context: ResponseContext) -> None:
        self._request = request
        self.context = context
        self._kept: list[Event] = []
        self._open: dict[int, bool] = {}  # choices that have started: whether they have not ended
        self._told: Usage | None = None
        self._size = 0
        self._cut = False

    @property
    def weight(self) -> int:
        """About how many bytes of memory it holds."""
        return self._size + sum(map(_weight, self._request.messages))

    def see(self, batch: Batch) -> None:
        """Take note of some events; beyond the bound only of how the reply ends."""
        self._kept += filter(self._takes, batch)

    def forget(self) -> None:
        """The reply begins anew."""
        self._kept.clear()
        self._open.clear()
        self._size, self._cut = 0, False

    def request(self) -> Excerpt:
        """Return the request as it was sent: messages, tools and response format."""
        sent = self._request.whole
        return _excerpt({name: sent[name] for name in _FIELDS if name in sent}, cut=False)

    def reply(self, used: Usage) -> Excerpt:
        """Return the reply as a whole completion, also for a stream; empty if there was none.

        A choice that did not come to its end ends with ``error``. ``used`` is reported if the reply
        did not come to its usage.
        """
        if not self._open:
            return Excerpt("", cut=False)
        ends = [Finished("error", one) for one, started in self._open.items() if started]
        whole = self.context.completion([*self._kept, *ends, self._told or used])
        return _excerpt(whole, cut=self._cut)

    def _takes(self, event: Event) -> bool:
        if isinstance(event, Usage):
            self._told = event
            return False
        if isinstance(event, Finished):
            self._open[event.choice] = False
            return True
        self._open.setdefault(event.choice, True)
        self._size += _size(event)
        self._cut = self._cut or self._size > _HELD
        return not self._cut


def _weight(message: Message) -> int:
    content = message.content
    if content is None or isinstance(content, str):
        return len(content or "")
    return sum(len(one.text if isinstance(one, TextPart) else one.url) for one in content)


def _size(event: Event) -> int:
    """About its bytes in JSON."""
    match event:
        case TextDelta():
            return len(event.text) + sum(_LOGPROB * (1 + len(one.top)) for one in event.logprobs)
        case ReasoningDelta():
            texts = (text for block in event.blocks for text in block.values())
            return len(event.text) + sum(len(one) for one in texts if isinstance(one, str))
        case Arguments():
            return len(event.arguments)
        case _:
            return _LOGPROB


def _excerpt(value: object, *, cut: bool) -> Excerpt:
    whole = msgspec.json.encode(value)
    text = whole[:MOST_BYTES].decode(errors="ignore")  # a character that is cut through
    return Excerpt(text, cut or len(whole) > MOST_BYTES)
