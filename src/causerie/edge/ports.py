"""What the edge asks of the rest of the service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from causerie.engines.base import EngineStatus


class TargetStatusView(Protocol):
    """How a target of routing stands; ``wait_seconds`` until it is asked again."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def wait_seconds(self) -> float: ...
    @property
    def reason(self) -> str: ...


class ServingStatus(Protocol):
    """Who answers, as health shows them: our engines, and all targets of routing.

    ``shared`` says whether the server answers in which replicas count limits and
    budgets; ``None``: each counts for itself.
    """

    def status(self) -> Sequence[EngineStatus]: ...
    def targets(self) -> Sequence[TargetStatusView]: ...
    def shared(self) -> bool | None: ...
