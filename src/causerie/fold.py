"""Events into the contract: chunks of a stream, and the same chunks into a plain answer.

A plain answer says what its stream would say, put together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, Struct

from causerie.errors import InternalError
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
    ContentEvent,
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


class Fold:
    """Events into chunks, for one completion; the order of what it is fed is the order out.

    Every choice begins with a chunk that carries the role. The usage is told
    where ``usage`` says so. ``frame`` may be replaced before the first event.
    """

    __slots__ = ("_begun", "_ended", "_usage", "frame")

    def __init__(self, frame: Frame, *, usage: bool = True) -> None:
        self.frame = frame
        self._usage = usage
        self._begun: set[int] = set()
        self._ended: set[int] = set()

    def feed(self, batch: Batch) -> list[Chunk]:
        """The chunks of some events."""
        frame, begun = self.frame, self._begun
        made: list[Chunk] = []
        for event in batch:
            if isinstance(event, Usage):
                if self._usage:
                    made.append(frame.last(event))
                continue
            if event.choice not in begun:
                begun.add(event.choice)
                made.append(frame.chunk(_choice(event.choice, Delta(role="assistant", content=""))))
            if isinstance(event, Finished):
                self._ended.add(event.choice)
                made.append(
                    frame.chunk(
                        ChunkChoice(index=event.choice, delta=Delta(), finish_reason=event.reason)
                    )
                )
            elif not isinstance(event, ReasoningDelta):
                made.append(frame.chunk(_content(event)))
            elif frame.reasoning_visible and (event.text or frame.router_names):
                made.append(frame.chunk(_choice(event.choice, _reasoning(event, frame))))
        return made

    def broken(self, error: dict[str, Any]) -> Chunk:
        """The chunk that ends a stream which cannot go on: the error, and an end of every choice
        that had none.
        """
        chunk = self.frame.chunk(
            *(
                ChunkChoice(index=index, delta=Delta(), finish_reason="error")
                for index in sorted(self._begun - self._ended) or [0]
            )
        )
        chunk.error = error
        return chunk


class Whole:
    """Events into a plain answer; what a stream would say of them, put together.

    ``frame`` may be replaced before the end.
    """

    __slots__ = ("_choices", "_usage", "frame")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._choices: dict[int, _Answer] = {}
        self._usage: Usage | None = None

    def feed(self, batch: Batch) -> None:
        """Some events."""
        for event in batch:
            if isinstance(event, Usage):
                self._usage = event
                continue
            answer = self._choices.get(event.choice)
            if answer is None:
                answer = self._choices[event.choice] = _Answer()
            answer.add(event)

    def completion(self) -> Completion:
        """The answer; raises :class:`InternalError` where the events had no end."""
        if self._usage is None:
            raise InternalError("The answer ended before it was complete; please try again.")
        frame = self.frame
        return Completion(
            id=frame.identity.id,
            created=frame.identity.created,
            model=frame.model,
            system_fingerprint=frame.fingerprint,
            choices=[
                answer.choice(index, frame) for index, answer in sorted(self._choices.items())
            ],
            usage=usage_body(self._usage, frame.cost),
        )


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


class _Answer:
    """One choice of a plain answer, while it is put together."""

    __slots__ = ("_calls", "_finish", "_logprobs", "_reasoning", "_text")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[ReasoningDelta] = []
        self._calls: dict[int, ToolCallBody] = {}
        self._logprobs: list[TokenLogprobBody] = []
        self._finish: FinishReason = "stop"

    def add(self, event: ContentEvent | Finished) -> None:
        match event:
            case TextDelta():
                self._text.append(event.text)
                if event.logprobs:
                    self._logprobs += map(_logprob, event.logprobs)
            case ReasoningDelta():
                self._reasoning.append(event)
            case Finished():
                self._finish = event.reason
            case ToolCallStarted():
                function = Function(name=event.name, arguments="")
                self._calls[event.index] = ToolCallBody(
                    id=event.id, function=function, extra_content=event.extra or UNSET
                )
            case ToolCallDelta():
                self._calls[event.index].function.arguments += event.arguments

    def choice(self, index: int, frame: Frame) -> CompletionChoice:
        text = "".join(self._text)
        message = MessageBody(content=text if text or not self._calls else None)
        if self._reasoning and frame.reasoning_visible:
            self._reason(message, router_names=frame.router_names)
        if self._calls:
            message.tool_calls = [call for _, call in sorted(self._calls.items())]
        return CompletionChoice(
            index=index,
            message=message,
            logprobs=Logprobs(content=self._logprobs) if self._logprobs else None,
            finish_reason=self._finish,
        )

    def _reason(self, message: MessageBody, *, router_names: bool) -> None:
        reasoning = "".join([event.text for event in self._reasoning])
        if reasoning:
            message.reasoning_content = reasoning
        if router_names:
            if reasoning:
                message.reasoning = reasoning
            message.reasoning_details = joined(
                block for event in self._reasoning for block in _blocks(event)
            )
