"""Charts as shapes in a box of 100 by 100, for templates to draw as SVG, and the last day of
endpoints as strips and lines: no script, no library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from causerie.protocol.targets import QUARTER_SECONDS, TimeBucket

COLOURS = 7  # of series told apart; all others are the eighth, together
_BOX = 100.0
_LABELS = 6
_STEPS = 4  # of a scale
_FILL = 0.76  # of its place that a bar takes


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    colour: int
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class ChartBar:
    x: float
    y: float
    width: float
    height: float
    colour: int


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """Value of one series in one column."""

    name: str
    colour: int
    value: float


@dataclass(frozen=True, slots=True)
class ChartColumn:
    """One interval with its bars, from the bottom up.

    ``label``: 1 if its start is written below it, 2 if only where there is room, else 0.
    """

    start: datetime
    label: int
    bars: Sequence[ChartBar]
    parts: Sequence[ColumnPart]
    x: float
    width: float
    total: float


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One series as points, one string for each run without a gap."""

    name: str
    colour: int
    runs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Chart:
    """``ticks`` are the values of the lines across, from the bottom up, at equal distances."""

    columns: Sequence[ChartColumn]
    series: Sequence[Series]
    ticks: Sequence[float]
    lines: Sequence[ChartLine] = ()

    @property
    def empty(self) -> bool:
        return not any(column.total for column in self.columns)


def stacked(
    starts: Sequence[datetime],
    values: Mapping[str, Mapping[datetime, float]],
    rest: str = "others",
    *,
    whole: bool = False,
) -> Chart:
    """Return a bar chart: the largest series by name, all others as one. ``whole``: counts."""
    series = _largest(starts, values, rest)
    highest = max((sum(one.values[n] for one in series) for n in range(len(starts))), default=0.0)
    ticks = scale(highest, least=1.0 if whole else 0.0)
    return Chart(
        [_column(starts, series, index, ticks[-1]) for index in range(len(starts))], series, ticks
    )


def lines(
    starts: Sequence[datetime],
    values: Mapping[str, Mapping[datetime, float]],
    *,
    whole: bool = False,
) -> Chart:
    """Return a line chart; a missing value breaks its line. ``whole``: ticks are whole numbers."""
    highest = max((value for one in values.values() for value in one.values()), default=0.0)
    ticks = scale(highest, least=1.0 if whole else 0.0)
    made, series = [], []
    for colour, (name, found) in enumerate(values.items(), 1):
        made.append(ChartLine(name, colour, _runs(starts, found, ticks[-1])))
        series.append(Series(name, colour, [found.get(start, 0.0) for start in starts]))
    columns = [
        _column_of_points(starts, values, index, len(starts)) for index in range(len(starts))
    ]
    return Chart(columns, series, ticks, made)


def scale(highest: float, least: float = 0.0) -> Sequence[float]:
    """Return round ticks from 0 to ``highest`` or more, in at most four steps from ``least``."""
    if highest <= 0:
        return (0.0, 1.0)
    raw = max(highest / _STEPS, least)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * times for times in _steps(unit, least) if unit * times >= raw * 0.999999)
    return tuple(step * index for index in range(math.ceil(highest / step - 1e-9) + 1))


def _steps(unit: float, least: float) -> Sequence[float]:
    return (1, 2, 5, 10) if least and unit < 10 * least else (1, 2, 2.5, 5, 10)


def _largest(
    starts: Sequence[datetime], values: Mapping[str, Mapping[datetime, float]], rest: str
) -> Sequence[Series]:
    ranked = sorted(values, key=lambda name: (-sum(values[name].values()), name))
    kept, others = ranked[:COLOURS], ranked[COLOURS:]
    series = [
        Series(name, colour, [values[name].get(start, 0.0) for start in starts])
        for colour, name in enumerate(kept, 1)
    ]
    if others:
        sums = [sum(values[name].get(start, 0.0) for name in others) for start in starts]
        series.append(Series(f"{len(others)} {rest}", 0, sums))
    return series


def _column(
    starts: Sequence[datetime], series: Sequence[Series], index: int, top: float
) -> ChartColumn:
    width = _BOX / len(starts)
    x = width * index + width * (1 - _FILL) / 2
    bars, filled = [], 0.0
    for one in series:
        height = one.values[index] / top * _BOX
        if height > 0:
            filled += height
            bars.append(_bar(x, _BOX - filled, width * _FILL, height, one.colour))
    parts = [
        ColumnPart(one.name, one.colour, one.values[index]) for one in series if one.values[index]
    ]
    return ChartColumn(
        starts[index],
        _label(index, len(starts)),
        bars,
        sorted(parts, key=lambda part: -part.value),
        round(width * index, 3),
        round(width, 3),
        sum(part.value for part in parts),
    )


def _bar(x: float, y: float, width: float, height: float, colour: int) -> ChartBar:
    return ChartBar(round(x, 3), round(y, 3), round(width, 3), round(height, 3), colour)


