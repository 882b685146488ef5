"""The results of one contestant, and which rounds were quiet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from gateway import bars
from gateway.measure import Result


@dataclass
class Figures:
    """All results of one contestant."""

    results: dict[str, list[Result]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def of(self, load: str, what: str) -> float:
        """The median of one figure; not a number where there is none."""
        found = self.results.get(load)
        return median(getattr(result, what) for result in found) if found else float("nan")

    def only(self, rounds: Sequence[int]) -> Figures:
        """Those of some rounds."""
        kept = {
            load: [found[number] for number in rounds if number < len(found)]
            for load, found in self.results.items()
        }
        return Figures(kept, self.failures)


def quiet_rounds(direct: Figures) -> list[int]:
    """In which nothing slowed the direct load down, which is none of the contestants.

    That is by more than a twentieth of its best, at any number of connections.
    """
    by_load = [direct.results.get(f"rate {count}", []) for count in bars.RATE]
    best = [max((result.rate for result in found), default=0.0) for found in by_load]
    return [
        number
        for number, rates in enumerate(zip(*by_load, strict=False))
        if all(rate.rate >= 0.95 * most for rate, most in zip(rates, best, strict=True))
    ]
