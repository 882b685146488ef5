"""What the console asks of the service around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from causerie.edge.ports import TargetStatus
from causerie.engines.base import EngineStatus


@dataclass(frozen=True, slots=True)
class DoorView:
    """A door that keys of projects open. ``prefix`` is the path of its base address."""

    name: str
    prefix: str


class House(Protocol):
    """The service that the pages are of."""

    def doors(self) -> Sequence[DoorView]:
        """The doors that keys of projects open, the usual one first."""
        ...

    def models(self) -> Sequence[Mapping[str, Any]]:
        """The catalog, as ``GET /models`` gives its entries."""
        ...

    def status(self) -> Sequence[EngineStatus]:
        """Our engines."""
        ...

    def targets(self) -> Sequence[TargetStatus]:
        """All targets of routing."""
        ...
