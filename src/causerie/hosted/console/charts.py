"""Charts as shapes in a box of 100 by 100 for SVG templates, and strips of availability."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from causerie.protocol.targets import DAY_SECONDS, QUARTER_SECONDS, TimeBucket

COLOURS = 7  # of series told apart; all others are the eighth, together
_BOX = 100.0
_STEPS = 4  # of a scale
Values = Mapping[str, Mapping[datetime, float]]


class Series(Struct, frozen=True):
    """A named series: a value for each start of the chart; ``runs`` are its line between gaps."""

    name: str
    colour: int
    values: Sequence[float | None]
    runs: Sequence[str] = ()


class Chart(Struct, frozen=True):
    """Data of a chart: stacked bars if ``bars``, else lines.

    ``ticks`` are the values of the lines across, from the bottom up, at equal distances; ``before``
    are the sums of the period before, column by column, and ``before_runs`` their line.
    """

    starts: Sequence[datetime]
    series: Sequence[Series]
    ticks: Sequence[float]
    bars: bool = True
    before: Sequence[float] = ()
    before_runs: Sequence[str] = ()

    @property
    def empty(self) -> bool:
        return not any(value for one in self.series for value in one.values)


def stacked(
    starts: Sequence[datetime],
    values: Values,
    *,
    whole: bool = False,
    before: Sequence[float] = (),
) -> Chart:
    """Return a stacked bar chart: the largest series, all others as one; ``whole``: integer ticks.

    ``before`` are the sums of the period before, one for each start; none of it is left out.
    """
    ranked = sorted(values, key=lambda name: (-sum(values[name].values()), name))
    groups = [(name, [values[name]]) for name in ranked[:COLOURS]]
    if others := [values[name] for name in ranked[COLOURS:]]:
        groups.append((f"{len(others)} others", others))
    series = []
    for number, (name, group) in enumerate(groups, 1):
        heights = [sum(one.get(start, 0.0) for one in group) or None for start in starts]
        series.append(Series(name, number % (COLOURS + 1), heights))
    columns = zip(*(one.values for one in series), strict=True)
    sums = [sum(filter(None, column)) for column in columns]
    ticks = scale(max([*sums, *before], default=0.0), least=1.0 if whole else 0.0)
    if not any(before):
        return Chart(starts, series, ticks)
    runs = _plot_polylines(starts, dict(zip(starts, before, strict=True)), ticks[-1])
    return Chart(starts, series, ticks, before=before, before_runs=runs)


def lines(starts: Sequence[datetime], values: Values, *, whole: bool = False) -> Chart:
    """Return a line chart; a missing value breaks its line. ``whole``: ticks are whole numbers."""
    highest = max((value for one in values.values() for value in one.values()), default=0.0)
    ticks = scale(highest, least=1.0 if whole else 0.0)
    series = [
        Series(name, colour, [*map(found.get, starts)], _plot_polylines(starts, found, ticks[-1]))
        for colour, (name, found) in enumerate(values.items(), 1)
    ]
    return Chart(starts, series, ticks, bars=False)


def scale(highest: float, least: float = 0.0) -> Sequence[float]:
    """Return round ticks from 0 to ``highest`` or more: up to four steps of ``least`` or more."""
    if highest <= 0:
        return (0.0, 1.0)
    raw = max(highest / _STEPS, least)
    unit = 10.0 ** math.floor(math.log10(raw))
    times = (1, 2, 5, 10) if least and unit < 10 * least else (1, 2, 2.5, 5, 10)
    step = next(unit * each for each in times if unit * each >= raw * 0.999999)
    return tuple(step * index for index in range(math.ceil(highest / step - 1e-9) + 1))


def _plot_polylines(
    starts: Sequence[datetime], value_by_start: Mapping[datetime, float], highest_tick: float
) -> Sequence[str]:
    width = _BOX / len(starts)
    runs: list[list[tuple[float, float]]] = [[]]
    for index, start in enumerate(starts):
        if start not in value_by_start:
            runs.append([])
            continue
        runs[-1].append((width * (index + 0.5), _BOX - value_by_start[start] / highest_tick * _BOX))
    made = []
    for run in filter(None, runs):
        if len(run) == 1:
            [(x, y)] = run
            run = [(x - width * 0.3, y), (x + width * 0.3, y)]
        made.append(" ".join(f"{x:.3f},{y:.3f}" for x, y in run))
    return made


_QUARTERS = 96
_HALF_HOUR = 2 * QUARTER_SECONDS  # that a mark of the strip of a day stands for
_GOOD, _FAIR = 0.99, 0.9  # shares of requests that were answered


class Mark(Struct, frozen=True):
    """Half an hour or a day of a strip, with its counts of requests."""

    start: datetime
    answered: int
    failed: int

    @property
    def tone(self) -> str:
        """Return ``good``, ``warn`` or ``bad`` by the answered share; ``none`` without requests."""
        if not self.answered + self.failed:
            return "none"
        share = self.answered / (self.answered + self.failed)
        return "good" if share >= _GOOD else "warn" if share >= _FAIR else "bad"


class Strip(Struct, frozen=True):
    """Availability of an endpoint or provider; ``uptime`` is ``None`` without requests."""

    name: str
    marks: Sequence[Mark]

    @property
    def answered(self) -> int:
        return sum(mark.answered for mark in self.marks)

    @property
    def failed(self) -> int:
        return sum(mark.failed for mark in self.marks)

    @property
    def uptime(self) -> float | None:
        every = self.answered + self.failed
        return self.answered / every if every else None


def trend(days: Mapping[str, Sequence[TimeBucket]], now: datetime) -> Mapping[str, Any]:
    """Return a day's strips and lines of the most asked endpoints; ``left_out`` counts others."""
    most = sorted(days, key=lambda name: -sum(one.answered + one.failed for one in days[name]))
    shown = {name: day for name, day in days.items() if name in most[:COLOURS]}
    last = int(now.timestamp()) // QUARTER_SECONDS
    quarters = range(last - _QUARTERS + 1, last + 1)
    starts = [datetime.fromtimestamp(number * QUARTER_SECONDS, UTC) for number in quarters]
    drawn = strips(shown, now)
    return {
        "strips": drawn,
        "latency": lines(starts, _build_named_series(shown, lambda one: one.first_token)),
        "throughput": lines(starts, _build_named_series(shown, lambda one: one.speed), whole=True),
        "left_out": len(days) - len(shown),
        "empty": all(strip.uptime is None for strip in drawn),
    }


