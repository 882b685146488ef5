"""The page of usage: what was used over time, by what and whom, and the same as CSV."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from decimal import Decimal
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from causerie.errors import Forbidden
from causerie.hosted.accounts.bounds import BudgetPeriod
from causerie.hosted.accounts.keys import ApiKey
from causerie.hosted.accounts.people import Project, User
from causerie.hosted.accounts.reports import Month, UsageBucket, statement_rows, time_buckets
from causerie.hosted.accounts.usage import (
    PERCENTILES,
    TIMED,
    TOKEN_CLASSES,
    By,
    FirstTokens,
    Step,
    UsageQuery,
    UsageSum,
)
from causerie.hosted.console.charts import Chart, lines, stacked
from causerie.hosted.console.fields import Column, ReportPeriod, page_of, period
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.words import WORDS
from causerie.http.answers import Export, Rows, csv_pieces


class DisplayNames:
    """Names by id; equal names are told apart by their ids."""

    def __init__(self, known: Mapping[str, str], none: str = "none") -> None:
        self.known = known
        self._name_of_empty_id = none
        self._id_count_by_name = Counter(known.values())

    def of(self, id: str) -> str:
        if not id:
            return self._name_of_empty_id
        name = self.known.get(id, id)
        return f"{name} ({id})" if self._id_count_by_name[name] > 1 else name


async def names_of(context: RequestContext, project: str | None, by: By) -> DisplayNames:
    accounts, actor = context.accounts, context.actor
    found: Sequence[Project | User | ApiKey] = ()
    # The numbers may be seen by some who may not see whose they are.
    with suppress(Forbidden):
        if by is By.PROJECT:
            found = await accounts.projects.every(actor)
        elif by is By.USER and project is None:
            found = await accounts.users.every(actor)
        elif by is By.USER and project is not None:
            found = [each.user for each in await accounts.projects.members(actor, project)]
        elif by is By.KEY and project is not None:
            found = await accounts.keys.of(actor, project)
    none = WORDS["usage"]["none"].get(by, "not known")
    return DisplayNames({one.id: one.name for one in found}, none)


_COUNTED = ("requests", "refused", "failed", "aborted", *TOKEN_CLASSES)
_MEANS = ("first_token_seconds", "duration_seconds")
_LONGEST_NAME = 60


_TITLES: Mapping[By, str] = WORDS["usage"]["titles"]
_METRICS: Mapping[str, Callable[[UsageSum], float]] = {
    "cost": lambda each: float(each.cost),
    "tokens": lambda each: each.prompt + each.completion,
    "requests": lambda each: each.requests,
    "errors": lambda each: each.refused + each.failed,
}


class UsageForm(Struct, frozen=True):
    period: ReportPeriod
    metric: str
    by: By
    model: str
    user: str = ""

    def question(self, step: Step, *by: By) -> UsageQuery:
        since, until = self.period.since, self.period.until
        return UsageQuery(
            since, until, step, by=by, model=self.model or None, user=self.user or None
        )

    def requests_of(self, group: str = "", *, failures: bool = False) -> str:
        """Return the query of the activity page for the requests of a group, or of all groups."""
        narrowed = ((self.by, group), ("model", self.model), ("user", self.user))
        fields = {str(name): value for name, value in narrowed if value}
        fields |= {"failures": "yes"} if failures else {}
        return "?" + urlencode(self.period.fields() | fields)

    @property
    def fields(self) -> Mapping[str, str]:
        fields = {"metric": self.metric, "by": str(self.by)}
        narrowed = {"model": self.model, "user": self.user}
        return fields | {name: value for name, value in narrowed.items() if value}

    def address(self, **changes: str) -> str:
        when = {} if {"range", "from"} & changes.keys() else self.period.fields()
        return "?" + urlencode({**when, **self.fields, **changes})

    def of_day(self, start: datetime) -> str:
        """Return the query of this page for one day; empty if the page shows hours already."""
        day = start.date().isoformat()
        return "" if self.period.step is Step.HOUR else self.address(**{"from": day, "to": day})


class UsageRow(Struct, frozen=True):
    id: str
    name: str
    sum: UsageSum
    times: Sequence[float] = ()
    """Percentiles of the time to the first token; empty if there are none."""

    @property
    def first_token(self) -> float | None:
        """Return the median time to the first token, or the mean where no median is known."""
        return self.times[0] if self.times else self.sum.first_token_seconds


_SUMS = ("requests", *TOKEN_CLASSES, "cost")
_COLUMNS: Mapping[str, Column] = {
    "name": "name",
    "errors": lambda row: row.sum.refused + row.sum.failed,
    "ttft": "first_token",
    "p90": lambda row: row.times[1] if row.times else None,
    "p99": lambda row: row.times[2] if row.times else None,
    **{name: f"sum.{name}" for name in _SUMS},
}


async def show(context: RequestContext) -> None:
    reader, project = await _build_usage_reader(context), context.scope
    wish, names = reader.wish, reader.names
    now = context.services.clock()
    groups = await reader.sums(wish.question(Step.ALL, wish.by))
    # Of a whole service the times of many keys are added up: the page does not wait for them.
    timed = project is not None or context.query.get("times") == "yes"
    people = await names_of(context, project, By.USER) if wish.user else None
    times = await reader.percentiles() if timed and wish.by in TIMED else {}
    rows = await asyncio.to_thread(_build_usage_rows, groups, wish, names, times)
    kept = {**wish.period.fields(), **wish.fields}
    if timed and project is None:
        kept["times"] = "yes"
    earlier = await reader.earlier()
    page = page_of(rows, context.query, lambda row: (row.name,), _COLUMNS, kept)
    await context.send_page(
        "usage.html",
        wish=wish,
        metrics=list(_METRICS),
        person=people.of(wish.user) if people is not None else "",
        bys={by: _TITLES[by] for by in _list_groupings(project is None, person=bool(wish.user))},
        total=await asyncio.to_thread(total_usage, groups),
        before=total_usage(earlier),
        chart=await reader.chart(earlier),
        speed=await reader.speed() if timed else None,
        has_percentiles=bool(times),
        page=page,
        statement=f"{context.exchange.path.removesuffix('usage')}statement.csv",
        month=Month.named("", now).name,
        this_month=f"{now:%Y-%m}",
        hourly=wish.period.step is Step.HOUR,
    )


async def download(context: RequestContext) -> None:
    reader = await _build_usage_reader(context)
    period = reader.wish.period
    days = f"{period.since.date()}-to-{period.last.date()}"
    name = f"usage-{_build_scope_slug(context)}-{days}-by-{reader.wish.by}.csv"
    await context.save(Export("text/csv; charset=utf-8", name, csv_pieces(reader.table())))


async def download_statement(context: RequestContext) -> None:
    """Send as CSV the usage statement of ``?month=``, for the project or the whole service."""
    found = Month.named(context.query.get("month"), context.services.clock())
    accounts, actor = context.accounts, context.actor
    rows = statement_rows(accounts.usage, accounts.projects, actor, context.scope, found)
    name = f"statement-{_build_scope_slug(context)}-{found.name}.csv"
    await context.save(Export("text/csv; charset=utf-8", name, csv_pieces(rows)))


async def _build_usage_reader(context: RequestContext) -> _Reader:
    query, project, user = context.query, context.scope, context.query.get("user")[:100]
    wish = UsageForm(
        period(query, context.services.clock()),
        query.one_of("metric", _METRICS),
        By(query.one_of("by", _list_groupings(project is None, person=bool(user)))),
        query.get("model")[:300],
        user,
    )
    return _Reader(context, wish, await names_of(context, project, wish.by))


class _Reader(Struct, frozen=True):
    context: RequestContext
    wish: UsageForm
    names: DisplayNames

    async def sums(self, question: UsageQuery) -> Sequence[UsageSum]:
        usage, actor = self.context.accounts.usage, self.context.actor
        return await usage.sums(actor, self.context.scope, question)

    async def first_tokens(self, question: UsageQuery) -> Sequence[FirstTokens]:
        usage, actor = self.context.accounts.usage, self.context.actor
        return await usage.first_tokens(actor, self.context.scope, question)

    def over_time(self) -> AsyncGenerator[UsageBucket]:
        usage, actor = self.context.accounts.usage, self.context.actor
        question = self.wish.question(self.wish.period.step, self.wish.by)
        return time_buckets(usage, actor, self.context.scope, question)

    async def table(self) -> Rows:
        wish, names = self.wish, self.names
        ranks = [f"first_token_p{share * 100:.0f}" for share in PERCENTILES]
        yield [["start", wish.by, "name", *_COUNTED, "cost", *_MEANS, *ranks]]
        async with aclosing(self.over_time()) as found:
            async for question, sums in found:
                firsts = await self.first_tokens(question) if wish.by in TIMED else ()
                yield _format_csv_cell_rows(sums, firsts, wish, names)

    async def earlier(self) -> Sequence[UsageSum]:
        """Return a sum for each day or hour of the period before."""
        earlier = self.wish.period.earlier
        return await self.sums(replace(self.wish, period=earlier).question(earlier.step))

    async def chart(self, earlier: Sequence[UsageSum]) -> Chart:
        found: dict[str, dict[datetime, float]] = {}
        async with aclosing(self.over_time()) as pieces:
            async for _, sums in pieces:
                await asyncio.to_thread(_add_sums_to_series, found, sums, self.wish, self.names)
        starts, whole = self.wish.period.starts(), self.wish.metric != "cost"
        before = along(self.wish.period.earlier, earlier, _METRICS[self.wish.metric])
        return await asyncio.to_thread(stacked, starts, found, whole=whole, before=before)

    async def speed(self) -> Chart:
        found = await self.first_tokens(self.wish.question(self.wish.period.step))
        names = ("median", "90th percentile", "99th percentile")
        values = {
            name: {each.start: each.times[rank] for each in found if each.start is not None}
            for rank, name in enumerate(names)
        }
        return lines(self.wish.period.starts(), values)

    async def percentiles(self) -> Mapping[str, Sequence[float]]:
        """Return the percentiles of the time to the first token by the ids of groups."""
        found = await self.first_tokens(self.wish.question(Step.ALL, self.wish.by))
        return {each.group: each.times for each in found}


def _list_groupings(whole_service: bool, *, person: bool = False) -> Sequence[By]:
    ways = (By.MODEL, By.PROJECT if whole_service else By.KEY, By.USER)
    return (*ways, By.TAG) if person else (*ways, By.PROVIDER, By.APP, By.TAG)


def along(
    period: ReportPeriod, sums: Iterable[UsageSum], value: Callable[[UsageSum], float]
) -> Sequence[float]:
    """Return one figure for each day or hour of a period; 0 where there is no sum."""
    found = {each.start: value(each) for each in sums}
    return [found.get(start, 0.0) for start in period.starts()]


def total_usage(sums: Iterable[UsageSum]) -> UsageSum:
    """Return the sum of several sums, with weighted means."""
    sums = [*sums]
    counted = {name: sum(getattr(each, name) for each in sums) for name in _COUNTED}
    requests, first_tokens = counted["requests"], sum(each.first_tokens for each in sums)
    waited = sum((each.first_token_seconds or 0.0) * each.first_tokens for each in sums)
    lasted = sum(each.duration_seconds * each.requests for each in sums)
    return UsageSum(
        *(None, {}),
        **counted,
        cost=sum((each.cost for each in sums), Decimal(0)),
        first_token_seconds=waited / first_tokens if first_tokens else None,
        duration_seconds=lasted / requests if requests else 0.0,
        first_tokens=first_tokens,
    )


async def usage_since(context: RequestContext, project: str | None, since: datetime) -> UsageSum:
    """Return the usage of a project, or of all, from the day of ``since`` up to now."""
    day, usage = BudgetPeriod.DAY.start, context.accounts.usage
    until = day(context.services.clock()) + timedelta(days=1)
    question = UsageQuery(day(since), until, Step.ALL)
    return total_usage(await usage.sums(context.actor, project, question))


def _add_sums_to_series(
    values_by_name: dict[str, dict[datetime, float]],
    sums: Iterable[UsageSum],
    form: UsageForm,
    names: DisplayNames,
) -> None:
    value = _METRICS[form.metric]
    for each in sums:
        if each.start is not None and (amount := value(each)):
            place = values_by_name.setdefault(names.of(each.group[form.by]), {})
            place[each.start] = place.get(each.start, 0.0) + amount


def _build_usage_rows(
    sums: Sequence[UsageSum],
    form: UsageForm,
    names: DisplayNames,
    percentiles: Mapping[str, Sequence[float]],
) -> Sequence[UsageRow]:
    by_id = [(each.group[form.by], each) for each in sums]
    rows = [UsageRow(id, names.of(id), each, percentiles.get(id, ())) for id, each in by_id]
    return sorted(rows, key=lambda row: (-_METRICS[form.metric](row.sum), row.name))


def _build_scope_slug(context: RequestContext) -> str:
    whose = "all" if context.view is None else context.view.project.name
    return "-".join(re.findall(r"[a-z0-9]+", whose.lower()))[:_LONGEST_NAME] or "project"


def _format_csv_cell_rows(
    sums: Sequence[UsageSum], latencies: Sequence[FirstTokens], form: UsageForm, names: DisplayNames
) -> Iterator[Sequence[str]]:
    times = {(each.start, each.group): each.times for each in latencies}
    for each in sums:
        id, first = each.group[form.by], each.first_token_seconds
        percentiles = [f"{time:.6f}" for time in times.get((each.start, id), ())]
        yield [
            each.start.isoformat() if each.start is not None else "",
            *(id, names.of(id)),
            *(str(getattr(each, name)) for name in _COUNTED),
            f"{each.cost:f}",
            "" if first is None else f"{first:.6f}",
            f"{each.duration_seconds:.6f}",
            *(percentiles or [""] * len(PERCENTILES)),
        ]
