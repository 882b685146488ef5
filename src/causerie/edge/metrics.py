"""``GET /metrics``, for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass

from causerie.edge.exchange import Exchange
from causerie.edge.ports import Metrics


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """The handler."""

    metrics: Metrics

    async def show(self, exchange: Exchange) -> None:
        """All metrics as text."""
        exchange.respond(200, self.metrics.exposition(), content_type=self.metrics.content_type)