def ninety_days(name: str, found: Iterable[TimeBucket], now: datetime) -> Strip:
    """Return the last 90 days of a provider, a mark for each day (UTC)."""
    return _build_uptime_strip(name, found, DAY_SECONDS, 90, now)


def strips(days: Mapping[str, Sequence[TimeBucket]], now: datetime) -> Sequence[Strip]:
    return [_build_uptime_strip(name, day, _HALF_HOUR, 48, now) for name, day in days.items()]


def _build_named_series(
    buckets: Mapping[str, Sequence[TimeBucket]], read_figure: Callable[[TimeBucket], float | None]
) -> Values:
    return {
        name: {
            datetime.fromtimestamp(one.start, UTC): found
            for one in day
            if (found := read_figure(one)) is not None
        }
        for name, day in buckets.items()
    }


def _build_uptime_strip(
    name: str, buckets: Iterable[TimeBucket], mark_seconds: int, mark_count: int, now: datetime
) -> Strip:
    """Return a strip of the last ``mark_count`` marks, each of ``mark_seconds``."""
    grouped: dict[int, list[TimeBucket]] = {}
    for one in buckets:
        grouped.setdefault(one.start // mark_seconds, []).append(one)
    last = int(now.timestamp()) // mark_seconds
    marks = []
    for number in range(last - mark_count + 1, last + 1):
        start, every = datetime.fromtimestamp(number * mark_seconds, UTC), grouped.get(number, ())
        counts = sum(one.answered for one in every), sum(one.failed for one in every)
        marks.append(Mark(start, *counts))
    return Strip(name, marks)
