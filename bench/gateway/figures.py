"""The results of one contestant, and those of them that nobody disturbed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from gateway.measure import Result


@dataclass
class Figures:
    """All results of one contestant, by load."""

    results: dict[str, list[Result]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def of(self, load: str, what: str) -> float:
        """The median of one figure; not a number where there is none."""
        found = self.results.get(load)
        return median(getattr(result, what) for result in found) if found else float("nan")

    def only(self, kept: Callable[[Result], bool], fewest: int) -> Figures:
        """Those results; none of a load that has fewer than so many of them."""
        found = {load: list(filter(kept, results)) for load, results in self.results.items()}
        return Figures(
            {load: results for load, results in found.items() if len(results) >= fewest},
            self.failures,
        )

    def counts(self) -> list[int]:
        """Return the number of results, by load."""
        return [len(results) for results in self.results.values()]
