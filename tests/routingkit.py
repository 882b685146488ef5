"""Targets that follow a script, a clock that stands still, and a router over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from causerie.errors import Overloaded, ServiceError, UpstreamFailed
from causerie.protocol.events import (
    ArrivalSink,
    Batch,
    Event,
    Finished,
    Partial,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Trail,
    Usage,
)
from causerie.protocol.request import ChatRequest, Message
from causerie.protocol.targets import Candidate
from causerie.routing.router import Execution, Router

ASK = ChatRequest(model="m", messages=(Message("user", "Hi"),))
REPLY: tuple[Event, ...] = (
    ReasoningDelta("Let me "),
    ReasoningDelta("think."),
    TextDelta("The "),
    TextDelta("answer."),
    ToolCallStarted(0, "call_1", "look"),
    ToolCallDelta(0, '{"at":'),
    ToolCallDelta(0, " 1}"),
    Finished("tool_calls"),
)
PROMPT = 10
BROKEN = UpstreamFailed("It broke.")
FULL = Overloaded("Full.", code="no_endpoint", retry_after=7, metadata={"upstream_status": 429})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def middle() -> float:
    return 0.5


@dataclass
class Answer:
    events: AsyncIterator[Batch]
    counts: list[int]
    fingerprint: str = "scripted"
    changes: Sequence[str] = ()
    cache_report: None = None
    on_arrival: Callable[[ArrivalSink], None] | None = None
    verbatim: bool = False

    def usage(self) -> Usage:
        return Usage(PROMPT, self.counts[0])

    def trail(self) -> Trail | None:
        return None


@dataclass
class Scripted:
    """Says ``script``, an event a batch; what is an exception is raised, at entering where first.

    With a partial it leaves out as many events as that one counts. What goes on is handed on as it
    arrives where ``arriving``.
    """

    script: Sequence[Event | ServiceError]
    able: bool = True
    arriving: bool = False
    open: int = 0
    asked: list[Partial | None] = field(default_factory=list)
    sinks: list[ArrivalSink] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    retries: int = 0

    def generate(
        self, request: ChatRequest, partial: Partial | None = None
    ) -> AbstractAsyncContextManager[Answer]:
        return self._answer(partial)

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        return self.able

    async def count_tokens(self, request: ChatRequest) -> int | None:
        return None

    @asynccontextmanager
    async def _answer(self, partial: Partial | None) -> AsyncIterator[Answer]:
        self.asked.append(partial)
        self.begun.set()
        self.open += 1
        try:
            if self.script and isinstance(self.script[0], ServiceError):
                raise self.script[0]
            counts = [0]
            start = partial.completion if partial is not None else 0
            self.sinks.clear()
            on_arrival = self.sinks.append if self.arriving else None
            yield Answer(self._events(start, counts), counts, on_arrival=on_arrival)
        finally:
            self.open -= 1

    async def _events(self, start: int, counts: list[int]) -> AsyncIterator[Batch]:
        for number, step in enumerate(self.script):
            if number < start and not isinstance(step, ServiceError):
                continue
            await asyncio.sleep(0)
            if isinstance(step, ServiceError):
                raise step
            if not isinstance(step, Finished):
                counts[0] += 1
                if self.sinks:
                    if not self.sinks[-1]([step]):
                        self.sinks.clear()
                    continue
            yield [step]
        yield [Usage(PROMPT, counts[0])]


def router(*targets: Scripted, clock: Callable[[], float] | None = None, **more: object) -> Router:
    named = {f"t{number}": target for number, target in enumerate(targets)}
    return Router(named, clock=clock or Clock(), chance=middle, **more)


def in_turn(count: int) -> list[Candidate]:
    return [Candidate(f"t{number}", priority=number) for number in range(count)]


@asynccontextmanager
async def begun(execution: Execution) -> AsyncIterator[Execution]:
    """Begin it, and leave it at the end of the block."""
    try:
        await execution.begin()
        yield execution
    finally:
        await left(execution)


async def left(execution: Execution) -> None:
    execution.end()
    if execution.attempt is not None:
        await execution.attempt.leave()


async def streamed(execution: Execution) -> list[Event]:
    said: list[Event] = []
    await execution.stream(said.extend)
    return said


async def told(way: Router, count: int, request: ChatRequest = ASK) -> list[Event]:
    async with begun(way.generate(in_turn(count), request)) as execution:
        return await streamed(execution)
