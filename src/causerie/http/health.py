"""Health of the service and its engines, and ``GET /metrics``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from causerie.access.keys import KeyDigest, StaticKeys
from causerie.engines.base import EngineState, EngineStatus
from causerie.errors import ErrorDetails, Overloaded, StoreUnavailable
from causerie.http.exchange import Exchange
from causerie.http.tasks import Drain
from causerie.observe.metrics import MetricsCounters
from causerie.routing.target_state import TargetStatus


class ServingStatus(Protocol):
    """Source of the state of engines, routing targets, shared limits and usage recording."""

    def status(self) -> Sequence[EngineStatus]: ...
    def targets(self) -> Sequence[TargetStatus]: ...
    def shared(self) -> bool | None: ...  # whether the store of limits answers; `None` without one
    def obstacle(self) -> str: ...  # why usage cannot be recorded now, or empty


_Told = TypeVar("_Told", bound=msgspec.Struct)
_NOTHING_YET = "There is no model and no provider yet; operators add them on the console."
ServiceState = Literal["live", "ready", "loading", "stopping", "failed", "unrecorded"]


class MemberHealth(msgspec.Struct, frozen=True, kw_only=True):
    """State of one server of a pool."""

    address: str
    state: str
    slots: int
    busy: int
    restarts: int
    prefix_source: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class EngineHealth(msgspec.Struct, frozen=True, kw_only=True):
    """State of one of our engines."""

    model: str
    state: str
    slots: int
    busy: int
    restarts: int
    progress: float | UnsetType = UNSET
    idle_seconds: float | UnsetType = UNSET
    memory_bytes: int | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    members: Sequence[MemberHealth] | UnsetType = UNSET


class TargetHealthEntry(msgspec.Struct, frozen=True, kw_only=True):
    """State of one target of routing."""

    name: str
    state: str
    in_flight: int
    failures: int | UnsetType = UNSET
    wait_seconds: float | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class SharedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits as ``/health`` shows them: shared by replicas or not, and if their store answers."""

    shared: bool
    answers: bool | UnsetType = UNSET


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``/health``; ``/health/live`` has only the status, ``/health/ready`` also ``ready``.

    The status ``unrecorded`` means that requests are refused because their usage could not be
    recorded. ``missing`` is what must be configured before a request can be served.
    """

    status: ServiceState
    ready: bool | UnsetType = UNSET
    live: bool | UnsetType = UNSET
    engines: Sequence[EngineHealth] | UnsetType = UNSET
    targets: Sequence[TargetHealthEntry] | UnsetType = UNSET
    limits: SharedLimits | UnsetType = UNSET
    missing: str | UnsetType = UNSET
    error: ErrorDetails | UnsetType = UNSET


class HealthHandlers(Struct, frozen=True):
    """The handlers of ``/health``."""

    engines: ServingStatus
    drain: Drain

    async def live(self, exchange: Exchange) -> None:
        exchange.json(Health(status="live"))

    async def ready(self, exchange: Exchange) -> None:
        """Answer ``GET /health/ready``: 200 if a request would be served, else 503."""
        state, obstacle = self._get_state_and_recording_obstacle()
        _send_health(exchange, Health(status=state, ready=state == "ready"), obstacle)

    async def overview(self, exchange: Exchange) -> None:
        """Answer ``GET /health``: readiness, engines, targets of routing, and shared limits."""
        (state, obstacle), answers = self._get_state_and_recording_obstacle(), self.engines.shared()
        engines, targets = self.engines.status(), self.engines.targets()
        health = Health(
            status=state,
            ready=state == "ready",
            live=True,
            engines=[_build_engine_health(status) for status in engines],
            targets=[
                _build_from_status(
                    TargetHealthEntry,
                    status,
                    failures=status.failures or None,
                    wait_seconds=round(waits, 1) if (waits := status.wait_seconds) > 0 else None,
                )
                for status in targets
            ],
            limits=SharedLimits(
                shared=answers is not None, answers=UNSET if answers is None else answers
            ),
            missing=UNSET if engines or targets else _NOTHING_YET,
        )
        _send_health(exchange, health, obstacle)

    def _get_state_and_recording_obstacle(self) -> tuple[ServiceState, str]:
        state = self._get_state_of_drain_and_engines()
        obstacle = self.engines.obstacle() if state == "ready" else ""
        return "unrecorded" if obstacle else state, obstacle

    def _get_state_of_drain_and_engines(self) -> ServiceState:
        if self.drain.announced or self.drain.stopping:
            return "stopping"
        statuses = self.engines.status()
        # An absent engine is loaded by the first request.
        ready = (EngineState.ABSENT, EngineState.READY)
        if not statuses or any(
            status.state in ready and not _is_stalled(status) for status in statuses
        ):
            return "ready"  # without engines of its own it has providers of others
        if any(status.state is EngineState.LOADING for status in statuses):
            return "loading"
        return "failed"


def _is_stalled(status: EngineStatus) -> bool:
    return status.busy > 0 and (status.idle_seconds or 0.0) > 120  # without progress


def _build_engine_health(status: EngineStatus) -> EngineHealth:
    state = "stalled" if _is_stalled(status) else status.state.value
    members = [
        _build_from_status(MemberHealth, one, address=one.model, state=one.state.value)
        for one in status.members
    ]
    return _build_from_status(EngineHealth, status, state=state, members=members or None)


def _build_from_status(
    entry_type: type[_Told], status: EngineStatus | TargetStatus, **more: object
) -> _Told:
    # `None` and empty texts are left out.
    fields = entry_type.__struct_fields__
    values = {name: more[name] if name in more else getattr(status, name) for name in fields}
    return entry_type(**{name: value for name, value in values.items() if value not in (None, "")})


def _send_health(exchange: Exchange, health: Health, recording_obstacle: str) -> None:
    if health.ready:
        exchange.json(health)
        return
    failure: Overloaded
    if health.status == "unrecorded":
        failure = StoreUnavailable(f"The service cannot record usage now: {recording_obstacle}.")
    else:
        code = "engine_loading" if health.status == "loading" else "no_endpoint"
        failure = Overloaded(f"The service cannot serve now; it is {health.status}.", code=code)
    headers = {name.lower(): value for name, value in failure.headers.items()}
    body = msgspec.json.encode(structs.replace(health, error=failure.error()))
    exchange.respond(failure.status, body, headers=headers)


class MetricsPage(Struct, frozen=True):
    """The handler of ``GET /metrics``."""

    metrics: MetricsCounters
    keys: tuple[KeyDigest, ...] | None = None  # `None`: it is open to all
    of_all: Callable[[], Awaitable[bytes]] | None = None  # the metrics of several workers
    name: str = "metrics"

    async def show(self, exchange: Exchange) -> None:
        StaticKeys().authenticate(self, exchange.head.credential)
        text = self.metrics.exposition() if self.of_all is None else await self.of_all()
        exchange.respond(200, text, content_type=self.metrics.content_type)
