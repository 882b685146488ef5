"""Replacements of parts if requests are traced; nothing, and no cost, otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from msgspec import Struct

from causerie.metering.meter import Meter, RecordSink, UsageSettlement
from causerie.routing.target import Target
from causerie.settings.tree import Settings, Tracing

# As the semantic conventions call them; the other dialects are called as they are here.
_PROVIDERS = {"mistral": "mistral_ai"}


class Traces(Struct, frozen=True):
    meter: Callable[[Sequence[RecordSink], UsageSettlement | None], Meter] = Meter
    targets: Callable[[Mapping[str, Target], Settings], Mapping[str, Target]] = lambda all, _: all
    headers: Callable[[], Mapping[str, str]] | None = None


UNTRACED = Traces()


@asynccontextmanager
async def tracing(settings: Tracing) -> AsyncIterator[Traces]:
    """The tracing of these settings, for as long as the service runs."""
    if settings.address is None:
        yield UNTRACED
        return
    from causerie.observe import tracing  # noqa: PLC0415 - memory, for tracing only

    async with tracing.tracer(settings.address, settings.share) as tracer:

        def meter(sinks: Sequence[RecordSink], bookkeeping: UsageSettlement | None) -> Meter:
            return tracing.TracedMeter(sinks, bookkeeping, tracer, follows=settings.follow)

        before: dict[str, tracing.TracedTarget] = {}

        def traced(targets: Mapping[str, Target], settings: Settings) -> Mapping[str, Target]:
            nonlocal before
            facts = _facts(settings)
            made: dict[str, tracing.TracedTarget] = {}
            for name, target in targets.items():
                kept = before.get(name)
                if kept is None or kept.target is not target:
                    kept = tracing.TracedTarget(target, tracer, *facts.get(name, (name, {})))
                made[name] = kept
            before = made
            return made

        yield Traces(meter, traced, tracing.current)


def _facts(settings: Settings) -> Mapping[str, tuple[str, Mapping[str, str | int]]]:
    providers = {one.name: one for one in settings.providers}
    facts: dict[str, tuple[str, Mapping[str, str | int]]] = {
        one.id: (one.id, {"gen_ai.provider.name": one.engine, "causerie.target": one.id})
        for one in settings.models
    }
    for target in settings.targets:
        if target.provider is None:
            continue
        provider = providers[target.provider]
        place = urlsplit(provider.base_url)
        facts[target.name] = (
            target.model,
            {
                "gen_ai.provider.name": _PROVIDERS.get(provider.dialect, provider.dialect),
                "server.address": place.hostname or "",
                "server.port": place.port or (443 if place.scheme == "https" else 80),
                "causerie.target": target.name,
            },
        )
    return facts
