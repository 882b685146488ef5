"""The sampling of a request: its own values, else the settings of its model, else a recommendation.

Decided parameter by parameter. Engines get a value for every parameter that a model can have a
default for.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import structs

from causerie.engines.base import RecommendedSampling
from causerie.protocol.parameters import (
    MODEL_SAMPLING,
    NEUTRAL_SAMPLING,
    USUAL_SAMPLING,
    ModelSampling,
    SamplingDefaults,
    SamplingParams,
)

S = TypeVar("S", bound=SamplingDefaults)


def request_sampling(
    wanted: SamplingParams,
    configured: ModelSampling,
    recommended: RecommendedSampling | None,
    *,
    thinks: bool,
) -> SamplingParams:
    """Return the sampling of a request.

    A recommendation is about random sampling. A request whose temperature is 0 gets the most likely
    token, and no recommended penalty makes another one of it.
    """
    if configured == "neutral":
        return _filled(wanted, NEUTRAL_SAMPLING)
    chosen = _filled(wanted, configured)
    if chosen.temperature == 0:
        return _filled(chosen, NEUTRAL_SAMPLING)
    return _filled(chosen, _recommended(recommended, thinks=thinks))


def default_sampling(
    configured: ModelSampling, recommended: RecommendedSampling | None
) -> SamplingDefaults:
    """Return the sampling of a request that says nothing about it, nor about thinking."""
    resolved = request_sampling(SamplingParams(), configured, recommended, thinks=True)
    return SamplingDefaults(**{each.name: getattr(resolved, each.name) for each in MODEL_SAMPLING})


def _recommended(known: RecommendedSampling | None, *, thinks: bool) -> SamplingDefaults:
    if known is None:
        return _filled(USUAL_SAMPLING, NEUTRAL_SAMPLING)
    return _filled(known.usual if thinks else known.without_thinking, NEUTRAL_SAMPLING)


def _filled(values: S, others: SamplingDefaults) -> S:
    """Return the values, and the others where one is not set."""
    missing = {
        each.name: getattr(others, each.name)
        for each in MODEL_SAMPLING
        if getattr(values, each.name) is None
    }
    return structs.replace(values, **missing)
