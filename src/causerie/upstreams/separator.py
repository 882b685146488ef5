"""Reasoning that a server left inside the content, told apart: the seam to whoever can do that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from causerie.protocol.events import ContentEvent


class Separator(Protocol):
    """Reads the content of one choice, however it is cut; never loses text."""

    def feed(self, text: str) -> Sequence[ContentEvent]:
        """Reasoning and text, as far as it is known which is which."""
        ...

    def finish(self) -> Sequence[ContentEvent]:
        """What was held back, at the end of the content."""
        ...


Separators = Callable[[], Separator]
"""Makes one for each choice."""
