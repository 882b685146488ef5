"""Speed of this machine now, measured by other gateways on it.

The bars were set on a quiet machine, on which others were measured too. Their figures now, divided
by their figures there, show how much of that machine there is: neighbours that use caches and
clocks slow everybody down. Only gateways in Python are compared with ours: a machine may do twice
as much for C and Rust, and for an interpreter nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

# Requests per second at 16 connections on the machine of the bars, by the names of contestants.
THERE = {
    "nginx": 47_000.0,
    "vllm-router": 13_500.0,
    "sglang-router": 9_800.0,
    "uvicorn + aiohttp": 8_200.0,
    "LiteLLM": 128.0,
}
_IN_PYTHON = frozenset({"uvicorn + aiohttp", "LiteLLM"})


def shares(rates: Mapping[str, float]) -> dict[str, float]:
    """Of those who were measured on both machines, the part of their rate that they reach here."""
    return {name: rates[name] / there for name, there in THERE.items() if name in rates}


def speed(rates: Mapping[str, float]) -> float:
    """The median of the :func:`shares` of those in Python; not a number where there are none."""
    found = [share for name, share in shares(rates).items() if name in _IN_PYTHON]
    return median(found) if found else float("nan")
