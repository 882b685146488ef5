"""Interfaces of the service that the console calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from causerie.accounts.people import User
from causerie.catalog.door_catalog import DoorCatalog
from causerie.edge.exchange import Exchange
from causerie.engines.base import EngineStatus
from causerie.operations.ports import Operations
from causerie.protocol.target_stats import TimeBucket
from causerie.routing.target_state import TargetStatus


@dataclass(frozen=True, slots=True)
class DoorView:
    """A door that keys of projects open. ``prefix`` is the path of its base URL."""

    name: str
    prefix: str


class ServiceView(Protocol):
    """The service that the pages are of; without ``operations`` there are none about providers."""

    @property
    def operations(self) -> Operations | None: ...

    def doors(self) -> Sequence[DoorView]:
        """The doors that keys of projects open, the usual one first."""

    def models(self, door: str | None = None) -> Sequence[Mapping[str, Any]]:
        """Return entries as ``GET /models`` does, with names for people.

        They are those of one door, by its name, or of all that keys of projects open.
        """

    def market(self) -> DoorCatalog | None:
        """The catalog that everybody may see; ``None`` where there is no router's door."""

    def answering(self, model: str) -> Sequence[str]:
        """The targets of a model, by the names that ``status`` and ``targets`` have for them."""

    async def complete(self, exchange: Exchange, user: User, project_id: str) -> None:
        """Read the request's body as one of ``POST /chat/completions`` and answer it.

        It counts for the project, whose limits and budgets hold. A client that
        leaves ends the generation. Raises ``ServiceError`` before the answer begins.
        """

    async def talk(self, exchange: Exchange, body: bytes, model: str) -> None:
        """Answer a request of a visitor without an account for this model, at the catalog's door.

        The body is that of ``POST /chat/completions``. Raises as :meth:`complete`.
        """

    def status(self) -> Sequence[EngineStatus]:
        """Our engines."""

    def targets(self) -> Sequence[TargetStatus]:
        """All targets of routing."""

    def history(self, target: str) -> Sequence[TimeBucket]:
        """The last day of a target, in quarters of an hour."""

    def requests(self, target: str) -> int:
        """Return how many requests a target had in the last day."""

    def worker(self) -> tuple[int, int] | None:
        """Return the number of this worker process and of all, if there are several."""
