"""What a channel does with a message, whatever carries it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from causerie.alerts.message import Message


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one attempt, in words for operators. ``final``: another attempt is of no use."""

    delivered: bool
    words: str
    final: bool = False


class Channel(Protocol):
    """Carries messages to one receiver."""

    async def send(self, message: Message, now: datetime) -> Outcome:
        """Try once; never raises for what the receiver does."""
        ...
