"""Options of fetching weights: addresses, token, time limits."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HubOptions:
    """Settings of a fetch."""

    endpoint: str | None = None
    """The hub's; ``None``: the public hub."""
    token: str | None = field(default=None, repr=False)
    """The hub's; ``None``: the token that its own tools stored."""
    index_urls: tuple[str, ...] = ()
    """Package indexes; empty: those that pip is configured with."""
    offline: bool = False
    """Forbids the network."""
    attempts: int = 5
    """Number of times without progress that a broken transfer is resumed."""
    retry_seconds: float = 1.0
    """Wait before an attempt; it doubles each time."""
    read_seconds: float = 60.0
    """Longest time without a byte."""
