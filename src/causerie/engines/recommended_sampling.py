"""The sampling that a model's publisher recommends: in its files, else by its family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

import msgspec
import structlog

from causerie.engines.base import RecommendedSampling
from causerie.engines.families import family_of
from causerie.protocol.declaration import Parameter
from causerie.protocol.parameters import MODEL_SAMPLING, SamplingDefaults

log = structlog.get_logger(__name__)

_PENALTY = "penalises"  # alone it says nothing about how to draw


def of_gguf(told: Mapping[str, float], names: Iterable[str]) -> RecommendedSampling | None:
    """Return the recommendation for a GGUF file.

    ``told`` has its keys below ``general.sampling.``, and ``names`` the most telling name first.
    """
    known = {each.name: told.get(each.facts.gguf or each.name) for each in MODEL_SAMPLING}
    return _recommended(known, "the model file", names)


def of_folder(told: Mapping[str, object], names: Iterable[str]) -> RecommendedSampling | None:
    """Return the recommendation for a model folder; ``told`` is its ``generation_config.json``."""
    known = {each.name: told.get(each.name) for each in MODEL_SAMPLING}
    return _recommended(known, "generation_config.json", names)


def _recommended(
    told: Mapping[str, object], source: str, names: Iterable[str]
) -> RecommendedSampling | None:
    family = family_of(names)
    usual = _usable(told, source) or (family.usual if family else None)
    if usual is None:
        return None
    other = family.without_thinking if family else None
    return RecommendedSampling(usual, other or usual)


def _usable(told: Mapping[str, object], source: str) -> SamplingDefaults | None:
    """Return the values within their ranges, or ``None`` if none of them says how to draw.

    A recommendation counts as a whole: what it leaves out is neutral.
    """
    values: dict[str, float] = {}
    draws = False
    for each in MODEL_SAMPLING:
        value = told.get(each.name)
        if value is None:
            continue
        usable = _value(each, value)
        if usable is None:
            log.warning(
                "recommended sampling ignored", parameter=each.name, value=value, source=source
            )
            continue
        values[each.name] = usable
        draws = draws or each.facts.effect != _PENALTY
    return msgspec.convert(values, SamplingDefaults) if draws else None


def _value(parameter: Parameter, value: object) -> float | None:
    """Return a value that a request may have too, or ``None`` for any other."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    try:
        usable: float = msgspec.convert(value, parameter.type)
    except msgspec.ValidationError:
        return None
    return usable
