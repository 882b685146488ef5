"""Sums of usage in pieces: one stretch of time after another, so that none grows large."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from causerie.accounts.accounts import Accounts
from causerie.accounts.people import Actor
from causerie.accounts.usage import By, Question, Step, UsageSum
from causerie.errors import InvalidRequest
from causerie.management.queries import Span, UsageSpan
from causerie.management.reading import moment

_USUAL = timedelta(days=30)
_LONGEST = {
    Step.HOUR: timedelta(days=92),
    Step.DAY: timedelta(days=3660),
    Step.ALL: timedelta(days=3660),
}
_PIECE = {Step.HOUR: timedelta(days=1), Step.DAY: timedelta(days=31)}


def between(since: str, until: str, now: datetime) -> tuple[datetime, datetime]:
    """The times that a query names, or the last 30 days. Raises :class:`InvalidRequest`."""
    end = moment(until, "until") or now
    start = moment(since, "since") or end - _USUAL
    if end <= start:
        raise InvalidRequest("`until` has to be after `since`.", param="until")
    return start, end


def project_of(actor: Actor, span_project: str) -> str | None:
    """Whose usage: of the project named, else of the key's, else of all."""
    return span_project or actor.project


def question(query: UsageSpan, now: datetime) -> Question:
    """What sums are asked for. Raises :class:`InvalidRequest`."""
    since, until = between(query.since, query.until, now)
    longest = _LONGEST[query.step]
    if until - since > longest:
        raise InvalidRequest(
            f"With the step `{query.step}` it is at most {longest.days} days.", param="since"
        )
    by = tuple(By(name) for name in query.by.split(",") if name)
    if len(set(by)) != len(by):
        raise InvalidRequest("Each name stands once.", param="by")
    return Question(since=since, until=until, step=query.step, by=by, **narrowed(query))


def narrowed(query: Span) -> dict[str, str | None]:
    """What the query narrows down besides the project; the rest is ``None``."""
    return {name: getattr(query, name) or None for name in ("key", "user", "model", "door")}


def pieces(question: Question) -> Iterator[Question]:
    """The question, cut at midnights where its step is shorter than its time."""
    length = _PIECE.get(question.step)
    if length is None:
        yield question
        return
    first = question.since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    cuts = [question.since]
    while (first := first + length) < question.until:
        cuts.append(first)
    for since, until in pairwise([*cuts, question.until]):
        yield replace(question, since=since, until=until)


async def sums(
    accounts: Accounts, actor: Actor, project: str | None, question: Question
) -> AsyncGenerator[Sequence[UsageSum]]:
    """The sums, a stretch of time at once; asks each time whether the actor may."""
    for each in pieces(question):
        if project is None:
            yield await accounts.usage.of_all(actor, each)
        else:
            yield await accounts.usage.of_project(actor, project, each)
