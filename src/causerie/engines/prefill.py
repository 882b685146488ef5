"""Prompts as engines read them: tokens packed as bytes, and the speed of reading.

Imports the standard library only, for a child process uses it too.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

TOKEN_BYTES = array("i").itemsize


def packed(tokens: Sequence[int]) -> bytes:
    return array("i", tokens).tobytes()


def token_count(tokens: bytes) -> int:
    return len(tokens) // TOKEN_BYTES


def common_tokens(one: bytes, other: bytes) -> int:
    """Return the number of packed tokens at the beginning that are the same in both."""
    known, most = 0, min(token_count(one), token_count(other))
    while known < most:
        half = (known + most + 1) // 2
        part = slice(known * TOKEN_BYTES, half * TOKEN_BYTES)
        if one[part] == other[part]:
            known = half
        else:
            most = half - 1
    return known


STREAMING_SECONDS = 0.125
"""Time of a step beside a stream: half of what it may wait, for a step may take twice that."""

LEAST_OBSERVED = 8  # tokens; most of the time of a smaller step is not theirs

_SLOWER, _FASTER = 0.5, 0.25  # weight of a new step


class PrefillSpeed:
    """Seconds for a token of a prompt; ``expected`` counts until a step was seen."""

    def __init__(self, expected: float) -> None:
        self.token_seconds = expected
        self._has_measured = False

    def observe(self, tokens: int, seconds: float) -> None:
        """Adapt the speed to a step of ``tokens`` in ``seconds``; slower steps weigh more."""
        if tokens < LEAST_OBSERVED or seconds <= 0:
            return
        new = seconds / tokens
        weight = _SLOWER if new > self.token_seconds else _FASTER
        self.token_seconds += (new - self.token_seconds) * (weight if self._has_measured else 1.0)
        self._has_measured = True

    def fitting(self, seconds: float) -> int:
        return int(seconds / self.token_seconds)
