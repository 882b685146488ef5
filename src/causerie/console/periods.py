"""The period that a page is asked about, from the fields of its address.

Sums are kept by whole hours and days in UTC, so a period begins and ends with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType

from causerie.accounts.usage import Step
from causerie.console.fields import FormFields
from causerie.errors import InvalidRequest

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LONGEST = timedelta(days=731)
_HOURLY = timedelta(days=3)
_FIRST_YEAR, _LAST_YEAR = 1980, 2199  # with room around them for what dates and sums can hold
USUAL = "7d"
LENGTHS = MappingProxyType(
    {
        "24h": ("24 hours", timedelta(hours=24)),
        "7d": ("7 days", timedelta(days=7)),
        "30d": ("30 days", timedelta(days=30)),
        "90d": ("90 days", timedelta(days=90)),
    }
)


@dataclass(frozen=True, slots=True)
class ReportPeriod:
    """From ``since`` up to ``until``; ``name`` is a length, or ``custom``."""

    name: str
    since: datetime
    until: datetime

    @property
    def step(self) -> Step:
        """Return the length of the intervals that it is shown in."""
        return Step.HOUR if self.until - self.since <= _HOURLY else Step.DAY

    @property
    def last_day(self) -> date:
        """The last day that belongs to it."""
        return (self.until - timedelta(microseconds=1)).date()

    def starts(self) -> Sequence[datetime]:
        length = HOUR if self.step is Step.HOUR else DAY
        count = -((self.since - self.until) // length)
        return [self.since + length * index for index in range(count)]

    def fields(self) -> dict[str, str]:
        """Return the fields of an address that mean this period again."""
        if self.name != "custom":
            return {"range": self.name}
        return {"from": self.since.date().isoformat(), "to": self.last_day.isoformat()}


def period(query: FormFields, now: datetime) -> ReportPeriod:
    """The period that an address asks for; raises :class:`InvalidRequest`."""
    if query.get("from") or query.get("to"):
        return _custom(query, now)
    name = query.get("range") or USUAL
    if name not in LENGTHS:
        known = ", ".join(LENGTHS)
        raise InvalidRequest(f"There is no range {name[:20]}; take one of {known}.", param="range")
    length = LENGTHS[name][1]
    unit = HOUR if length <= _HOURLY else DAY
    until = _floor(now, unit) + unit
    return ReportPeriod(name, until - length, until)


def _custom(query: FormFields, now: datetime) -> ReportPeriod:
    last = _day(query.get("to"), "to") if query.get("to") else now.astimezone(UTC)
    last = _floor(last, DAY)
    first = _day(query.get("from"), "from") if query.get("from") else last - timedelta(days=6)
    until = last + DAY
    if first >= until:
        raise InvalidRequest("The first day comes after the last one.", param="from")
    if until - first > LONGEST:
        raise InvalidRequest(f"A range has at most {LONGEST.days} days.", param="from")
    return ReportPeriod("custom", first, until)


def _day(text: str, name: str) -> datetime:
    try:
        found = date.fromisoformat(text)
    except ValueError as failure:
        raise InvalidRequest(
            f"{text[:20]} is not a day; write it like 2026-11-21.", param=name
        ) from failure
    if not _FIRST_YEAR <= found.year <= _LAST_YEAR:
        raise InvalidRequest(
            f"A day lies between {_FIRST_YEAR} and {_LAST_YEAR}, not in {found.year}.", param=name
        )
    return datetime.combine(found, datetime.min.time(), UTC)


def _floor(moment: datetime, unit: timedelta) -> datetime:
    utc = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return utc if unit == HOUR else utc.replace(hour=0)
