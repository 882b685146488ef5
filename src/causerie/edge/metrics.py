"""``GET /metrics``, for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass

from causerie.access.keys import KeyDigest, StaticKeys
from causerie.edge.exchange import Exchange
from causerie.metering.counters import MetricsCounters

_KEYS = StaticKeys()


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """The handler. ``keys`` open it as those of a door do; ``None``: it is open."""

    metrics: MetricsCounters
    keys: tuple[KeyDigest, ...] | None = None
    name: str = "metrics"

    async def show(self, exchange: Exchange) -> None:
        """All metrics as text; raises ``Unauthenticated``."""
        _KEYS.authenticate(self, exchange.credential)
        exchange.respond(200, self.metrics.exposition(), content_type=self.metrics.content_type)
