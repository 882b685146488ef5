"""The bars that the gateway must meet, and the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan


@dataclass(frozen=True, slots=True)
class Bar:
    """``least``: the figure has to be at least that; else at most."""

    what: str
    bound: float
    least: bool
    unit: str
    form: str = ",.0f"

    def judge(self, figure: float) -> str:
        """Judge whether the figure is on the right side; without a figure there is no verdict."""
        if isnan(figure):
            return "–"
        met = figure >= self.bound if self.least else figure <= self.bound
        return "met" if met else "MISSED"

    def line(self, figure: float, *others: float) -> str:
        """For people; ``others`` are what the figure would be on a core or a machine like that."""
        sign = "≥" if self.least else "≤"
        bound = f"{sign} {self.bound:,g} {self.unit}".rstrip()
        shown = [f"{shown_figure(figure, self.form):>12} {self.judge(figure):7}"]
        shown += [f"{shown_figure(other):>10} {self.judge(other):6}" for other in others]
        return f"{self.what:44} {bound:>12} {' '.join(shown)}".rstrip()


def shown_figure(figure: float, form: str = ",.0f") -> str:
    """For people; a dash where there is none."""
    return "–" if isnan(figure) else f"{figure:{form}}"


HEAD = f"{'':44} {'bar':>12} {'by the clock':>12} {'':7} {'free core':>10} {'':6} {'bars’ own':>10}"
RATE = {
    connections: Bar(f"requests/s, {connections} connections", 12_000, True, "")
    for connections in (16, 64, 256)
}
LATENCY_P50 = Bar("added latency, 1 connection, p50", 0.25, False, "ms", ".3f")
LATENCY_P99 = Bar("added latency, 1 connection, p99", 0.5, False, "ms", ".3f")
FIRST_P50 = Bar("added time to first token, 64 streams, p50", 0.4, False, "ms", ".3f")
FIRST_P99 = Bar("added time to first token, 64 streams, p99", 1.0, False, "ms", ".3f")
PASSED = Bar("chunks/s, passed through", 100_000, True, "")
REWRITTEN = Bar("chunks/s, rewritten", 30_000, True, "")
MEMORY = Bar("memory after the load", 80, False, "MB", ".1f")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], show: Callable[[str], None]) -> None:
    """Rows under their heads; the first column to the left."""
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    for row in (heads, *rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        show("  ".join(cells))
