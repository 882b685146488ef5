"""Interfaces of the service that the edge calls."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from causerie.access.credential import Credential
from causerie.access.keys import Caller
from causerie.chunk_encoder import CompletionIdentity, ResponseSink
from causerie.edge.doors import MountedDoor
from causerie.engines.base import EngineStatus
from causerie.protocol.labels import Labels
from causerie.protocol.request import ChatRequest


class RequestPipeline(Protocol):
    """The request, behind the wire."""

    def known(self, door: MountedDoor, credential: Credential | None) -> Caller | None:
        """As :meth:`authenticate`, or ``None`` where that would have to wait."""
        ...

    def authenticate(self, door: MountedDoor, credential: Credential | None) -> Awaitable[Caller]:
        """Authenticate the caller; raise ``Unauthenticated``. Called before the body is read."""
        ...

    async def answer(
        self,
        door: MountedDoor,
        caller: Caller,
        request: ChatRequest,
        identity: CompletionIdentity,
        deliver: ResponseSink,
        labels: Labels,
    ) -> None:
        """Hand an answer to ``deliver``, once there is one.

        A ``ServiceError`` raised before that can still be reported by a status.
        """
        ...

    def models(self, door: MountedDoor, caller: Caller | None) -> Sequence[Mapping[str, Any]]:
        """The catalog entries that the caller may see; ``caller`` is ``None`` in open catalogs."""
        ...

    def shown(self, door: MountedDoor, caller: Caller | None, name: str) -> Mapping[str, Any]:
        """One of them, by its id or an alias; raises :class:`ServiceError`."""
        ...


class TargetStatusView(Protocol):
    """State of a target of routing; ``wait_seconds`` until it is asked again."""

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
    """State of our engines and of all targets of routing, as health shows it.

    ``shared`` is true if the server answers in which replicas count limits and budgets, and
    ``None`` if each counts for itself.
    """

    def status(self) -> Sequence[EngineStatus]: ...
    def targets(self) -> Sequence[TargetStatusView]: ...
    def shared(self) -> bool | None: ...


class Metrics(Protocol):
    """The numbers behind ``/metrics``."""

    content_type: str

    def exposition(self) -> bytes:
        """All metrics as text."""
        ...

    def refused(self, door: str, code: str, status: int) -> None:
        """A request that ended before it became one of the pipeline's."""
        ...
