"""Interface of channels, whatever carries their messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from causerie.alerts.message import AlertMessage


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one attempt, in words for operators. ``final``: another attempt is of no use."""

    delivered: bool
    words: str
    final: bool = False


class NotificationChannel(Protocol):
    """Carries messages to one receiver."""

    async def send(self, message: AlertMessage, now: datetime) -> Outcome:
        """Try once; never raises for what the receiver does."""
