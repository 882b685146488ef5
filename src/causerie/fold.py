"""Events into the contract: chunks of a stream, and the same chunks into a plain answer.

There is one path. A plain answer is its own stream put together, so the two
cannot say different things.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET, Struct

from causerie.errors import InternalError, ServiceError
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


class Identity(Struct, frozen=True):
    """What names one completion: its id, when it was made (Unix seconds), and the request's id."""

    id: str
    created: int
    request_id: str


class Frame(Struct, frozen=True):
    """What every chunk of one completion has in common, and what the caller asked to see."""

    identity: Identity
    model: str
    fingerprint: str
    reasoning_visible: bool = True

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
        chunk.usage = usage_body(usage)
        return chunk


class Fold:
    """Events into chunks, for one completion; the order of what it is fed is the order out.

    Every choice begins with a chunk that carries the role.
    """

    __slots__ = ("_begun", "_ended", "_frame")

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._begun: set[int] = set()
        self._ended: set[int] = set()

    def feed(self, batch: Batch) -> list[Chunk]:
        """The chunks of some events."""
        frame, begun = self._frame, self._begun
        made: list[Chunk] = []
        for event in batch:
            if isinstance(event, Usage):
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
            elif frame.reasoning_visible or not isinstance(event, ReasoningDelta):
                made.append(frame.chunk(_content(event)))
        return made

    def broken(self, failure: ServiceError) -> Chunk:
        """The chunk that ends a stream which cannot go on: the error, and an end of every choice
        that had none.
        """
        chunk = self._frame.chunk(
            *(
                ChunkChoice(index=index, delta=Delta(), finish_reason="error")
                for index in sorted(self._begun - self._ended) or [0]
            )
        )
        error = failure.body()["error"]
        assert isinstance(error, dict)
        chunk.error = error
        return chunk


async def completion(stream: AsyncIterator[Sequence[Chunk]]) -> Completion:
    """The plain answer; raises the :class:`ServiceError` that a broken stream ended with."""
    choices: dict[int, _Answer] = {}
    head: Chunk | None = None
    usage: UsageBody | None = None
    async for chunks in stream:
        for chunk in chunks:
            head = head or chunk
            if chunk.error is not UNSET:
                raise ServiceError.from_body(chunk.error)
            if chunk.usage is not UNSET:
                usage = chunk.usage
            for choice in chunk.choices:
                choices.setdefault(choice.index, _Answer()).add(choice)
    if head is None or usage is None:
        raise InternalError("The answer ended before it was complete; please try again.")
    return Completion(
        id=head.id,
        created=head.created,
        model=head.model,
        system_fingerprint=head.system_fingerprint,
        choices=[answer.choice(index) for index, answer in sorted(choices.items())],
        usage=usage,
    )


def usage_body(usage: Usage) -> UsageBody:
    """Usage in the shape of the wire."""
    return UsageBody(
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        total_tokens=usage.prompt + usage.completion,
        prompt_tokens_details=PromptDetails(cached_tokens=usage.cached),
        completion_tokens_details=CompletionDetails(reasoning_tokens=usage.reasoning),
    )


def _choice(index: int, delta: Delta) -> ChunkChoice:
    return ChunkChoice(index=index, delta=delta)


def _content(event: ContentEvent) -> ChunkChoice:
    match event:
        case ReasoningDelta(text):
            return _choice(event.choice, Delta(reasoning_content=text))
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


@dataclass(slots=True)
class _Answer:
    """One choice of a plain answer, while it is put together."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, ToolCallBody] = field(default_factory=dict)
    logprobs: list[TokenLogprobBody] = field(default_factory=list)
    finish: FinishReason = "stop"

    def add(self, choice: ChunkChoice) -> None:
        delta = choice.delta
        if delta.content is not UNSET:
            self.text.append(delta.content)
        if delta.reasoning_content is not UNSET:
            self.reasoning.append(delta.reasoning_content)
        if delta.tool_calls is not UNSET:
            for piece in delta.tool_calls:
                self._add_call(piece)
        if choice.logprobs is not UNSET:
            self.logprobs += choice.logprobs.content
        if choice.finish_reason is not None:
            self.finish = choice.finish_reason

    def _add_call(self, piece: ToolCallPiece) -> None:
        if piece.id is not UNSET and piece.function.name is not UNSET:
            function = Function(name=piece.function.name, arguments="")
            self.calls[piece.index] = ToolCallBody(id=piece.id, function=function)
        self.calls[piece.index].function.arguments += piece.function.arguments

    def choice(self, index: int) -> CompletionChoice:
        text = "".join(self.text)
        message = MessageBody(content=text if text or not self.calls else None)
        if self.reasoning:
            message.reasoning_content = "".join(self.reasoning)
        if self.calls:
            message.tool_calls = [call for _, call in sorted(self.calls.items())]
        return CompletionChoice(
            index=index,
            message=message,
            logprobs=Logprobs(content=self.logprobs) if self.logprobs else None,
            finish_reason=self.finish,
        )
