"""Options of fetching weights: addresses, token, time limits."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HubOptions:
    """Settings of a fetch.

    ``endpoint`` and ``token`` are the hub's (``None``: the public hub, and the
    token that its own tools stored); ``index_urls`` are package indexes
    (empty: those that pip is configured with); ``offline`` forbids the network.
    A broken transfer is taken up again ``attempts`` times without progress,
    ``retry_seconds`` apart and doubling; ``read_seconds`` without a byte break it.
    """

    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)
    index_urls: tuple[str, ...] = ()
    offline: bool = False
    attempts: int = 5
    retry_seconds: float = 1.0
    read_seconds: float = 60.0
