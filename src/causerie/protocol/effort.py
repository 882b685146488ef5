"""Reasoning effort, in words, and the share of the output limit that each word stands for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

EFFORTS = ("max", "xhigh", "high", "medium", "low", "minimal", "none")
SHARES: Mapping[str, float] = MappingProxyType(
    {
        "max": 0.95,
        "xhigh": 0.95,
        "high": 0.8,
        "medium": 0.5,
        "low": 0.2,
        "minimal": 0.1,
        "none": 0.0,
    }
)
USUAL = "medium"
"""What ``reasoning: {"enabled": true}`` stands for where no effort is said."""
ASSUMED_LIMIT = 16_384
"""The output limit, in tokens, that shares are of where none is said and none is known."""


def effort_within(budget: int, limit: int | None) -> str:
    """The greatest effort whose share of ``limit`` is no more than ``budget`` (both in tokens).

    ``minimal`` where even that is more: thinking is not turned off by a small budget.
    """
    most = limit or ASSUMED_LIMIT
    for effort in ("xhigh", "high", "medium", "low"):
        if SHARES[effort] * most <= budget:
            return effort
    return "minimal"
