"""Conditions of the service that somebody should know: providers, error rates, jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from causerie.alerts.condition import Condition
from causerie.alerts.error_rates import ErrorRate
from causerie.alerts.message import AlertKind
from causerie.engines.base import EngineState, EngineStatus
from causerie.errors import ErrorClass
from causerie.routing.target_state import IMPOSSIBLE_USAGE, TargetState
from causerie.settings import Settings
from causerie.settings.alerts import Alerts

_USAGE_SECONDS = 600.0  # for which an impossible report counts
DATABASE_AWAY = Condition(
    "job:database", AlertKind.JOB, "The database cannot be reached", {"job": "database"}
)
NOT_RELOADED = Condition(
    "job:reload",
    AlertKind.JOB,
    "The changed configuration does not hold and is not in force; see `causerie check`",
    {"job": "reload"},
)
WORKER_ENDED = Condition(
    "job:workers", AlertKind.JOB, "A worker process ended and was replaced", {"job": "workers"}
)

_REJECTED: Mapping[str, str] = {
    ErrorClass.REJECTED_KEY: "it does not accept our key",
    ErrorClass.FORBIDDEN: "our key may not do this there",
    ErrorClass.MODEL_NOT_FOUND: "it does not know the model",
    ErrorClass.WRONG_ADDRESS: "chat completions are not at this address",
    ErrorClass.QUOTA: "its quota is used up, or it is not paid for",
}


def provider_conditions(
    settings: Settings, target_states: Sequence[TargetState]
) -> Iterator[Condition]:
    """Yield a condition for each provider with targets that get no requests, and one for each
    provider with targets that reject all requests.
    """
    providers = {one.name: one.provider for one in settings.targets if one.provider is not None}
    checked = {one.name for one in settings.providers if one.health.path}
    by_provider: dict[str, list[TargetState]] = {}
    for each in target_states:
        if each.name in providers:
            by_provider.setdefault(providers[each.name], []).append(each)
    for name, every in sorted(by_provider.items()):
        down = [each for each in every if _is_down(each, checked=name in checked)]
        if down:
            yield _provider(name, down, len(every))
        if rejecting := [each for each in every if each.breaker.rejecting]:
            yield _rejecting(name, rejecting, len(every))


def _is_down(target: TargetState, *, checked: bool) -> bool:
    """Return whether requests are kept from it.

    Where the provider is not checked, only a request that it answers says that it is back.
    """
    return target.breaker.open and not (checked and target.breaker.state() == "half_open")


def _provider(name: str, down: Sequence[TargetState], all: int) -> Condition:
    what = "fails" if len(down) == all else f"fails for {len(down)} of {all} targets"
    reasons = _reasons(down)
    return Condition(
        f"provider:{name}",
        AlertKind.PROVIDER,
        f"Provider {name} {what} and gets no requests ({reasons.replace('_', ' ')})",
        {"provider": name, "targets": _targets(down), "reason": reasons},
        level=2 if len(down) == all else 1,
    )


def _rejecting(name: str, rejecting: Sequence[TargetState], all: int) -> Condition:
    reasons = {each.breaker.reason for each in rejecting if each.breaker.reason}
    words = ", ".join(_REJECTED.get(reason, reason) for reason in sorted(reasons))
    where = "" if len(rejecting) == all else f" for {len(rejecting)} of {all} targets"
    return Condition(
        f"rejects:{name}",
        AlertKind.PROVIDER,
        f"Provider {name} rejects all requests{where}, so others get them first ({words})",
        {"provider": name, "targets": _targets(rejecting), "reason": _reasons(rejecting)},
        level=2 if len(rejecting) == all else 1,
    )


def _reasons(targets: Sequence[TargetState]) -> str:
    return ", ".join(sorted({each.breaker.reason for each in targets if each.breaker.reason}))


def _targets(targets: Sequence[TargetState]) -> str:
    return ", ".join(sorted(each.name for each in targets)[:10])


class ImpossibleUsage:
    """Remembers the providers that reported impossible usage lately."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._seen: dict[str, float] = {}

    def look(
        self, settings: Settings, target_states: Sequence[TargetState], now: float
    ) -> Iterator[Condition]:
        """Yield a condition for each of them; ``now`` is in seconds."""
        providers = {one.name: one.provider for one in settings.targets}
        for each in target_states:
            count = each.failures[IMPOSSIBLE_USAGE]
            name = providers.get(each.name)
            if name is not None and count > self._counts.get(each.name, 0):
                self._seen[name] = now
            self._counts[each.name] = count
        for name, seen in sorted(self._seen.items()):
            if now - seen <= _USAGE_SECONDS:
                yield Condition(
                    f"usage:{name}",
                    AlertKind.PROVIDER,
                    f"Provider {name} reports impossible usage; its tokens are estimated instead",
                    {"provider": name, "reason": IMPOSSIBLE_USAGE},
                )


def error_conditions(alerts: Alerts, rates: Mapping[str, ErrorRate]) -> Iterator[Condition]:
    """Yield one for each model that fails too often."""
    for model, rate in sorted(rates.items()):
        if rate.requests >= alerts.error_requests and rate.percent >= alerts.error_percent:
            yield Condition(
                f"error_rate:{model}",
                AlertKind.ERROR_RATE,
                f"Model {model} fails: {rate.percent} % of {rate.requests} requests",
                {
                    "model": model,
                    "percent": str(rate.percent),
                    "requests": str(rate.requests),
                    "failed": str(rate.failed),
                    "window_seconds": f"{alerts.error_window_seconds:g}",
                },
            )


def engine_conditions(engines: Sequence[EngineStatus]) -> Iterator[Condition]:
    """Yield one for each engine that does not start or has ended."""
    for each in engines:
        if each.state is EngineState.FAILED:
            yield Condition(
                f"job:engine:{each.model}",
                AlertKind.JOB,
                f"The engine of model {each.model} has failed; a restart is scheduled",
                {"job": "engine", "model": each.model},
            )
