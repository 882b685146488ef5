"""Share of failed requests of each model in a window, from counts that only grow."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

Counted = Mapping[str, tuple[int, int]]
"""Requests and failures of each model since the start."""


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Requests and failures of one model in the window."""

    requests: int
    failed: int

    @property
    def percent(self) -> int:
        """Return the share of failures, from 0 to 100."""
        return 100 * self.failed // self.requests if self.requests else 0


class ErrorRates:
    """Keeps one count a look, for as long as the window is."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Counted]] = deque()

    def look(self, counted: Counted, now: float, window: float) -> Mapping[str, ErrorRate]:
        """Return the rates of the last ``window`` seconds, or since the first look.

        ``now`` is on the monotonic clock.
        """
        looks = self._looks
        looks.append((now, counted))
        while len(looks) > 2 and looks[1][0] <= now - window:
            looks.popleft()
        since = looks[0][1]
        rates = {}
        for model, (requests, failed) in counted.items():
            before, failed_before = since.get(model, (0, 0))
            rates[model] = ErrorRate(requests - before, failed - failed_before)
        return rates
