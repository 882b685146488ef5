"""Sampling: as a model's publisher recommends it, and as fields of a request to an engine.

The recommendation is in the model's files, else in ``families.toml``, whose rows each name their
source. The fields know no parameter by name: names, order and neutral values are those of the
declarations.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from math import isfinite
from pathlib import Path

import msgspec
import structlog
from msgspec import Struct

from causerie.engines.base import RecommendedSampling
from causerie.protocol.parameters import MODEL_SAMPLING, SAMPLING, SamplingDefaults, SamplingParams


class Family(Struct, frozen=True):
    """A family of models, found by a pattern of names, with its recommended sampling."""

    pattern: str
    source: str
    usual: SamplingDefaults
    without_thinking: SamplingDefaults | None = None  # `None`: as usual


FAMILIES = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("families.toml").read_text("utf-8"))["families"],
    tuple[Family, ...],
)


def family_of(names: Iterable[str]) -> Family | None:
    """Return the family that the first known one of a model's ``names`` belongs to, or ``None``."""
    for name in names:
        written = re.sub(r"[^a-z0-9.]+", "-", name.lower())
        for family in FAMILIES:
            if re.search(family.pattern, written):
                return family
    return None


log = structlog.get_logger(__name__)


def sampling_of_gguf(told: Mapping[str, float], names: Iterable[str]) -> RecommendedSampling | None:
    """Return what a GGUF file recommends, or else what is usual for its family of models.

    ``told`` has its keys below ``general.sampling.``, and ``names`` the most telling name first.
    """
    known = {each.name: told.get(each.facts.gguf or each.name) for each in MODEL_SAMPLING}
    return sampling_of_folder(known, names, "the model file")


def sampling_of_folder(
    told: Mapping[str, object], names: Iterable[str], source: str = "generation_config.json"
) -> RecommendedSampling | None:
    """Return what ``told`` (``generation_config.json``) recommends, or else the model's family."""
    family = family_of(names)
    usual = _recommended_values(told, source) or (family.usual if family else None)
    if usual is None:
        return None
    other = family.without_thinking if family else None
    return RecommendedSampling(usual, other or usual)


def _recommended_values(told: Mapping[str, object], source: str) -> SamplingDefaults | None:
    # A recommendation is used as a whole: what it leaves out is neutral.
    values: dict[str, float] = {}
    draws = False
    for each in MODEL_SAMPLING:
        value = told.get(each.name)
        if value is None:
            continue
        try:
            if not isfinite(msgspec.convert(value, float)):
                raise ValueError("no finite number")
            values[each.name] = msgspec.convert(value, each.type)
        except ValueError:
            log.warning(
                "recommended sampling ignored", parameter=each.name, value=value, source=source
            )
            continue
        draws = draws or each.facts.effect != "penalises"  # alone those say not how to draw
    return msgspec.convert(values, SamplingDefaults) if draws else None


_LEAST = 1e-6  # engines compute in single precision, and refuse what is not to be 0 and is there


def engine_fields(engine: str, wanted: SamplingParams) -> dict[str, float]:
    """Return all numeric sampling parameters by the engine's own names, neutral where not set."""
    fields = {}
    for name, field, neutral in _fields_and_neutrals(engine):
        value = getattr(wanted, name)
        if value is None or value in neutral:
            value = neutral[0]
        fields[field] = _LEAST if 0 < value < _LEAST else value
    return fields


def neutral_values(engine: str, effect: str) -> dict[str, float]:
    """Return the neutral values of an engine's parameters with this ``effect``, by field."""
    acting = {each.name for each in SAMPLING if each.facts.effect == effect}
    return {
        field: neutral[0] for name, field, neutral in _fields_and_neutrals(engine) if name in acting
    }


@cache
def _fields_and_neutrals(engine: str) -> tuple[tuple[str, str, tuple[float, ...]], ...]:
    return tuple(
        (each.name, field, each.facts.neutral)
        for each in SAMPLING
        if each.number is not None
        and each.facts.neutral
        and (field := each.facts.engines.get(engine, each.name)) is not None
    )
