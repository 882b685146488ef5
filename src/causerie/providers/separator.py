"""Reasoning that a server left inside the content, told apart: the seam to whoever can do that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from causerie.protocol.events import ContentEvent


class Separator(Protocol):
    """Reads the content of one choice, however it is cut; never loses text."""

    def feed(self, text: str) -> Sequence[ContentEvent]:
        """Reasoning and text, as far as it is known which is which."""

    def finish(self) -> Sequence[ContentEvent]:
        """Return the events held back, at the end of the content."""


class Separators(Protocol):
    """Makes a separator for each choice that needs one."""

    def may_begin(self, text: str) -> bool:
        """Return true if content that begins like this may begin with reasoning."""

    def separator(self) -> Separator:
        """One for a choice."""
