"""Interface to the display of a download's progress."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of one file after another, in this order; called on the event loop's thread."""

    def started(self, total: int | None, label: str) -> None:
        """A file begins; ``total`` is in bytes, where it is known."""
        ...

    def advanced(self, count: int) -> None:
        """``count`` more bytes are here; negative where a server made us begin anew."""
        ...

    def finished(self) -> None:
        """The file is complete and its checksum right."""
        ...


class Silent:
    """Shows nothing."""

    def started(self, total: int | None, label: str) -> None:
        """Nothing."""

    def advanced(self, count: int) -> None:
        """Nothing."""

    def finished(self) -> None:
        """Nothing."""
