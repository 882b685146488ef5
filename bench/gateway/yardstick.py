"""How fast this machine is now, told by what others do on it.

The bars were set on a quiet machine, on which others were measured too. What
they do now, beside what they did there, is how much of that machine there is:
what neighbours take of caches and clocks they take of everybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

# Requests a second at 16 connections on the machine of the bars, by the names of contestants.
THERE = {
    "nginx": 47_000.0,
    "vllm-router": 13_500.0,
    "sglang-router": 9_800.0,
    "uvicorn + aiohttp": 8_200.0,
    "LiteLLM": 128.0,
}


def shares(rates: Mapping[str, float]) -> dict[str, float]:
    """Of those who were measured on both machines, the part of their rate that they reach here."""
    return {name: rates[name] / there for name, there in THERE.items() if name in rates}


def speed(rates: Mapping[str, float]) -> float:
    """The median of the :func:`shares`; not a number where nobody was measured on both."""
    found = shares(rates).values()
    return median(found) if found else float("nan")
