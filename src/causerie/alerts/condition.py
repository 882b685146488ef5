"""Something that holds at the moment and that somebody should know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from causerie.alerts.message import AlertKind


@dataclass(frozen=True, slots=True)
class Condition:
    """``key`` is the same for as long as it is the same event, in every process."""

    key: str
    kind: AlertKind
    summary: str
    details: Mapping[str, str] = field(default_factory=dict)
    level: int = 1
    """A higher one is notified anew."""
    recovers: bool = True
    """Its end is notified; otherwise it has none that anybody waits for."""
    owner: str = field(default="", repr=False)
    """E-mail address of a person that it concerns, apart from the channels."""
