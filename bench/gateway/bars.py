"""The bars that the gateway must meet, and the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """``least``: the figure has to be at least that; else at most."""

    what: str
    bound: float
    least: bool
    unit: str
    form: str = ",.0f"

    def met(self, figure: float) -> bool:
        """Whether the figure is on the right side."""
        return figure >= self.bound if self.least else figure <= self.bound

    def line(self, figure: float, on_free_core: float | None = None) -> str:
        """For people; the second figure is what processor time says of a core of its own."""
        sign = "≥" if self.least else "≤"
        word = "met" if self.met(figure) else "MISSED"
        bound = f"{sign} {self.bound:,g} {self.unit}".rstrip()
        free = ""
        if on_free_core is not None:
            free = f"{on_free_core:,.0f} {'met' if self.met(on_free_core) else 'MISSED'}"
        return f"{self.what:44} {bound:>12} {figure:>12{self.form}} {word:7} {free:>15}".rstrip()


HEAD = f"{'':44} {'bar':>12} {'by the clock':>12} {'':7} {'on a free core':>15}"
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
