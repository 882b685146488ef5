"""Statistics of a target that one process reports to others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct

from causerie.routing.latency_stats import LatencyStats
from causerie.routing.samples import MOST


class Measurements(Struct, frozen=True, omit_defaults=True):
    """Measurements of one target. Moments are in seconds of the clock of its statistics."""

    answered: int = 0
    """Requests that it began to answer."""
    first_tokens: Sequence[tuple[float, float]] = ()
    """Of the newest of them the seconds to the first token, and the moment."""
    speeds: Sequence[tuple[int, float, float]] = ()
    """Tokens, seconds, and the moment."""
    down: int = 0
    """Requests that it should have answered and did not."""

    def __bool__(self) -> bool:
        """Return true if anything was measured."""
        return bool(self.answered or self.speeds or self.down)


class ReportedLatencyStats(LatencyStats):
    """Statistics that keep what is new until it is reported.

    ``own_answer`` is the moment of the newest answer that this service itself got.
    """

    __slots__ = ("_count", "_down", "_first_tokens", "_speeds", "own_answer")

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._first_tokens: deque[tuple[float, float]] = deque(maxlen=MOST)
        self._speeds: deque[tuple[int, float, float]] = deque(maxlen=MOST)
        self._count = self._down = 0
        self.own_answer = float("-inf")

    def answered(self, seconds: float, now: float) -> None:
        super().answered(seconds, now)
        self.own_answer = max(self.own_answer, now)
        self._first_tokens.append((seconds, now))
        self._count += 1

    def failed(self) -> None:
        super().failed()
        self._down += 1

    def wrote(self, tokens: int, seconds: float, now: float) -> None:
        super().wrote(tokens, seconds, now)
        self._speeds.append((tokens, seconds, now))

    def add(self, measured: Measurements) -> None:
        """Count what another process of this service has measured, and report it too."""
        for seconds, moment in measured.first_tokens:
            self.answered(seconds, moment)
        more = measured.answered - len(measured.first_tokens)
        self.count_answered(more)
        self._count += more
        for tokens, seconds, moment in measured.speeds:
            self.wrote(tokens, seconds, moment)
        for _ in range(measured.down):
            self.failed()

    def learn(self, measured: Measurements) -> None:
        """Count what another service has measured. It is not reported, since that one does."""
        for seconds, moment in measured.first_tokens:
            super().answered(seconds, moment)
        self.count_answered(measured.answered - len(measured.first_tokens))
        for tokens, seconds, moment in measured.speeds:
            super().wrote(tokens, seconds, moment)
        for _ in range(measured.down):
            super().failed()

    def taken(self) -> Measurements:
        """Return what is new, once."""
        found = Measurements(
            self._count, tuple(self._first_tokens), tuple(self._speeds), self._down
        )
        self._first_tokens.clear()
        self._speeds.clear()
        self._count = self._down = 0
        return found
