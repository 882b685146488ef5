"""Classes of the calls that a target delivered: since the start, and of the last day."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from causerie.protocol.call_class import CallClass, CallCounts
from causerie.protocol.target_stats import QUARTER_SECONDS

_QUARTERS = 96  # of a day


class CallStats:
    """Of one target; ``clock`` gives seconds."""

    __slots__ = ("_clock", "_quarters", "ever")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._quarters: deque[tuple[int, Counter[CallClass]]] = deque(maxlen=_QUARTERS)
        self.ever: Counter[CallClass] = Counter()

    def add(self, classes: Sequence[CallClass]) -> None:
        """Count the calls of a reply."""
        self.ever.update(classes)
        self.learn(Counter(classes))

    def learn(self, counts: Mapping[CallClass, int]) -> None:
        """Count calls of the last day that another service delivered."""
        number = self._number()
        if not self._quarters or self._quarters[-1][0] != number:
            self._quarters.append((number, Counter()))
        self._quarters[-1][1].update(counts)

    def day(self) -> CallCounts | None:
        """Return the counts of the last day, or ``None`` if no call was delivered."""
        if not self._quarters:
            return None
        since = self._number() - _QUARTERS
        total: Counter[CallClass] = Counter()
        for number, counts in self._quarters:
            if number > since:
                total.update(counts)
        return msgspec.convert(dict(total), CallCounts) if total else None

    def _number(self) -> int:
        """Return the number of this quarter of an hour."""
        return int(self._clock() // QUARTER_SECONDS)
