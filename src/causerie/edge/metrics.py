"""``GET /metrics``, for Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from causerie.access.keys import KeyDigest, StaticKeys
from causerie.edge.exchange import Exchange
from causerie.metering.counters import MetricsCounters

_KEYS = StaticKeys()


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """The handler. ``keys`` open it as those of a door do; ``None``: it is open.

    ``of_all`` returns the metrics of all workers, if this is one of several.
    """

    metrics: MetricsCounters
    keys: tuple[KeyDigest, ...] | None = None
    of_all: Callable[[], Awaitable[bytes]] | None = None
    name: str = "metrics"

    async def show(self, exchange: Exchange) -> None:
        """All metrics as text; raises ``Unauthenticated``."""
        _KEYS.authenticate(self, exchange.credential)
        text = self.metrics.exposition() if self.of_all is None else await self.of_all()
        exchange.respond(200, text, content_type=self.metrics.content_type)
