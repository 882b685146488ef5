"""Events into the contract: a stream's chunks in bytes, and the same chunks into a plain answer.

A plain answer says what its stream would say, put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, starmap
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from causerie.errors import InternalError
from causerie.protocol import sse
from causerie.protocol.completion import (
    Chunk,
    ChunkChoice,
    Completion,
    CompletionChoice,
    CompletionDetails,
    Delta,
    Function,
    FunctionPiece,
    Logprobs,
    MessageBody,
    PromptDetails,
    TokenLogprobBody,
    ToolCallBody,
    ToolCallPiece,
    TopLogprob,
    UsageBody,
)
from causerie.protocol.events import (
    Batch,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.reasoning import Block, block_of, joined

_encode = msgspec.json.Encoder().encode
_choice_of = attrgetter("choice")


class Identity(Struct, frozen=True):
    """What names one completion: its id, when it was made (Unix seconds), and the request's id."""

    id: str
    created: int
    request_id: str


class Frame(Struct, frozen=True):
    """What every chunk of one completion has in common, and what the caller asked to see.

    ``router_names`` says reasoning under the names of routers too
    (``reasoning``, ``reasoning_details``), with what a provider needs back of it;
    ``cost`` tells what the reply costs, where the catalog has a price for it.
    """

    identity: Identity
    model: str
    fingerprint: str
    reasoning_visible: bool = True
    router_names: bool = False
    cost: Callable[[Usage], float] | None = None

    def chunk(self, *choices: ChunkChoice) -> Chunk:
        """A chunk of this completion."""
        return Chunk(
            id=self.identity.id,
            created=self.identity.created,
            model=self.model,
            system_fingerprint=self.fingerprint,
            choices=list(choices),
        )

    def last(self, usage: Usage) -> Chunk:
        """The chunk that carries the usage."""
        chunk = self.chunk()
        chunk.usage = usage_body(usage, self.cost)
        return chunk

    def completion(self, events: Sequence[Event]) -> Completion:
        """The plain answer of these events: what a stream would say of them, put together.

        Raises :class:`InternalError` where they do not end in usage.
        """
        if not events or not isinstance(usage := events[-1], Usage):
            raise InternalError("The answer ended before it was complete; please try again.")
        by_choice = groupby(sorted(events[:-1], key=_choice_of), key=_choice_of)
        return Completion(
            id=self.identity.id,
            created=self.identity.created,
            model=self.model,
            system_fingerprint=self.fingerprint,
            choices=list(starmap(self.answer, by_choice)),
            usage=usage_body(usage, self.cost),
        )

    def answer(self, index: int, events: Iterable[Event]) -> CompletionChoice:
        """One choice of a plain answer."""
        texts: list[str] = []
        thoughts: list[ReasoningDelta] = []
        logprobs: list[TokenLogprob] = []
        calls: dict[int, ToolCallBody] = {}
        finish: FinishReason = "stop"
        for event in events:
            if isinstance(event, TextDelta):
                texts.append(event.text)
                logprobs += event.logprobs
            elif isinstance(event, Finished):
                finish = event.reason
            elif isinstance(event, ReasoningDelta):
                thoughts.append(event)
            elif isinstance(event, ToolCallStarted):
                calls[event.index] = _call(event)
            elif isinstance(event, ToolCallDelta):
                calls[event.index].function.arguments += event.arguments
        text = "".join(texts)
        message = MessageBody(content=text if text or not calls else None)
        if thoughts and self.reasoning_visible:
            _reason(message, thoughts, router_names=self.router_names)
        if calls:
            message.tool_calls = [calls[place] for place in sorted(calls)]
        return CompletionChoice(
            index=index,
            message=message,
            logprobs=Logprobs(content=list(map(_logprob, logprobs))) if logprobs else None,
            finish_reason=finish,
        )


