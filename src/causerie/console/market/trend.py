"""Last day of a model's endpoints: strips of uptime, and lines of speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from causerie.console.charts import COLOURS, Chart, lines
from causerie.protocol.target_stats import QUARTER_SECONDS, TimeBucket

_QUARTERS = 96
_TOGETHER = 2  # quarters that one mark of a strip stands for
_GOOD, _FAIR = 0.99, 0.9  # shares of requests that were answered
_BOX = 100.0
_FILL = 0.72  # of its place that a mark takes


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
        """Of its requests, those that were answered."""
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
        """The share of its requests that it answered."""
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
        """Return true if nobody used the model."""
        return all(strip.uptime is None for strip in self.strips)


def trend(days: Mapping[str, Sequence[TimeBucket]], now: datetime) -> Trend:
    """By the name of each endpoint."""
    shown = busiest(days, COLOURS)
    starts = [_moment(number) for number in _quarters(now)]
    return Trend(
        strips(shown, now),
        lines(starts, _values(shown, lambda one: one.first_token)),
        lines(starts, _values(shown, lambda one: one.speed), whole=True),
        len(days) - len(shown),
    )


def strips(days: Mapping[str, Sequence[TimeBucket]], now: datetime) -> Sequence[Strip]:
    """Uptime by name, of any number of targets."""
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
        round(x + width * (1 - _FILL) / 2, 3),
        round(width * _FILL, 3),
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
