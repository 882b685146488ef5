"""What the edge asks of the rest of the service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from causerie.engines.base import EngineStatus
from causerie.routing.target_state import TargetStatus


class ServingStatus(Protocol):
    """Who answers, as health shows them: our engines, and all targets of routing.

    ``shared`` says whether the server answers in which replicas count limits and
    budgets; ``None``: each counts for itself.
    """

    def status(self) -> Sequence[EngineStatus]: ...
    def targets(self) -> Sequence[TargetStatus]: ...
    def shared(self) -> bool | None: ...
