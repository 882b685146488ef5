"""Spans of requests and of the targets that were asked, exported over OTLP/HTTP."""

from __future__ import annotations

import asyncio
import time
import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Token as Reset
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Self, cast

from opentelemetry import context
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    format_trace_id,
    set_span_in_context,
    use_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from causerie import __version__
from causerie.errors import ServiceError
from causerie.metering.meter import Meter, Record, RecordSink, UsageSettlement
from causerie.protocol.events import Batch, Finished, Partial
from causerie.protocol.request import ChatRequest
from causerie.routing.target import Target, TargetReply

# Names are those of the semantic conventions for generative AI, if there is one; never contents.

_NOWHERE = Context()
_propagator = TraceContextTextMapPropagator()


class _OpenSpan(NamedTuple):
    span: Span
    reset: Reset[Context]


class TracedMeter(Meter):
    """A meter that opens a span for each record; ``follows`` continues a client's trace."""

    def __init__(
        self,
        sinks: Sequence[RecordSink],
        bookkeeping: UsageSettlement | None,
        tracer: Tracer,
        *,
        follows: bool = True,
    ) -> None:
        super().__init__(sinks, bookkeeping)
        self._tracer = tracer
        self._continues_client_traces = follows

    def begin(self, record: Record) -> None:
        labels, parent = record.labels, _NOWHERE
        if self._continues_client_traces and labels.traceparent:
            carrier = {"traceparent": labels.traceparent, "tracestate": labels.tracestate}
            parent = _propagator.extract(carrier, _NOWHERE)
        span = self._tracer.start_span("chat", parent, SpanKind.SERVER)
        record.trace_id = format_trace_id(span.get_span_context().trace_id)
        record.span = _OpenSpan(span, context.attach(set_span_in_context(span, _NOWHERE)))

    def tell(self, record: Record) -> None:
        super().tell(record)
        if not isinstance(record.span, _OpenSpan):
            return
        (span, reset), record.span = record.span, None
        context.detach(reset)
        if span.is_recording():
            told = _span_attributes(record)
            span.update_name(f"{told['gen_ai.operation.name']} {record.model}".rstrip())
            span.set_attributes(dict(told))
            if record.status >= 500:  # what a client does wrong is no error of a server
                span.set_status(Status(StatusCode.ERROR, record.reason))
        span.end()


def current() -> Mapping[str, str]:
    """Return the headers that propagate the trace of the current task."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier


_OPERATIONS = {"completions": "text_completion", "responses": "chat", "messages": "chat"}
_FIELDS = tomllib.loads(Path(__file__).with_name("tracing.toml").read_text("utf-8"))
_ALWAYS, _UNLESS_EMPTY = (
    {name: attrgetter(field) for name, field in _FIELDS[table].items()}
    for table in ("always", "unless_empty")
)


def _span_attributes(record: Record) -> Mapping[str, str | int | float | bool | Sequence[str]]:
    told = {
        "gen_ai.operation.name": _OPERATIONS.get(record.operation, record.operation),
        "gen_ai.provider.name": "causerie",
        "gen_ai.response.finish_reasons": [record.finish] if record.finish else None,
        **{name: value_of(record) for name, value_of in _ALWAYS.items()},
        **{name: value_of(record) or None for name, value_of in _UNLESS_EMPTY.items()},
    }
    return {name: value for name, value in told.items() if value is not None}


Facts = Mapping[str, str | int]


class TracedTarget:
    """A wrapper of a target that opens a span, with ``facts`` as attributes, for each reply."""

    def __init__(self, target: Target, tracer: Tracer, model: str, facts: Facts) -> None:
        self.target = target
        self._tracer = tracer
        self._span_name = f"chat {model}"
        self._attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model, **facts}

    @asynccontextmanager
    async def generate(
        self, request: ChatRequest, partial: Partial | None = None
    ) -> AsyncIterator[TargetReply]:
        facts = {
            **self._attributes,
            "gen_ai.request.stream": request.stream,
            "causerie.continues": partial is not None,
        }
        span = self._tracer.start_span(self._span_name, kind=SpanKind.CLIENT, attributes=facts)
        traced, began = None, time.monotonic()
        try:
            async with self.target.generate(request, partial) as reply:
                traced = _TracedReply(reply, span, began)
                try:
                    yield cast(TargetReply, traced)
                finally:
                    traced.tell_usage()
        except BaseException as failure:
            if traced is None:
                _record_failure(span, failure)
            raise
        finally:
            span.end()

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        return self.target.continues(request, partial)

    @property
    def retries(self) -> int:
        return self.target.retries

    async def count_tokens(self, request: ChatRequest) -> int | None:
        return await self.target.count_tokens(request)


class _TracedReply:
    def __init__(self, reply: TargetReply, span: Span, began: float) -> None:
        self._target_reply = reply
        self._span = span
        self._request_started_at = began
        self._batches = reply.events
        self._finish_reasons: list[str] = []
        self._no_batch_yet = True

    @property
    def events(self) -> AsyncIterator[Batch]:
        return self

    def __getattr__(self, name: str) -> object:
        return getattr(self._target_reply, name)

    def tell_usage(self) -> None:
        used = self._target_reply.usage()
        self._span.set_attributes(
            {
                "gen_ai.usage.input_tokens": used.prompt,
                "gen_ai.usage.output_tokens": used.completion,
                "gen_ai.response.finish_reasons": self._finish_reasons,
            }
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        try:
            batch = await (self._read_under_span() if self._no_batch_yet else anext(self._batches))
        except StopAsyncIteration:
            raise
        except BaseException as failure:
            _record_failure(self._span, failure)
            raise
        if self._no_batch_yet and batch:
            self._no_batch_yet = False
            seconds = time.monotonic() - self._request_started_at
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
        self._finish_reasons += [event.reason for event in batch if isinstance(event, Finished)]
        return batch

    async def _read_under_span(self) -> Batch:
        # The span is current meanwhile, so that the next server gets it.
        with use_span(self._span, record_exception=False, set_status_on_exception=False):
            return await anext(self._batches)


def _record_failure(span: Span, failure: BaseException) -> None:
    if not isinstance(failure, Exception):
        span.set_attribute("causerie.left", value=True)
        return
    kind = type(failure).__name__
    if isinstance(failure, ServiceError):
        kind = failure.code or str(failure.status)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


@asynccontextmanager
async def tracer(address: str, share: float) -> AsyncIterator[Tracer]:
    """Yield a tracer for a collector at a base URL, which gets this share of traces.

    At the end the queued spans are sent, for a few seconds at most. The variables of OpenTelemetry
    set the collector's headers (a key, say), resource and queue.
    """
    # An operator's own name for the service wins.
    ours = {"service.name": "causerie", "service.version": __version__}
    said = OTELResourceDetector().detect().attributes
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(share)),
        resource=Resource.create({name: ours[name] for name in ours.keys() - said.keys()}),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=address.rstrip("/") + "/v1/traces", timeout=5.0)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer("causerie", __version__)
    finally:
        await asyncio.to_thread(provider.shutdown)
