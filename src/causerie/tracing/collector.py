"""Export of spans to a collector over OTLP/HTTP, in a thread of its own.

No request waits for a collector: spans are queued, sent together, and dropped when the queue is
full.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Tracer

from causerie import __version__

_PATH = "/v1/traces"
_SEND_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Collector:
    """``address`` is the base of its paths; ``share`` of the traces that begin here is sent.

    Its headers, like a key, are those of ``OTEL_EXPORTER_OTLP_HEADERS``; what else the
    standard's variables say of resource and queue holds, too.
    """

    address: str
    share: float = 1.0


@asynccontextmanager
async def tracer(collector: Collector) -> AsyncIterator[Tracer]:
    """Yield the tracer; at the end send the queued spans, for a few seconds at most."""
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(collector.share)),
        resource=_resource(),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(
        endpoint=collector.address.rstrip("/") + _PATH, timeout=_SEND_SECONDS
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer("causerie", __version__)
    finally:
        await asyncio.to_thread(provider.shutdown)


def _resource() -> Resource:
    """Return the resource of this service; an operator's own name for the service wins."""
    ours = {"service.name": "causerie", "service.version": __version__}
    said = OTELResourceDetector().detect().attributes
    return Resource.create({name: value for name, value in ours.items() if name not in said})
