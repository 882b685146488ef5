"""Operations that look back: usage, also as CSV, single requests, and who did what."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from msgspec import UNSET

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.audit import AuditFilter
from causerie.hosted.accounts.exports import Month, request_rows, statement_rows
from causerie.hosted.accounts.reports import UsageBucket, time_buckets
from causerie.hosted.accounts.spending import SpendingReader
from causerie.hosted.accounts.usage import (
    TOKEN_CLASSES,
    By,
    RankingPeriod,
    RecordFilter,
    Step,
    UsageQuery,
    UsageSum,
)
from causerie.hosted.management import requests, views
from causerie.hosted.management.routing import Call, WithQuery, moment, route
from causerie.http.answers import Export, Rows, csv_pieces

_USUAL_SPAN = timedelta(days=30)
_LONGEST_SPAN = {
    Step.HOUR: timedelta(days=92),
    Step.DAY: timedelta(days=3660),
    Step.ALL: timedelta(days=3660),
}


def between(query: requests.Span, now: datetime) -> tuple[datetime, datetime]:
    """The times that a query names, or the last 30 days. Raises :class:`InvalidRequest`."""
    end = moment(query.until, "until") or now
    start = moment(query.since, "since") or end - _USUAL_SPAN
    if end <= start:
        raise InvalidRequest("`until` has to be after `since`.", param="until")
    return start, end


def usage_query(query: requests.UsageSpan, now: datetime) -> UsageQuery:
    """Return the query of sums. Raises :class:`InvalidRequest`."""
    since, until = between(query, now)
    longest = _LONGEST_SPAN[query.step]
    if until - since > longest:
        raise InvalidRequest(
            f"With the step `{query.step}` the time asked for is at most {longest.days} days.",
            param="since",
        )
    by = tuple(By(name) for name in query.by.split(",") if name)
    if len(set(by)) != len(by):
        raise InvalidRequest("`by` takes each name once.", param="by")
    return UsageQuery(since=since, until=until, step=query.step, by=by, **narrowed(query))


def narrowed(query: requests.Span) -> dict[str, Any]:
    """Return the filters in addition to the project; the rest is ``None``."""
    names = [name for name in ("key", "user", "model", "door") if hasattr(query, name)]
    return {name: getattr(query, name) or None for name in names}


CSV_TYPE = "text/csv; charset=utf-8; header=present"
_COUNTED = ("requests", "refused", "failed", "aborted", *TOKEN_CLASSES)


async def _usage_rows(question: UsageQuery, buckets: AsyncGenerator[UsageBucket]) -> Rows:
    counted = [views.TOKENS.get(name, name) for name in _COUNTED]
    yield [["start", *question.by, *counted, "cost", "first_token_seconds", "duration_seconds"]]
    async with aclosing(buckets):
        async for _, sums in buckets:
            yield (_csv_line(each, question) for each in sums)


def _csv_line(sum: UsageSum, question: UsageQuery) -> list[str]:
    start, group = _cursor_of(sum, question)
    return [
        start,
        *group,
        *(str(getattr(sum, name)) for name in _COUNTED),
        views.amount(sum.cost),
        "" if sum.first_token_seconds is None else f"{sum.first_token_seconds:.6f}",
        f"{sum.duration_seconds:.6f}",
    ]


_LARGEST = 2**62
_RECORD = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
Place = tuple[str, tuple[str, ...]]


@route("GET /rankings", "Models or providers by tokens, over all projects")
async def see_ranking(call: WithQuery[requests.RankingQuery]) -> views.RankingList:
    period = RankingPeriod(call.query.period)
    by = call.query.by
    found = await call.accounts.rankings.of_all(by, call.actor, period)
    return views.RankingList.of(found, by)


@route("GET /usage", "Usage and cost over time")
async def list_usage(call: WithQuery[requests.UsagePage]) -> views.UsageList:
    query = call.query
    asked = usage_query(query, call.now)
    after = views.place_of(query.cursor, tuple[str, tuple[str, ...]])
    found: list[UsageSum] = []
    project = query.project or call.actor.project
    rest = time_buckets(call.accounts.usage, call.actor, project, _after_cursor(asked, after))
    async with aclosing(rest):
        async for _, sums in rest:
            found += [sum for sum in sums if after is None or _cursor_of(sum, asked) > after]
            if len(found) > query.limit:
                break
    taken = found[: query.limit]
    more = len(found) > len(taken)
    return views.UsageList(
        data=await asyncio.to_thread(lambda: [views.UsageView.of(each) for each in taken]),
        next=views.cursor(_cursor_of(taken[-1], asked)) if more else None,
    )


@route("GET /usage.csv", "Usage and cost as CSV")
async def export_usage(call: WithQuery[requests.UsageSpan]) -> Export:
    asked = usage_query(call.query, call.now)
    project = call.query.project or call.actor.project
    buckets = time_buckets(call.accounts.usage, call.actor, project, asked)
    return Export(CSV_TYPE, "usage.csv", csv_pieces(_usage_rows(asked, buckets)))


@route("GET /statement.csv", "Statement of a month as CSV")
async def export_statement(call: WithQuery[requests.StatementQuery]) -> Export:
    month = Month.named(call.query.month, call.now)
    project = call.query.project or call.actor.project
    rows = statement_rows(call.accounts, call.actor, project, month)
    return Export(CSV_TYPE, f"statement-{month.name}.csv", csv_pieces(rows))


@route("GET /projects/{project}/spending", "Spending against the budgets of a project")
async def project_spending(call: Call, project: str) -> views.ProjectSpending:
    seen = await call.accounts.projects.see(call.actor, project)
    reader = SpendingReader(call.accounts.usage, call.actor, seen.project.id, call.now)
    found = await reader.of_project(seen.bounds.budgets)
    return views.ProjectSpending(budgets=[views.BudgetSpending.of(each) for each in found])


@route("GET /keys/{key}/spending", "Spending against the budgets of a key")
async def key_spending(call: Call, key: str) -> views.KeySpending:
    seen = await call.accounts.keys.see(call.actor, key)
    used = await call.accounts.usage.last_used(call.actor, seen.project_id)
    reader = SpendingReader(call.accounts.usage, call.actor, seen.project_id, call.now)
    found = await reader.of_owners(By.KEY, {key: seen.bounds.budgets})
    return views.KeySpending(
        last_used_at=used.get(key),
        budgets=[views.BudgetSpending.of(each) for each in found[key]],
    )


@route("GET /usage/first-token", "Time to first token")
async def list_first_tokens(call: WithQuery[requests.LatencySpan]) -> views.LatencyList:
    query = call.query
    since, until = between(query, call.now)
    by = (By(query.by),) if query.by else ()
    asked = UsageQuery(since=since, until=until, step=Step.ALL, by=by, **narrowed(query))
    project = query.project or call.actor.project
    found = await call.accounts.usage.first_tokens(call.actor, project, asked)
    found = sorted(found, key=lambda each: each.group)
    return views.LatencyList(data=[views.LatencyView.of(each, by) for each in found])


@route("GET /requests", "Single requests")
async def list_requests(call: WithQuery[requests.RequestPage]) -> views.RequestList:
    query = call.query
    before = views.place_of(query.cursor, tuple[int, str])
    if before is not None and not (0 <= before[0] < _LARGEST and _RECORD.fullmatch(before[1])):
        raise views.no_cursor()
    wanted = replace(_filter(query, call.now), before=before, limit=query.limit)
    project = query.project or call.actor.project
    found = await call.accounts.usage.requests(call.actor, project, wanted)
    last = found[-1] if len(found) == wanted.count else None
    return views.RequestList(
        data=[views.RequestView.of(each) for each in found],
        next=views.cursor((last.at, last.id)) if last is not None else None,
    )


@route("GET /requests.csv", "Single requests as CSV")
async def export_requests(call: WithQuery[requests.RequestSpan]) -> Export:
    project = call.query.project or call.actor.project
    rows = request_rows(call.accounts, call.actor, project, _filter(call.query, call.now))
    return Export(CSV_TYPE, "requests.csv", csv_pieces(rows))


def _filter(query: requests.RequestSpan, now: datetime) -> RecordFilter:
    since, until = between(query, now)
    return RecordFilter(
        since=since,
        until=until,
        status=None if query.status is UNSET else query.status,
        request_id=query.request_id or None,
        tag=query.tag or None,
        operation=query.operation or None,
        failures_only=query.failures == "true",
        **narrowed(query),
    )


@route("GET /audit", "Audit log")
async def list_audit(call: WithQuery[requests.AuditQuery]) -> views.AuditList:
    query = call.query
    before = views.place_of(query.cursor, int)
    if before is not None and not 0 <= before < _LARGEST:
        raise views.no_cursor()
    wanted = AuditFilter(
        actor=query.actor or None,
        action=query.action or None,
        subject=query.subject or None,
        kind=None if query.kind is UNSET else query.kind,
        before=before,
        limit=query.limit,
    )
    project = query.project or call.actor.project
    found = await call.accounts.projects.audit(call.actor, project, wanted)
    full = len(found) == wanted.count
    return views.AuditList(
        data=[views.viewed(views.AuditView, each) for each in found],
        next=views.cursor(found[-1].id) if full else None,
    )


def _cursor_of(sum: UsageSum, asked: UsageQuery) -> Place:
    start = "" if sum.start is None else f"{sum.start:%Y-%m-%dT%H:%M:%SZ}"
    return start, tuple(sum.group[by] for by in asked.by)


def _after_cursor(asked: UsageQuery, after: Place | None) -> UsageQuery:
    if after is None or asked.step is Step.ALL:
        return asked
    try:
        start = moment(after[0], "cursor") or asked.since
    except InvalidRequest as failure:
        raise views.no_cursor() from failure
    if start >= asked.until:
        raise views.no_cursor()
    return replace(asked, since=max(asked.since, start))
