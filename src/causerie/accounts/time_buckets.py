"""Sums of usage by time buckets: each as long as it may be without having many sums.

If a question has very many sums, nobody has to hold or make all of them at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from causerie.accounts.people import Actor
from causerie.accounts.usage import Step, UsageQuery, UsageReports, UsageSum

_UNIT = MappingProxyType({Step.HOUR: timedelta(hours=1), Step.DAY: timedelta(days=1)})
_LONGEST = 64
_FASTEST = 4  # times as long as the one before
_MANY = 1000

UsageBucket = tuple[UsageQuery, Sequence[UsageSum]]


async def time_buckets(
    usage: UsageReports, actor: Actor, project: str | None, question: UsageQuery
) -> AsyncGenerator[UsageBucket]:
    """Yield each interval as a query, and its sums; check each time that the actor may.

    Sums are those of one project, or with ``None`` of the whole service. If all time is one
    interval, there is one bucket.
    """
    since, length = question.since, 1
    while since < question.until:
        until = min(_end(since, question.step, length) or question.until, question.until)
        asked = replace(question, since=since, until=until)
        if project is None:
            sums = await usage.of_all(actor, asked)
        else:
            sums = await usage.of_project(actor, project, asked)
        yield asked, sums
        since, length = until, _next(length, len(sums))


def _end(since: datetime, step: Step, length: int) -> datetime | None:
    """So many whole intervals on."""
    unit = _UNIT.get(step)
    if unit is None:
        return None
    first = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return (first if step is Step.HOUR else first.replace(hour=0)) + unit * length


def _next(length: int, sums: int) -> int:
    """So that there may be many, and not more."""
    return max(min(length * _MANY // max(sums, 1), length * _FASTEST, _LONGEST), 1)
