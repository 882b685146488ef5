"""Interfaces of the service that the edge calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from causerie.engines.base import EngineStatus
from causerie.routing.target_state import TargetStatus


class ServingStatus(Protocol):
    """State of our engines and of all targets of routing, as health shows it.

    ``shared`` is true if the server answers in which replicas count limits and budgets, and
    ``None`` if each counts for itself. ``obstacle`` is why use cannot be recorded now, or empty.
    """

    def status(self) -> Sequence[EngineStatus]: ...
    def targets(self) -> Sequence[TargetStatus]: ...
    def shared(self) -> bool | None: ...
    def obstacle(self) -> str: ...