def _column_of_points(
    starts: Sequence[datetime],
    values: Mapping[str, Mapping[datetime, float]],
    index: int,
    count: int,
) -> ChartColumn:
    width = _BOX / count
    start = starts[index]
    parts = [
        ColumnPart(name, colour, found[start])
        for colour, (name, found) in enumerate(values.items(), 1)
        if start in found
    ]
    return ChartColumn(
        start,
        _label(index, count),
        (),
        parts,
        round(width * index, 3),
        round(width, 3),
        sum(part.value for part in parts),
    )


def _runs(starts: Sequence[datetime], found: Mapping[datetime, float], top: float) -> Sequence[str]:
    width = _BOX / len(starts)
    runs: list[list[tuple[float, float]]] = [[]]
    for index, start in enumerate(starts):
        if start not in found:
            runs.append([])
            continue
        runs[-1].append((width * (index + 0.5), _BOX - found[start] / top * _BOX))
    made = []
    for run in filter(None, runs):
        if len(run) == 1:
            [(x, y)] = run
            run = [(x - width * 0.3, y), (x + width * 0.3, y)]
        made.append(" ".join(f"{x:.3f},{y:.3f}" for x, y in run))
    return made


def _label(index: int, count: int) -> int:
    every = max(math.ceil(count / _LABELS), 1)
    if index % every != every // 2:
        return 0
    return 1 + index // every % 2


_QUARTERS = 96
_TOGETHER = 2  # quarters that one mark of a strip stands for
_GOOD, _FAIR = 0.99, 0.9  # shares of requests that were answered
_STRIP_FILL = 0.72  # of its place that a mark takes


@dataclass(frozen=True, slots=True)
class Mark:
    """Half an hour of a strip; ``tone`` is good, warn, bad, or none where nothing was asked."""

    x: float
    width: float
    tone: str
    start: datetime
    answered: int
    failed: int

    @property
    def share(self) -> float:
        return self.answered / (self.answered + self.failed)


@dataclass(frozen=True, slots=True)
class Strip:
    """One endpoint's day; ``uptime`` is ``None`` where nobody asked it."""

    name: str
    marks: Sequence[Mark]
    answered: int
    failed: int

    @property
    def uptime(self) -> float | None:
        every = self.answered + self.failed
        return self.answered / every if every else None


@dataclass(frozen=True, slots=True)
class Trend:
    """``left_out`` endpoints are not drawn: others were asked more."""

    strips: Sequence[Strip]
    latency: Chart
    throughput: Chart
    left_out: int

    @property
    def empty(self) -> bool:
        return all(strip.uptime is None for strip in self.strips)


def trend(days: Mapping[str, Sequence[TimeBucket]], now: datetime) -> Trend:
    shown = busiest(days, COLOURS)
    starts = [_moment(number) for number in _quarters(now)]
    return Trend(
        strips(shown, now),
        lines(starts, _values(shown, lambda one: one.first_token)),
        lines(starts, _values(shown, lambda one: one.speed), whole=True),
        len(days) - len(shown),
    )


def strips(days: Mapping[str, Sequence[TimeBucket]], now: datetime) -> Sequence[Strip]:
    return [_strip(name, day, _quarters(now)) for name, day in days.items()]


def busiest(
    days: Mapping[str, Sequence[TimeBucket]], most: int
) -> Mapping[str, Sequence[TimeBucket]]:
    """Return those that were asked the most, in the order that they are given in."""
    found = sorted(days, key=lambda name: -sum(map(_asked, days[name])))[:most]
    return {name: day for name, day in days.items() if name in found}


def _quarters(now: datetime) -> range:
    last = int(now.timestamp()) // QUARTER_SECONDS
    return range(last - _QUARTERS + 1, last + 1)


def _values(
    days: Mapping[str, Sequence[TimeBucket]], value: Callable[[TimeBucket], float | None]
) -> Mapping[str, Mapping[datetime, float]]:
    return {
        name: {
            datetime.fromtimestamp(one.start, UTC): found
            for one in day
            if (found := value(one)) is not None
        }
        for name, day in days.items()
    }


def _strip(name: str, day: Sequence[TimeBucket], quarters: range) -> Strip:
    by_number = {one.start // QUARTER_SECONDS: one for one in day}
    width = _BOX / (_QUARTERS / _TOGETHER)
    marks = [
        _mark(index * width, width, [by_number.get(first + n) for n in range(_TOGETHER)], first)
        for index, first in enumerate(quarters[::_TOGETHER])
    ]
    answered = sum(mark.answered for mark in marks)
    return Strip(name, marks, answered, sum(mark.failed for mark in marks))


def _mark(x: float, width: float, found: Sequence[TimeBucket | None], first: int) -> Mark:
    answered = sum(one.answered for one in found if one is not None)
    failed = sum(one.failed for one in found if one is not None)
    return Mark(
        round(x + width * (1 - _STRIP_FILL) / 2, 3),
        round(width * _STRIP_FILL, 3),
        _tone(answered, failed),
        _moment(first),
        answered,
        failed,
    )


def _tone(answered: int, failed: int) -> str:
    if not answered + failed:
        return "none"
    share = answered / (answered + failed)
    return "good" if share >= _GOOD else "warn" if share >= _FAIR else "bad"


def _asked(one: TimeBucket) -> int:
    return one.answered + one.failed


def _moment(number: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=number * QUARTER_SECONDS)
