"""Sampling parameters as fields of a request to an engine of our own.

Knows no parameter by name: fields, order and neutral values are those of the declarations.
"""

from __future__ import annotations

from functools import cache

from causerie.protocol.parameters import SAMPLING, SamplingParams

_LEAST = 1e-6  # engines compute in single precision, and refuse what is not to be 0 and is there


def engine_fields(engine: str, wanted: SamplingParams) -> dict[str, float]:
    """Return all numeric sampling parameters that the engine has, by its own names.

    One that is not set is neutral; the engine's own defaults never apply.
    """
    fields = {}
    for name, field, neutral in _numbers(engine):
        value = getattr(wanted, name)
        if value is None or value in neutral:
            value = neutral[0]
        fields[field] = _LEAST if 0 < value < _LEAST else value
    return fields


def neutral_values(engine: str, effect: str) -> dict[str, float]:
    """Return the fields of an engine whose parameters act this way, and their neutral values."""
    acting = {each.name for each in SAMPLING if each.facts.effect == effect}
    return {field: neutral[0] for name, field, neutral in _numbers(engine) if name in acting}


@cache
def _numbers(engine: str) -> tuple[tuple[str, str, tuple[float, ...]], ...]:
    """Return name, field and neutral values of each parameter that is always sent."""
    return tuple(
        (each.name, field, each.facts.neutral)
        for each in SAMPLING
        if each.number is not None
        and each.facts.neutral
        and (field := each.facts.engines.get(engine, each.name)) is not None
    )
