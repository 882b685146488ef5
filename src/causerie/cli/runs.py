"""Display of a benchmark: progress of a run, a line when it ends, the figures of all runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from causerie.benchmark.figures import Figures, Spread
from causerie.benchmark.load import BenchProgress
from causerie.cli.tables import Cell, print_table

_LOOK_SECONDS = 0.2
_BAR = 8  # characters of the longest
_BUSY = 0.8
_COLUMNS = ("streams", "replies", "failed", "first", "p95", "each", "p95", "tokens/s", "")


async def watch(console: Console, streams: int, seconds: float, seen: BenchProgress) -> None:
    """Show how a run gets on, on a terminal, until cancelled."""
    if not console.is_terminal:
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    began = time.monotonic()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=seconds)
        while True:
            passed = time.monotonic() - began
            words = f"{streams} at a time: {len(seen.samples)} replies"
            words += f", {seen.failures} failed" if seen.failures else ""
            words += ", the last ones come to their end" if passed > seconds else ""
            bar.update(task, completed=min(passed, seconds), description=words)
            await asyncio.sleep(_LOOK_SECONDS)


def line(found: Figures) -> str:
    told = [f"{found.tokens_a_second:,.1f} tokens/s", f"{found.replies} replies"]
    if found.first_token is not None:
        told.append(f"first token after {_time(found.first_token.p50)}")
    told += [f"{count} failed: {why}" for why, count in found.failed.items()]
    return f"{found.streams} at a time: {', '.join(told)}"


def show(console: Console, runs: Sequence[Figures]) -> None:
    """The figures of all runs, with what has to be known of them."""
    most = max(one.tokens_a_second for one in runs) or 1.0
    rows = [_row(one, one.tokens_a_second / most) for one in runs]
    print_table(_COLUMNS, rows, right=_COLUMNS[:-1], console=console)
    for words in _notes(runs):
        console.print(words, markup=False, highlight=False, soft_wrap=True)


def show_compared(
    console: Console, here: Sequence[Figures], there: Sequence[Figures], name: str
) -> None:
    """Show the figures with those of another provider, or of an earlier time."""
    others = {one.streams: one for one in there}
    words = f"Compared with {name}:"
    console.print(words, markup=False, highlight=False, soft_wrap=True)
    titles = ("streams", "tokens/s", "there", "ratio", "first", "there", "ratio")
    rows = [_compared(one, others[one.streams]) for one in here if one.streams in others]
    print_table(titles, rows, right=titles, console=console)


def _row(found: Figures, share: float) -> Sequence[Cell]:
    failed = sum(found.failed.values())
    return (
        str(found.streams),
        str(found.replies),
        Text(str(failed), style="red" if failed else ""),
        *_times(found.first_token),
        *_times(found.each_token),
        f"{found.tokens_a_second:,.1f}",
        Text("█" * round(share * _BAR), style="green"),
    )


def _compared(found: Figures, other: Figures) -> Sequence[Cell]:
    rates = found.tokens_a_second, other.tokens_a_second
    waits = _median(found), _median(other)
    return (
        str(found.streams),
        *(f"{rate:,.1f}" for rate in rates),
        _ratio(*rates),
        *("-" if wait is None else _time(wait) for wait in waits),
        _ratio(*waits),
    )


def _median(found: Figures) -> float | None:
    return None if found.first_token is None else found.first_token.p50


def _ratio(here: float | None, there: float | None) -> str:
    return f"{here / there:.2f}" if here is not None and there else "-"


def _notes(runs: Sequence[Figures]) -> Iterator[str]:
    yield (
        "first: until the first token; each: from one token to the next; medians, and what "
        "nineteen in twenty did not pass (p95)."
    )
    lengths = {(one.prompt, one.completion) for one in runs if one.replies}
    for prompt, completion in sorted(lengths)[-1:]:
        yield f"A reply had {completion} tokens to a prompt of {prompt}, as the provider counts."
    busiest = max(runs, key=lambda one: one.busy)
    if busiest.busy > _BUSY:
        yield (
            f"Asking {busiest.streams} at a time took {busiest.busy:.0%} of a core here: the "
            "provider may be faster than that."
        )


def _times(spread: Spread | None) -> tuple[str, str]:
    return ("-", "-") if spread is None else (_time(spread.p50), _time(spread.p95))


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
