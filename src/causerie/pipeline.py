"""THE REQUEST, top to bottom. Read this first.

    which door · who (401) · which model (404) · within its limits (429)
    · which target, is there room (503)
    · generate (400, 502, 503) · meter

The stages do not know each other; they meet here and nowhere else. Entering
:meth:`Pipeline.open` raises while a status can still be sent, for streams too,
because the first content-bearing event is awaited inside. Leaving it, however
that comes about (finished, client gone, cancelled, failed), frees the engine,
gives the place back and writes the usage.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from causerie.access.estimate import estimate
from causerie.access.keys import Caller, Locked, StaticKeys
from causerie.access.limits import Limits
from causerie.access.quota import Scope
from causerie.catalog.catalog import Catalog
from causerie.fold import Frame, Identity
from causerie.metering.meter import Meter, Record
from causerie.protocol.events import Batch
from causerie.protocol.request import ChatRequest
from causerie.routing.journey import Journey
from causerie.routing.router import Router


class Door(Locked, Protocol):
    """What the pipeline asks of a door: whom it lets in, to which models, with which fields."""

    @property
    def models(self) -> frozenset[str] | None: ...
    @property
    def reasoning_object(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that has begun: headers for the response, its frame, and what it says.

    A failure after the beginning is raised by ``events``.
    """

    headers: Mapping[str, str]
    frame: Frame
    events: AsyncIterator[Batch]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages in their order; ``scopes`` are what is limited of a model, by its id."""

    keys: StaticKeys
    catalog: Catalog
    limits: Limits
    scopes: Mapping[str, Sequence[Scope]]
    router: Router
    meter: Meter

    async def authenticate(self, door: Door, credential: str | None) -> Caller:
        """Who is calling; raises ``Unauthenticated``."""
        return await self.keys.authenticate(door, credential)

    @asynccontextmanager
    async def open(
        self, door: Door, caller: Caller, request: ChatRequest, identity: Identity
    ) -> AsyncIterator[Reply]:
        """An answer, entered with its first event at hand; raises ``ServiceError`` before."""
        with self.meter.record(identity.request_id, door.name, caller.key) as record:
            model = self.catalog.resolve(door.models, request.model)
            record.model, record.stream = model.id, request.stream
            candidates = model.candidates(request)
            async with self.limits.admit(
                self.scopes.get(model.id, ()), lambda: estimate(request)
            ) as lease:
                journey = self.router.generate(candidates, request, model.hedge_seconds)
                record.usage = journey.usage
                try:
                    async with journey:
                        record.first_token()
                        _note(record, journey)
                        frame = Frame(
                            identity, request.model, journey.fingerprint, request.thinking.visible
                        )
                        headers = _headers(record, journey) | lease.headers
                        yield Reply(headers, frame, _Noted(journey, record))
                finally:
                    _note(record, journey)
                    lease.settle(journey.usage())

    def models(self, door: Door, caller: Caller | None) -> Sequence[Mapping[str, Any]]:
        """The catalog behind a door, as ``GET /models`` shows it."""
        del caller  # keys that see fewer models than their door come with accounts
        return [
            model.entry(reasoning_object=door.reasoning_object)
            for model in self.catalog.visible(door.models)
        ]


def _note(record: Record, journey: Journey) -> None:
    record.served_by, record.attempts = journey.served_by, journey.attempts
    record.continued = journey.continued
    record.queue_seconds = journey.queued_seconds
    record.upstream_seconds = journey.upstream_seconds
    if record.attempts > 1:
        record.tried = [f"{one.target}: {one.failure or 'answered'}" for one in journey.tried]


def _headers(record: Record, journey: Journey) -> dict[str, str]:
    headers = {
        "x-served-by": record.served_by,
        "x-attempts": str(record.attempts),
        "server-timing": (
            f"queue;dur={record.queue_seconds * 1000:.1f}, "
            f"upstream;dur={record.upstream_seconds * 1000:.1f}, "
            f"overhead;dur={record.overhead_seconds * 1000:.1f}"
        ),
    }
    if journey.changes:
        headers["x-request-changes"] = ", ".join(journey.changes)
    return headers


class _Noted:
    """A reply as it comes, noted down."""

    __slots__ = ("_journey", "_record")

    def __init__(self, journey: Journey, record: Record) -> None:
        self._journey = journey
        self._record = record

    def __aiter__(self) -> _Noted:
        return self

    async def __anext__(self) -> Batch:
        batch = await self._journey.__anext__()
        self._record.see(batch)
        return batch
