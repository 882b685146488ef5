"""The composition root: builds every part from the settings, starts and stops them.

The one place that names concrete engines and hands settings to those who need
them. Nothing here decides anything about a request.
"""

from __future__ import annotations

from pathlib import Path

from causerie.engines.weights import Cache, HubOptions, Progress, Silent, Weights, fetch
from causerie.engines.weights.errors import WeightsError
from causerie.settings import Settings


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
