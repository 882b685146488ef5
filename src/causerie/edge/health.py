"""Health: whether the process lives, whether it can serve, and the load of each engine.

Busy is not dead: an engine that works through a queue is fine as long as it moves. An engine that
is busy and has not moved for long is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from causerie.edge.drain import Drain
from causerie.edge.exchange import Exchange
from causerie.edge.ports import ServingStatus
from causerie.engines.base import EngineState, EngineStatus
from causerie.errors import Overloaded
from causerie.routing.target_state import TargetStatus

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class HealthHandlers:
    """The handlers of ``/health``. An engine is stalled after ``stall_seconds`` without a move."""

    engines: ServingStatus
    drain: Drain
    stall_seconds: float = 120.0

    async def live(self, exchange: Exchange) -> None:
        """``GET /health/live``: that this is answered says it all."""
        exchange.json({"status": "live"})

    async def ready(self, exchange: Exchange) -> None:
        """``GET /health/ready``: 200 where a request would be served, else 503."""
        await self._answer(exchange, {})

    async def overview(self, exchange: Exchange) -> None:
        """``GET /health``: the same, with every engine, every target of routing, and whether
        replicas count limits together."""
        engines = [self._engine(status) for status in self.engines.status()]
        targets = [_target(status) for status in self.engines.targets()]
        answers = self.engines.shared()
        limits = {"shared": False} if answers is None else {"shared": True, "answers": answers}
        await self._answer(
            exchange, {"live": True, "engines": engines, "targets": targets, "limits": limits}
        )

    async def _answer(self, exchange: Exchange, more: dict[str, object]) -> None:
        state = self._state()
        body = {"status": state, "ready": state == "ready", **more}
        if state == "ready":
            exchange.json(body)
            return
        failure = Overloaded(
            f"The service cannot serve now; it is {state}.",
            code="engine_loading" if state == "loading" else "no_endpoint",
        )
        encoded = _encoder.encode(body | failure.body())
        headers = {name.lower(): value for name, value in failure.headers.items()}
        exchange.respond(failure.status, encoded, headers=headers)

    def _state(self) -> str:
        if self.drain.stopping:
            return "stopping"
        statuses = self.engines.status()
        if not statuses or any(self._serves(status) for status in statuses):
            return "ready"  # without engines of its own it has providers of others
        if any(status.state is EngineState.LOADING for status in statuses):
            return "loading"
        return "failed"

    def _serves(self, status: EngineStatus) -> bool:
        """An absent engine is loaded by the first request."""
        if status.state is EngineState.ABSENT:
            return True
        return status.state is EngineState.READY and not self._stalled(status)

    def _stalled(self, status: EngineStatus) -> bool:
        return status.busy > 0 and (status.idle_seconds or 0.0) > self.stall_seconds

    def _engine(self, status: EngineStatus) -> dict[str, object]:
        shown: dict[str, object] = {
            "model": status.model,
            "state": "stalled" if self._stalled(status) else status.state.value,
            "slots": status.slots,
            "busy": status.busy,
            "restarts": status.restarts,
        }
        optional = {
            "progress": status.progress,
            "idle_seconds": status.idle_seconds,
            "memory_bytes": status.memory_bytes,
            "detail": status.detail or None,
        }
        return shown | {name: value for name, value in optional.items() if value is not None}


def _target(status: TargetStatus) -> dict[str, object]:
    shown: dict[str, object] = {
        "name": status.name,
        "state": status.state,
        "in_flight": status.in_flight,
    }
    if status.failures:
        shown["failures"] = status.failures
    if status.wait_seconds > 0:
        shown["wait_seconds"] = round(status.wait_seconds, 1)
    return shown | ({"reason": status.reason} if status.reason else {})
