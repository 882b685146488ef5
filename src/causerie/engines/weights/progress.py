"""Interface to the display of a download's progress."""

from __future__ import annotations

from typing import Protocol


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
