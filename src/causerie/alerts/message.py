"""A message about one alert, as every channel carries it. It holds no secret and no contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class AlertKind(StrEnum):
    """Subject of an alert."""

    BUDGET = "budget"
    PROVIDER = "provider"
    ERROR_RATE = "error_rate"
    KEY_EXPIRY = "key_expiry"
    JOB = "job"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """``firing`` is false for the message that an alert is over. ``id`` is the same at a retry."""

    id: str
    kind: AlertKind
    firing: bool
    summary: str
    """One line."""
    at: datetime
    details: Mapping[str, str] = field(default_factory=dict)
    """Facts for programs."""

    @property
    def title(self) -> str:
        """Return the line with its state, for subjects and lists."""
        if self.kind is AlertKind.TEST:
            return self.summary
        return self.summary if self.firing else f"Resolved: {self.summary}"
