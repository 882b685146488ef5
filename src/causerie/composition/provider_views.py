"""Providers as operators see them: what the configuration says, how they stand, what probes saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from functools import lru_cache
from typing import Any, Self, TypeVar

from msgspec import Struct, structs

from causerie.catalog.model import OWN_PROVIDER
from causerie.composition.catalog import parameters
from causerie.composition.pricing import tariff
from causerie.composition.service import InForce
from causerie.hosted.operations.explanation import PriceTexts, prices
from causerie.hosted.operations.ports import (
    Change,
    ProbeCost,
    ProbedModelView,
    ProbeView,
    ProviderView,
    Serving,
    TargetView,
)
from causerie.hosted.operations.probes import (
    NOTHING,
    ConfiguredSupport,
    Examination,
    Examinee,
    Kept,
    Result,
    own_row,
    price,
    row,
)
from causerie.http.event_loop import Turns
from causerie.protocol.targets import UNKNOWN_STATS
from causerie.settings.provider import ProviderModelSettings, ProviderSettings
from causerie.settings.tree import Settings

S = TypeVar("S", bound=Struct)


def view_of(kind: type[S], source: object, **more: Any) -> S:
    """Return the view with what the source has under the same names, and more."""
    same = [name for name in kind.__struct_fields__ if name not in more and hasattr(source, name)]
    return kind(**{name: getattr(source, name) for name in same}, **more)


class ProviderViews:
    """Providers, by the parts in force. Long loops let other tasks run."""

    def __init__(self, now: InForce) -> None:
        self._settings = now.settings
        self._router = now.router
        self._target_states = {one.name: one for one in now.router.status()}
        self._turns = Turns()
        self._targets: dict[str | None, dict[str, str]] = {}  # models by target, by provider
        self._serving: dict[str, list[Serving]] = {}

    @classmethod
    async def of(cls, now: InForce) -> Self:
        views, settings = cls(now), now.settings
        for target in settings.targets:
            views._targets.setdefault(target.provider, {})[target.name] = target.model
            await views._turns.pause()
        for name, serving in _each(settings):
            views._serving.setdefault(name, []).append(serving)
            await views._turns.pause()
        return views

    async def provider(
        self, one: ProviderSettings, results: Mapping[str, Kept], probe: Examination | None
    ) -> ProviderView:
        known = {each.id: each for each in one.models}
        targets, models = [], []
        for name, model in self._targets.get(one.name, {}).items():
            targets.append(self._target(name, model))
            await self._turns.pause()
        for id in dict.fromkeys([*(each.model for each in targets), *known]):
            told = known.get(id, ProviderModelSettings(id=id))
            models.append(self._model(told, results.get(id, NOTHING)))
            await self._turns.pause()
        shown = probe_view(probe) if probe is not None else None
        return view_of(ProviderView, one, targets=tuple(targets), models=tuple(models), probe=shown)

    def own(self) -> ProviderView | None:
        if not self._settings.models:
            return None
        return ProviderView(
            name=OWN_PROVIDER,
            base_url="",
            dialect=OWN_PROVIDER,
            max_concurrent=None,
            targets=tuple(self._target(one.id, one.id) for one in self._settings.models),
            models=tuple(
                ProbedModelView(
                    id=one.id,
                    probed=None,
                    evidence="runs here",
                    context_length=one.context,
                    thinking=None,
                    continues=True,
                    cells=tuple(own_row()),
                    cost=None,
                )
                for one in self._settings.models
            ),
        )

    def _target(self, name: str, model: str) -> TargetView:
        unused: dict[str, Any] = {"state": "unused", "in_flight": 0, "failures": 0}
        unused |= {"wait_seconds": 0.0, "reason": ""}
        state = self._target_states.get(name)
        now = structs.asdict(state) if state is not None else unused
        stats = self._router.target_stats(name) or UNKNOWN_STATS
        first, speed = stats.first_token, stats.speed
        return TargetView(
            name=name,
            model=model,
            **{each: now[each] for each in unused},
            first_token_seconds=first.p50 if first is not None else None,
            slow_first_token_seconds=first.p99 if first is not None else None,
            tokens_per_second=speed.p50 if speed is not None else None,
            uptime_half_hour=stats.uptime_half_hour,
            uptime_day=stats.uptime_day,
            serves=tuple(self._serving.get(name, ())),
        )

    def _model(self, known: ProviderModelSettings, kept: Kept) -> ProbedModelView:
        supported = known.supported_parameters
        facts = ConfiguredSupport(
            frozenset(supported) if supported is not None else None, parameters(known)
        )
        newest = kept.newest
        results = (each for each in (kept.used, newest) if each is not None)
        used = next((each for each in results if not changes(known, each)), None)
        return view_of(
            ProbedModelView,
            known,
            evidence=used.evidence if used is not None else "",
            cells=tuple(row(facts, used)),
            cost=probe_cost(known.context_length),
            used=used,
            newest=newest,
            changes=tuple(changes(known, newest)) if newest is not None else (),
        )


def changes(known: ProviderModelSettings, result: Result) -> list[Change]:
    before, now = known.supported_parameters, frozenset(result.supported_parameters)
    found = []
    if before is None:
        found.append(Change(what="parameters", before="not known", now=f"{len(now)} supported"))
    else:
        for name in sorted(now.symmetric_difference(before)):
            words = ("no", "yes") if name in now else ("yes", "no")
            found.append(Change(what=name, before=words[0], now=words[1]))
    pairs = (
        ("context_length", known.context_length, result.context_length),
        ("thinking", known.thinking, result.thinking),
        ("continues", known.continues, result.continues),
    )
    for what, old, new in pairs:
        if new is not None and old != new:
            found.append(Change(what=what, before=_said(old), now=_said(new)))
    return found


def probe_view(one: Examination) -> ProbeView:
    findings = one.result.findings if one.quick and one.result is not None else ()
    cost = view_of(ProbeCost, one.cost, words=str(one.cost))
    return view_of(ProbeView, one, cost=cost, findings=findings)


@lru_cache(maxsize=256)
def probe_cost(context_length: int | None) -> ProbeCost:
    """Return the most that a probe of a model can cost, which only depends on its context."""
    cost = price(Examinee("", ""), "", context_length)
    return view_of(ProbeCost, cost, words=str(cost))


def _each(settings: Settings) -> Iterator[tuple[str, Serving]]:
    for own in settings.models:
        yield own.id, Serving(model=own.id)
    for alias in settings.aliases:
        for target in alias.targets:
            yield (
                target.name,
                Serving(model=alias.id, priority=target.priority, weight=target.weight),
            )
    for entry in settings.catalog:
        for endpoint in entry.endpoints:
            money: PriceTexts = prices(tariff(endpoint.price))
            yield endpoint.name, Serving(model=entry.id, price=money)


def _said(value: date | str | int | bool | None) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
