"""The composition root: builds every part from the settings, starts and stops them.

The one place that names concrete engines and hands settings to those who need
them. Nothing here decides anything about a request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from msgspec import structs

from causerie.engines.base import EngineFailed, Sampling
from causerie.engines.fleet import Fleet, FleetEntry, ManagedEngine
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.engines.registry import engine_factory
from causerie.engines.weights import Cache, HubOptions, Progress, Silent, Weights, fetch
from causerie.engines.weights.errors import WeightsError
from causerie.service import listen, service
from causerie.settings import Model, Settings
from causerie.startup import Watcher, run, take_address

_SLOTS_BEFORE_LOADING = 8


async def fetch_weights(settings: Settings, ref: str, progress: Progress) -> Weights:
    """The weights on this machine, fetched if needed. Raises :class:`WeightsError`."""
    return await fetch(ref, _cache_folder(settings), progress=progress, hub=_hub(settings))


async def weights_here(settings: Settings, ref: str) -> Weights | None:
    """The weights if they are on this machine already; no network is asked."""
    try:
        return await fetch(
            ref, _cache_folder(settings), progress=Silent(), hub=HubOptions(offline=True)
        )
    except WeightsError:
        return None


def cached_weights(settings: Settings) -> tuple[Weights, ...]:
    """Everything in the cache."""
    return Cache(_cache_folder(settings)).every()


def _cache_folder(settings: Settings) -> Path:
    if settings.weights.cache is None:
        raise ValueError("settings come from causerie.settings.load, which fills the cache folder")
    return Path(settings.weights.cache)


def _hub(settings: Settings) -> HubOptions:
    weights = settings.weights
    return HubOptions(endpoint=weights.hub_endpoint, token=weights.token, offline=weights.offline)


async def run_service(settings: Settings, watcher: Announcer) -> None:
    """Serve until a signal. Raises ``CannotStart`` with one sentence where that is not possible."""
    listening = listen(settings.server)
    address = take_address(listening)
    entries = [_entry(settings, model, watcher.download) for model in settings.models]
    async with (
        Fleet(entries, memory_budget=settings.engines.memory_budget_bytes) as fleet,
        service(settings, fleet) as edge,
    ):
        await run(edge, fleet, _preloaded(settings), listening, watcher, address)


class Announcer(Watcher, Protocol):
    """Who is told how the start goes; ``download`` of what is fetched for it."""

    @property
    def download(self) -> Progress: ...


def _preloaded(settings: Settings) -> list[str]:
    alone = len(settings.models) == 1
    return [
        model.id for model in settings.models if (alone if model.preload is None else model.preload)
    ]


def _entry(settings: Settings, model: Model, progress: Progress) -> FleetEntry:
    async def make() -> ManagedEngine:
        return await _make_engine(settings, model, progress)

    return FleetEntry(
        model=model.id,
        make=make,
        slots=model.llamacpp.parallel or _SLOTS_BEFORE_LOADING,
        idle_seconds=model.idle_unload_seconds,
        wait_seconds=settings.engines.load_wait_seconds,
    )


async def _make_engine(settings: Settings, model: Model, progress: Progress) -> ManagedEngine:
    if model.engine != "llamacpp":
        return engine_factory(model.engine)(model.id, model.ref, model.options)
    assert model.ref is not None  # the settings were checked
    try:
        weights = await fetch_weights(settings, model.ref, progress)
    except WeightsError as error:
        raise EngineFailed(str(error)) from error
    return LlamaCppEngine(
        model.id,
        weights.path,
        LlamaCppOptions(**structs.asdict(model.llamacpp)),
        sampling=Sampling(**structs.asdict(model.sampling)),
        load_seconds=settings.engines.load_seconds,
    )
