"""Weights: references, the cache of downloads, and what a model file says about itself.

Other names than those defined here are imported on first use, so that a process that only reads
a file's header or vocabulary does not load HTTP clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


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


class Progress(Protocol):
    """Told of one file after another, in this order; called on the event loop's thread."""

    def started(self, total: int | None, label: str) -> None:
        """Report that a file begins; ``total`` is in bytes, if known.

        ``label`` is what happens to it: "Fetching x.gguf", "Unpacking x.gguf".
        """
        ...

    def advanced(self, count: int) -> None:
        """Report ``count`` more bytes; negative if a server forces a restart."""
        ...

    def finished(self) -> None:
        """Report that the file is complete and its checksum correct."""
        ...


class Silent:
    """Shows nothing."""

    def started(self, total: int | None, label: str) -> None:
        """Show nothing."""

    def advanced(self, count: int) -> None:
        """Show nothing."""

    def finished(self) -> None:
        """Show nothing."""
