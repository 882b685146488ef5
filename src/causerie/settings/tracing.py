"""Settings of traces: where spans of requests are sent, and how many."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from causerie.settings.values import WebAddress


class Tracing(Struct, frozen=True, kw_only=True):
    """Spans for a collector that speaks OTLP over HTTP; never contents."""

    address: Annotated[
        WebAddress | None,
        Meta(
            description="Base URL of the collector, to which `/v1/traces` is added. A key that "
            "it wants stands in `OTEL_EXPORTER_OTLP_HEADERS`. Unset: nothing is traced."
        ),
    ] = None
    share: Annotated[
        Annotated[float, Meta(ge=0, le=1)],
        Meta(description="Share of the traces that begin here which is sent."),
    ] = 1.0
    follow: Annotated[
        bool,
        Meta(
            description="Whether a trace that a client has started (`traceparent`) is gone on "
            "with, "
            "and sent if the client says so; `false` where strangers ask."
        ),
    ] = True
