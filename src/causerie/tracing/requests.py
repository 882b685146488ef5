"""The span of a request: open from its record's beginning to its end.

It tells what the request's log line tells, in the names of the semantic
conventions for generative AI where there is one: numbers and names, never contents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Token as Reset
from dataclasses import dataclass

from opentelemetry import context
from opentelemetry.context import Context
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from causerie.metering.meter import Charged, Meter, Record, RecordSink, UsageSettlement
from causerie.protocol.labels import UNLABELLED, Labels

_NOWHERE = Context()
_propagator = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class _Open:
    """A span under way, and what makes it no longer the current one."""

    span: Span
    reset: Reset[Context]


class TracedMeter(Meter):
    """A meter whose records are spans, too.

    Until its end the span is the current one of the task that answers. ``follows`` says
    whether a trace that the client has started is gone on with.
    """

    def __init__(
        self,
        sinks: Sequence[RecordSink],
        bookkeeping: UsageSettlement | None,
        tracer: Tracer,
        *,
        follows: bool = True,
    ) -> None:
        super().__init__([*sinks, _Ending()], bookkeeping)
        self._tracer = tracer
        self._follows = follows

    def begin(
        self, request_id: str, door: str, caller: Charged, labels: Labels = UNLABELLED
    ) -> Record:
        """A record whose span is open."""
        record = super().begin(request_id, door, caller, labels)
        parent = _parent(labels) if self._follows else _NOWHERE
        span = self._tracer.start_span("chat", parent, SpanKind.SERVER)
        record.trace_id = format_trace_id(span.get_span_context().trace_id)
        record.span = _Open(span, context.attach(set_span_in_context(span, _NOWHERE)))
        return record


class _Ending:
    """The sink that ends spans: what is told of a request is certain then."""

    def write(self, record: Record) -> None:
        if isinstance(record.span, _Open):
            context.detach(record.span.reset)
            _end(record.span.span, record)
            record.span = None


def current() -> Mapping[str, str]:
    """The headers that tell the next server of the trace of the current task, if any."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier


def _parent(labels: Labels) -> Context:
    if not labels.traceparent:
        return _NOWHERE
    carrier = {"traceparent": labels.traceparent, "tracestate": labels.tracestate}
    return _propagator.extract(carrier, _NOWHERE)


def _end(span: Span, record: Record) -> None:
    if span.is_recording():
        span.update_name(f"chat {record.model}" if record.model else "chat")
        span.set_attributes(dict(_told(record)))
        if record.status >= 500:  # what a client does wrong is no error of a server
            span.set_status(Status(StatusCode.ERROR, record.reason))
    span.end()


def _told(record: Record) -> Mapping[str, str | int | float | bool | Sequence[str]]:
    used = record.used
    told: dict[str, str | int | float | bool | Sequence[str] | None] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "causerie",
        "gen_ai.request.model": record.model or None,
        "gen_ai.request.stream": record.stream,
        "gen_ai.response.id": record.request_id,
        "gen_ai.response.finish_reasons": [record.finish] if record.finish else None,
        "gen_ai.response.time_to_first_chunk": record.first_token_seconds,
        "gen_ai.usage.input_tokens": used.prompt,
        "gen_ai.usage.cache_read.input_tokens": used.cached,
        "causerie.cache_miss": record.cache_miss or None,
        "gen_ai.usage.output_tokens": used.completion,
        "gen_ai.usage.reasoning.output_tokens": used.reasoning,
        "http.response.status_code": record.status,
        "error.type": record.code,
        "causerie.door": record.door,
        "causerie.key": record.key or None,
        "causerie.project": record.project or None,
        "causerie.served_by": record.served_by or None,
        "causerie.attempts": record.attempts,
        "causerie.continued": record.continued,
        "causerie.queue_seconds": record.queue_seconds,
        "causerie.overhead_seconds": record.overhead_seconds,
    }
    return {name: value for name, value in told.items() if value is not None}