class Fold:
    """Events into the bytes of a stream, for one completion; they go out in the order they came.

    Every choice begins with a chunk that carries the role. The usage is told
    where ``usage`` says so.
    """

    __slots__ = ("_begun", "_ended", "_frame", "_texts", "_thoughts", "_usage")

    def __init__(self, frame: Frame, *, usage: bool = True) -> None:
        self._frame = frame
        self._usage = usage
        self._begun: set[int] = set()
        self._ended: set[int] = set()
        # By choice, what stands around the text in a chunk with nothing but text, or reasoning.
        self._texts: dict[int, tuple[bytes, bytes]] = {}
        self._thoughts: dict[int, tuple[bytes, bytes]] = {}

    def feed(self, batch: Batch) -> bytes:
        """The server-sent events of some events; ``b""`` where nothing of them is told."""
        texts = self._texts
        made: list[bytes] = []
        for event in batch:
            if isinstance(event, TextDelta) and event.choice in texts and not event.logprobs:
                before, behind = texts[event.choice]
            elif (
                isinstance(event, ReasoningDelta) and event.choice in self._thoughts and event.text
            ):
                before, behind = self._thoughts[event.choice]
            else:
                made += map(_on_the_wire, self._chunks(event))
                continue
            made += (before, _encode(event.text), behind)
        return b"".join(made)

    def broken(self, error: dict[str, Any]) -> bytes:
        """What ends a stream that cannot go on: the error, and an end of every choice that had
        none.
        """
        chunk = self._frame.chunk(
            *(
                ChunkChoice(index=index, delta=Delta(), finish_reason="error")
                for index in sorted(self._begun - self._ended) or [0]
            )
        )
        chunk.error = error
        return _on_the_wire(chunk)

    def _chunks(self, event: Event) -> Iterator[Chunk]:
        """The chunks of any event; the next of a choice's texts can be written around."""
        frame = self._frame
        if isinstance(event, Usage):
            if self._usage:
                yield frame.last(event)
            return
        index = event.choice
        if index not in self._begun:
            self._begun.add(index)
            yield frame.chunk(_choice(index, Delta(role="assistant", content="")))
        if isinstance(event, Finished):
            self._ended.add(index)
            yield frame.chunk(ChunkChoice(index=index, delta=Delta(), finish_reason=event.reason))
        elif not isinstance(event, ReasoningDelta):
            if isinstance(event, TextDelta):
                self._texts[index] = _around(frame, index, Delta(content=""))
            yield frame.chunk(_content(event))
        elif frame.reasoning_visible and (event.text or frame.router_names):
            if not frame.router_names:
                self._thoughts[index] = _around(frame, index, Delta(reasoning_content=""))
            yield frame.chunk(_choice(index, _reasoning(event, frame)))


def usage_body(usage: Usage, cost: Callable[[Usage], float] | None = None) -> UsageBody:
    """Usage in the shape of the wire."""
    return UsageBody(
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        total_tokens=usage.prompt + usage.completion,
        prompt_tokens_details=PromptDetails(cached_tokens=usage.cached),
        completion_tokens_details=CompletionDetails(reasoning_tokens=usage.reasoning),
        cost=None if cost is None else cost(usage),
    )


def _choice(index: int, delta: Delta) -> ChunkChoice:
    return ChunkChoice(index=index, delta=delta)


def _reasoning(event: ReasoningDelta, frame: Frame) -> Delta:
    delta = Delta()
    if event.text:
        delta.reasoning_content = event.text
    if frame.router_names:
        if event.text:
            delta.reasoning = event.text
        delta.reasoning_details = _blocks(event)
    return delta


def _blocks(event: ReasoningDelta) -> Sequence[Block]:
    return event.blocks or (block_of(event.text),)


def _content(event: TextDelta | ToolCallStarted | ToolCallDelta) -> ChunkChoice:
    match event:
        case TextDelta(text, logprobs):
            choice = _choice(event.choice, Delta(content=text))
            if logprobs:
                choice.logprobs = Logprobs(content=[_logprob(token) for token in logprobs])
            return choice
        case ToolCallStarted(index, identifier, name):
            piece = ToolCallPiece(
                index=index,
                id=identifier,
                type="function",
                function=FunctionPiece(name=name, arguments=""),
                extra_content=event.extra or UNSET,
            )
            return _choice(event.choice, Delta(tool_calls=[piece]))
        case ToolCallDelta(index, arguments):
            piece = ToolCallPiece(index=index, function=FunctionPiece(arguments=arguments))
            return _choice(event.choice, Delta(tool_calls=[piece]))


def _logprob(token: TokenLogprob) -> TokenLogprobBody:
    return TokenLogprobBody(
        token=token.text,
        logprob=token.logprob,
        bytes=list(token.raw),
        top_logprobs=[
            TopLogprob(token=other.text, logprob=other.logprob, bytes=list(other.raw))
            for other in token.top
        ],
    )


def _on_the_wire(chunk: Chunk) -> bytes:
    return sse.encode(_encode(chunk))


def _around(frame: Frame, index: int, empty: Delta) -> tuple[bytes, bytes]:
    """What stands on the wire before and behind the text of a chunk, of one without text."""
    before, _, behind = _on_the_wire(frame.chunk(_choice(index, empty))).rpartition(b'""')
    return before, behind


def _call(event: ToolCallStarted) -> ToolCallBody:
    return ToolCallBody(
        id=event.id,
        function=Function(name=event.name, arguments=""),
        extra_content=event.extra or UNSET,
    )


def _reason(message: MessageBody, events: list[ReasoningDelta], *, router_names: bool) -> None:
    reasoning = "".join([event.text for event in events])
    if reasoning:
        message.reasoning_content = reasoning
    if router_names:
        if reasoning:
            message.reasoning = reasoning
        message.reasoning_details = joined(block for event in events for block in _blocks(event))
