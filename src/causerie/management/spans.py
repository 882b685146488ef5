"""Times, grouping and filters of queries of usage."""

from __future__ import annotations

from datetime import datetime, timedelta

from causerie.accounts.people import Actor
from causerie.accounts.usage import By, Step, UsageQuery
from causerie.errors import InvalidRequest
from causerie.management.queries import Span, UsageSpan
from causerie.management.reading import moment

_USUAL = timedelta(days=30)
_LONGEST = {
    Step.HOUR: timedelta(days=92),
    Step.DAY: timedelta(days=3660),
    Step.ALL: timedelta(days=3660),
}


def between(since: str, until: str, now: datetime) -> tuple[datetime, datetime]:
    """The times that a query names, or the last 30 days. Raises :class:`InvalidRequest`."""
    end = moment(until, "until") or now
    start = moment(since, "since") or end - _USUAL
    if end <= start:
        raise InvalidRequest("`until` has to be after `since`.", param="until")
    return start, end


def project_of(actor: Actor, span_project: str) -> str | None:
    """Return the project to query: the one named, else the key's, else all."""
    return span_project or actor.project


def question(query: UsageSpan, now: datetime) -> UsageQuery:
    """Return the query of sums. Raises :class:`InvalidRequest`."""
    since, until = between(query.since, query.until, now)
    longest = _LONGEST[query.step]
    if until - since > longest:
        raise InvalidRequest(
            f"With the step `{query.step}` the time asked for is at most {longest.days} days.",
            param="since",
        )
    by = tuple(By(name) for name in query.by.split(",") if name)
    if len(set(by)) != len(by):
        raise InvalidRequest("`by` takes each name once.", param="by")
    return UsageQuery(since=since, until=until, step=query.step, by=by, **narrowed(query))


def narrowed(query: Span) -> dict[str, str | None]:
    """Return the filters in addition to the project; the rest is ``None``."""
    return {name: getattr(query, name) or None for name in ("key", "user", "model", "door")}
