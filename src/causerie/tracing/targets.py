"""The span of a target that is asked: a child of the request's, until the target is left."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from opentelemetry import context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from causerie.errors import ServiceError
from causerie.protocol.cache_report import CacheReporter
from causerie.protocol.events import ArrivalSink, Batch, Finished, Usage
from causerie.protocol.partial import Partial, Trail
from causerie.protocol.request import ChatRequest
from causerie.routing.target import SILENCE, Target, TargetReply

Facts = Mapping[str, str | int]


class TracedTarget:
    """Asks ``target``; each time is a span. ``facts`` are its attributes: who it is, and where."""

    def __init__(self, target: Target, tracer: Tracer, model: str, facts: Facts) -> None:
        self.target = target
        self._tracer = tracer
        self._name = f"chat {model}"
        self._facts = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model, **facts}

    def generate(
        self, request: ChatRequest, partial: Partial | None = None
    ) -> AbstractAsyncContextManager[TargetReply]:
        """As the target does, with a span."""
        reply = self.target.generate(request, partial)
        return _Attempt(reply, lambda: self._span(request, partial))

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """As the target says."""
        return self.target.continues(request, partial)

    def _span(self, request: ChatRequest, partial: Partial | None) -> Span:
        facts = {
            **self._facts,
            "gen_ai.request.stream": request.stream,
            "causerie.continues": partial is not None,
        }
        return self._tracer.start_span(self._name, kind=SpanKind.CLIENT, attributes=facts)


class _Attempt:
    """An answer under way, and its span, which ``begin`` begins."""

    _span: Span

    def __init__(
        self, reply: AbstractAsyncContextManager[TargetReply], begin: Callable[[], Span]
    ) -> None:
        self._reply = reply
        self._begin = begin
        self._began = 0.0
        self._answer: TargetReply = SILENCE
        self._events: AsyncIterator[Batch] = SILENCE
        self._finishes: list[str] = []
        self._silent = True

    @property
    def events(self) -> AsyncIterator[Batch]:
        return self

    @property
    def fingerprint(self) -> str:
        return self._answer.fingerprint

    @property
    def usage(self) -> Callable[[], Usage]:
        return self._answer.usage

    @property
    def trail(self) -> Callable[[], Trail | None]:
        return self._answer.trail

    @property
    def changes(self) -> Sequence[str]:
        return self._answer.changes

    @property
    def cache_report(self) -> CacheReporter | None:
        return self._answer.cache_report

    @property
    def on_arrival(self) -> Callable[[ArrivalSink], None] | None:
        return self._answer.on_arrival

    async def __aenter__(self) -> Self:
        self._began = time.monotonic()
        self._span = self._begin()
        try:
            self._answer = await self._reply.__aenter__()
        except BaseException as failure:
            _note(self._span, failure)
            self._span.end()
            raise
        self._events = self._answer.events
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        span, used = self._span, self._answer.usage()
        try:
            return await self._reply.__aexit__(kind, error, trace)
        finally:
            span.set_attributes(
                {
                    "gen_ai.usage.input_tokens": used.prompt,
                    "gen_ai.usage.output_tokens": used.completion,
                    "gen_ai.response.finish_reasons": self._finishes,
                }
            )
            span.end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        try:
            batch = await (self._asked() if self._silent else anext(self._events))
        except StopAsyncIteration:
            raise
        except BaseException as failure:
            _note(self._span, failure)
            raise
        if self._silent and batch:
            self._silent = False
            seconds = time.monotonic() - self._began
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
        self._finishes += [event.reason for event in batch if isinstance(event, Finished)]
        return batch

    async def _asked(self) -> Batch:
        """The next batch; the span is current meanwhile, so that the next server hears of it."""
        reset = context.attach(set_span_in_context(self._span))
        try:
            return await anext(self._events)
        finally:
            context.detach(reset)


def _note(span: Span, failure: BaseException) -> None:
    """Return the reason it failed; one that is no longer waited for has not."""
    if isinstance(failure, ServiceError):
        span.set_attribute("error.type", failure.code or str(failure.status))
        span.set_status(Status(StatusCode.ERROR))
    elif isinstance(failure, Exception):
        span.set_attribute("error.type", type(failure).__name__)
        span.set_status(Status(StatusCode.ERROR))
    else:
        span.set_attribute("causerie.left", value=True)
