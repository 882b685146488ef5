"""Usage records and their sums by time, written in one transaction, and the queries of both."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import add, attrgetter, itemgetter
from typing import Any

import msgspec
from msgspec import Struct, structs
from sqlalchemy import (
    ColumnElement,
    RowMapping,
    Select,
    Table,
    and_,
    func,
    literal,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.errors import ConstraintNotKept
from causerie.hosted.accounts.bounds import BudgetPeriod
from causerie.hosted.accounts.usage import (
    LABELS,
    OWN_PROVIDER,
    TOKEN_CLASSES,
    By,
    ChargedQuery,
    ChargedSum,
    FirstTokens,
    RecordFilter,
    Spent,
    Step,
    TokenSum,
    UsageQuery,
    UsageSum,
    Used,
    provider_of,
)
from causerie.hosted.store.database import Database
from causerie.hosted.store.tables import (
    RENAMED,
    microseconds,
    moment_of,
    usage_apps,
    usage_charged,
    usage_daily,
    usage_first_token,
    usage_hourly,
    usage_records,
    usage_tags,
    usage_targets,
)
from causerie.metering.ledger import CLIENT_GONE, INTERRUPTED, UsageRecord

_TO_DOUBLE = 4  # buckets to a doubling of the time: a percentile is right to within a tenth


def bucket_of(microseconds: int) -> int:
    """Return the histogram bucket of a duration; all hours and processes have the same scale."""
    return max(math.ceil(math.log2(microseconds) * _TO_DOUBLE), 0) if microseconds > 0 else 0


def upper_bound(bucket: int) -> float:
    """Return the longest duration of a histogram bucket, in microseconds."""
    return math.pow(2.0, bucket / _TO_DOUBLE)


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """Return the duration in microseconds that ``share`` (0 to 1) of the counts stay within.

    It is interpolated within its bucket; ``None`` without counts.
    """
    total = sum(counts.values())
    if total == 0:
        return None
    rank = share * total
    below = 0
    for bucket in sorted(counts):
        count = counts[bucket]
        if below + count >= rank:
            low = upper_bound(bucket - 1) if bucket else 0.0
            inside = (rank - below) / count if count else 0.0
            return low + (upper_bound(bucket) - low) * inside
        below += count
    return upper_bound(max(counts))


HOUR = 3_600_000_000  # microseconds
DAY = 24 * HOUR

_COLUMNS = [(RENAMED.get(name, name), name) for name in UsageRecord.__struct_fields__]
_SUMMED = (
    *("requests", "refused", "failed", "aborted", "prompt", "cached", "completion", "reasoning"),
    *("cost", "first_token_us", "first_tokens", "duration_us", "charged", "written"),
)
_SUMS = (
    *((HOUR, table) for table in (usage_hourly, usage_apps, usage_tags, usage_targets)),
    *((DAY, table) for table in (usage_daily, usage_charged)),
)
_UNCHOSEN = frozenset({"model_not_found", "model_not_allowed"})

_Change = tuple[UsageRecord, int]  # a request, and 1 to add it or -1 to subtract it
_place = attrgetter("key", "user", "model", "door", "app", "tag", "served_by", "charged")
_PLACE = ("project_id", "start", "key_id", "user_id", "model", "door", "app", "tag", "served_by")


def _build_record_sums(record: UsageRecord, multiplier: int) -> tuple[int, ...]:
    # In the order of ``_SUMMED``, and the units.
    status, first = record.status, record.first_token_us
    sums = (
        1,
        int(400 <= status < 500 and status != CLIENT_GONE),
        int(status >= 500),
        int(status == CLIENT_GONE),
        record.prompt,
        record.cached,
        record.completion,
        record.reasoning,
        record.cost,
        first or 0,
        int(first is not None),
        record.duration_us,
        record.prompt + record.completion if record.charged else 0,
        record.written,
        record.units,
    )
    return sums if multiplier == 1 else tuple(multiplier * each for each in sums)


class SqlUsage:
    """Stores the ledger's usage records in the database, and adds them to the sums.

    A record whose id is stored changes nothing, except that a failure replaces a success: the
    answer to the first commit was lost, and the client was told of the failure. Sums are updated in
    the same order by everybody, so that processes wait for each other instead of deadlocking.

    Statements are compiled once, and rows are tuples as the driver takes them: most of the cost of
    a record would be SQLAlchemy's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        dialect = database.dialect
        self._record_insert_sql = str(usage_records.insert().compile(dialect=dialect))
        self._sums_columns_and_upsert_sql = [
            (_Columns.of(table, span), str(adding(database, table).compile(dialect=dialect)))
            for span, table in _SUMS
        ]
        self._first_token_sql = str(adding(database, usage_first_token).compile(dialect=dialect))

    async def append(self, records: Sequence[UsageRecord]) -> None:
        """Store new records and add them to the sums; raise ``StoreUnavailable``."""
        unique = {record.id: record for record in records}
        try:
            async with self._database.writing() as connection:
                await self._add_records(connection, [(each, 1) for each in unique.values()])
        except (IntegrityError, sqlite3.IntegrityError):  # some are stored
            async with self._database.writing() as connection:
                of = usage_records.c
                asked = select(of.id, of.status, of.code, of.cost).where(of.id.in_(list(unique)))
                found = await connection.execute(asked)
                stored = {id: (status, code, cost) for id, status, code, cost in found}
                await self._update_successes_to_failures_and_sums(connection, unique, stored)
                new = [each for id, each in unique.items() if id not in stored]
                await self._add_records(connection, [(each, 1) for each in new])

    async def _update_successes_to_failures_and_sums(
        self,
        connection: AsyncConnection,
        records_by_id: Mapping[str, UsageRecord],
        stored_outcomes_by_id: Mapping[str, tuple[int, str | None, int]],
    ) -> None:
        changes: list[_Change] = []
        for id, (status, code, cost) in stored_outcomes_by_id.items():
            each = records_by_id[id]
            # An interrupted request is only what was written when it began.
            if each.status < 500 or each.code == INTERRUPTED or status >= 500:
                continue
            before = structs.replace(each, status=status, code=code, cost=cost)
            changes += [(before, -1), (each, 1)]
            corrected = ("status", "code", "reason", "param", "cost")
            values = {name: getattr(each, name) for name in corrected}
            await connection.execute(
                update(usage_records).where(usage_records.c.id == id).values(values)
            )
        await self._add_to_sums(connection, changes)

    async def _add_records(self, connection: AsyncConnection, changes: Sequence[_Change]) -> None:
        if changes:
            rows = [self._encode_record_row(record) for record, _ in changes]
            await self._execute_many(connection, self._record_insert_sql, rows)
            await self._add_to_sums(connection, changes)

    def _encode_record_row(self, record: UsageRecord) -> tuple[Any, ...]:
        row = list(_values(record))
        if self._database.sqlite:
            row[_ID] = record.id.replace("-", "")
        row[_TRIED] = _json(record.tried).decode() if record.tried else "[]"
        return tuple(row)

    async def _add_to_sums(self, connection: AsyncConnection, changes: Sequence[_Change]) -> None:
        sums = _sum_by_dimensions(changes)
        for columns, statement in self._sums_columns_and_upsert_sql:
            if rows := _aggregate_into_row_tuples(sums, columns):
                await self._execute_many(connection, statement, rows)
        if first := _build_first_token_bucket_row_tuples(changes):
            await self._execute_many(connection, self._first_token_sql, first)

    async def _execute_many(
        self, connection: AsyncConnection, statement: str, rows: Sequence[tuple[Any, ...]]
    ) -> None:
        if not self._database.sqlite:
            await connection.exec_driver_sql(statement, rows)
            return
        # One turn of the driver's thread; a cursor of SQLAlchemy's takes three.
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        await driver.executemany(statement, rows)


_FIELD_OF = dict(_COLUMNS)
_NAMES = [column.name for column in usage_records.columns]
_values = attrgetter(*(_FIELD_OF[name] for name in _NAMES))
_ID, _TRIED = _NAMES.index("id"), _NAMES.index("tried")
_json = msgspec.json.Encoder().encode


def _sum_by_dimensions(changes: Iterable[_Change]) -> Mapping[tuple[Any, ...], Sequence[int]]:
    sums: dict[tuple[Any, ...], Sequence[int]] = {}
    for each, times in changes:
        if each.code in _UNCHOSEN:  # a client's words are no place of a sum
            each = structs.replace(each, model="")
        place = (each.project, each.at - each.at % HOUR, *_place(each))
        more, known = _build_record_sums(each, times), sums.get(place)
        sums[place] = more if known is None else [*map(add, known, more)]
    return sums


class _Columns(Struct, frozen=True):
    """Picks the values for one table of usage sums from full rows, in the order of its columns."""

    span: int
    places: Callable[[tuple[Any, ...]], tuple[Any, ...]]  # without the project and the start
    sums: Callable[[Sequence[int]], tuple[int, ...]]
    charged: bool  # of charged requests alone

    @staticmethod
    def of(table: Table, span: int) -> _Columns:
        places = [_PLACE.index(column.name) for column in list(table.primary_key)[2:]]
        named = [column.name for column in table.columns if not column.primary_key]
        sums = [(*_SUMMED, "units").index(name) for name in named]
        return _Columns(span, itemgetter(*places), itemgetter(*sums), table is usage_charged)


def _aggregate_into_row_tuples(
    sums_by_dimensions: Mapping[tuple[Any, ...], Sequence[int]], columns: _Columns
) -> list[tuple[Any, ...]]:
    rows: dict[tuple[Any, ...], Sequence[int]] = {}
    for place, one in sums_by_dimensions.items():
        project, start, *_, charged = place
        if columns.charged and not charged:
            continue
        at = (project, start - start % columns.span, *columns.places(place))
        values = columns.sums(one)
        known = rows.get(at)
        rows[at] = values if known is None else [*map(add, known, values)]
    return [(*at, *rows[at]) for at in sorted(rows)]


def _build_first_token_bucket_row_tuples(changes: Iterable[_Change]) -> list[tuple[Any, ...]]:
    counts: dict[tuple[Any, ...], int] = {}
    for each, times in changes:
        if each.first_token_us is not None:
            start = each.at - each.at % HOUR
            bucket = bucket_of(each.first_token_us)
            place = (each.project, start, each.model, each.key, each.user, bucket)
            counts[place] = counts.get(place, 0) + times
    return [(*place, counts[place]) for place in sorted(counts)]


def adding(database: Database, table: Table) -> Any:
    """Return the statement that inserts a row, or adds its sums to the row of the same key."""
    statement = (sqlite.insert if database.sqlite else postgresql.insert)(table)
    summed = [column.name for column in table.columns if not column.primary_key]
    return statement.on_conflict_do_update(
        index_elements=[column.name for column in table.primary_key],
        set_={name: table.c[name] + statement.excluded[name] for name in summed},
    )


_LABELLED = {By.APP: usage_apps, By.TAG: usage_tags, By.PROVIDER: usage_targets}
_SECOND = 1_000_000
_BEGINNING = moment_of(0)


@dataclass(eq=False)
class SqlUsageReader:
    """Reads usage: sums sorted by start and then group, records newest first.

    ``used`` and ``spent`` count from a midnight UTC. ``used`` is by user, project or key; ``spent``
    is that of an owner of budgets, with an empty ``model`` for all models.
    """

    _database: Database

    async def sums(self, question: UsageQuery) -> Sequence[UsageSum]:
        rows = await self._database.rows(sums_query(question))
        return await asyncio.to_thread(_build_usage_sums, rows, question)  # they may be many

    async def used(self, by: By, since: datetime, project: str | None = None) -> Mapping[str, Used]:
        table = usage_daily
        group = table.c[_column_name(by)].label("name")
        latest = func.max(table.c.start, type_=table.c.start.type).label("start")
        query = select(group, func.sum(table.c.cost).label("cost"), latest)
        query = query.where(table.c.start >= microseconds(since)).group_by(group)
        rows = await self._database.rows(
            query if project is None else query.where(table.c.project_id == project)
        )
        return {row["name"]: Used(row["cost"], moment_of(row["start"])) for row in rows}

    async def first_tokens(
        self, question: UsageQuery, shares: Sequence[float]
    ) -> Sequence[FirstTokens]:
        rows = await self._database.rows(first_token_query(question))
        return await asyncio.to_thread(_compute_first_token_percentiles, rows, question, shares)

    async def tokens(self, question: UsageQuery) -> Sequence[TokenSum]:
        query = sums_query(question, ("requests", "prompt", "completion"))
        rows = await self._database.rows(query)
        return await asyncio.to_thread(_build_token_totals, rows, question)

    async def charged(self, question: ChargedQuery) -> Sequence[ChargedSum]:
        rows = await self._database.rows(charged_query(question))
        return await asyncio.to_thread(_build_charged_sum_of_each_row, rows)

    async def records(self, filter: RecordFilter) -> Sequence[UsageRecord]:
        rows = await self._database.rows(records_query(filter))
        return await asyncio.to_thread(
            lambda: [UsageRecord(**{name: row[each] for each, name in _COLUMNS}) for row in rows]
        )

    async def charged_failures(self, project: str, since: datetime, suffix: str) -> int:
        """Count a project's failed but charged requests since a time, for models of a suffix."""
        # As :attr:`UsageRecord.charged` says it, of records in the index of failures.
        of = usage_records.c
        delivered = and_(of.stream, of.first_token_us.is_not(None))
        query = select(func.count().label("requests")).where(
            of.project_id == project,
            of.at >= microseconds(since),
            text("status >= 400"),
            of.status != CLIENT_GONE,
            or_(
                and_(of.completion > 0, delivered),
                and_(of.prompt + of.completion > 0, of.code == ConstraintNotKept.code),
            ),
            of.model.endswith(suffix, autoescape=True),
        )
        (row,) = await self._database.rows(query)
        return int(row["requests"])

    async def spent(self, owner: str, model: str, since: datetime) -> Spent:
        (row,) = await self._database.rows(spent_query(owner, model, since))
        return Spent(int(row["cost"] or 0), int(row["tokens"] or 0))

    async def last_used(self, project: str) -> Mapping[str, datetime]:
        rows = await self._database.rows(last_used_query(project))
        return {row["key_id"]: moment_of(row["at"]) for row in rows}


def last_used_query(project: str) -> Select[Any]:
    """Select the time of each key's last request, or its hour if its records are gone."""
    hourly, records = usage_hourly.c, usage_records.c
    latest = func.max(hourly.start, type_=hourly.start.type).label("hour")
    used = select(hourly.key_id, latest).where(hourly.project_id == project)
    hours = used.group_by(hourly.key_id).subquery()
    exactly = select(func.max(records.at, type_=records.at.type)).where(
        records.key_id == hours.c.key_id, records.project_id == project
    )
    at = func.coalesce(exactly.scalar_subquery(), hours.c.hour).label("at")
    return select(hours.c.key_id, at)


def charged_query(question: ChargedQuery) -> Select[Any]:
    """Select charged sums by project, tag, model and target, from where the last page ended."""
    table = usage_charged
    places = [table.c[name] for name in ("project_id", "tag", "model", "served_by")]
    sums = [func.sum(column).label(column.name) for column in table.c if not column.primary_key]
    since, until = microseconds(question.since), microseconds(question.until)
    query = select(*places, *sums).where(table.c.start >= since, table.c.start < until)
    if question.project is not None:
        query = query.where(table.c.project_id == question.project)
    if question.after is not None:
        query = query.where(tuple_(*places) > question.after)
    return query.group_by(*places).order_by(*places).limit(question.limit)


def sums_query(question: UsageQuery, names: Sequence[str] = _SUMMED) -> Select[Any]:
    """Select usage sums from a label's table, else by days if all days are whole, else by hours."""
    midnights = (BudgetPeriod.DAY.start(each) == each for each in (question.since, question.until))
    days = question.step is Step.DAY or all(midnights)
    table = usage_daily if days and question.step is not Step.HOUR else usage_hourly
    for label in LABELS.keys() & set(question.by):
        table = _LABELLED[label]
    groups: list[ColumnElement[Any]] = [table.c[_column_name(by)] for by in question.by]
    start = _get_hour_or_day_start_column(table, question).label("start")
    places = groups if question.step is Step.ALL else [start, *groups]
    sums = [func.sum(table.c[name]).label(name) for name in names]
    span = DAY if table is usage_daily or question.step is Step.DAY else HOUR
    query = select(*places, *sums).where(*_start_time_conditions(table, question, span))
    return query.where(*_build_filter_conditions(table, question)).group_by(*places)


def first_token_query(question: UsageQuery) -> Select[Any]:
    """Select first-token histograms: start (0 for :attr:`Step.ALL`), group, bucket, requests."""
    table = usage_first_token
    starts = [] if question.step is Step.ALL else [_get_hour_or_day_start_column(table, question)]
    groups: list[ColumnElement[Any]] = [table.c[_column_name(by)] for by in question.by]
    asked: list[ColumnElement[Any]] = [*(starts or [literal(0)]), *(groups or [literal("")])]
    start, group = (each.label(name) for each, name in zip(asked, ("start", "group"), strict=True))
    query = select(start, group, table.c.bucket, func.sum(table.c.requests).label("requests"))
    query = query.where(
        *_start_time_conditions(table, question, HOUR), *_build_filter_conditions(table, question)
    )
    return query.group_by(*starts, *groups, table.c.bucket)


def records_query(filter: RecordFilter) -> Select[Any]:
    """Select matching usage records, newest first, from where the last page ended."""
    table = usage_records
    query = select(table).where(
        table.c.at >= microseconds(filter.since), table.c.at < microseconds(filter.until)
    )
    query = query.where(*_build_filter_conditions(table, filter, indexed=filter.request_id is None))
    for name in ("status", "request_id", "tag", "operation"):
        if (wanted := getattr(filter, name)) is not None:
            query = query.where(table.c[name] == wanted)
    if filter.failures_only or (filter.status or 0) >= 400:
        query = query.where(text("status >= 400"))  # as the index of failures says it
    if filter.before is not None:
        at, id = filter.before
        query = query.where(table.c.at <= at, tuple_(table.c.at, table.c.id) < (at, id))
    return query.order_by(table.c.at.desc(), table.c.id.desc()).limit(filter.count)


def spent_query(owner: str, model: str, since: datetime) -> Select[Any]:
    """Select the cost and charged tokens of an owner of budgets since a time.

    Owners are a key, a user, a member (``PROJECT/USER``), a project, a tag and a provider.
    """
    kind, _, id = owner.partition(":")
    table = {"tag": usage_tags, "provider": usage_targets}.get(kind, usage_daily)
    if kind == "tag":
        owned = table.c.tag == id
    elif kind == "provider" and id == OWN_PROVIDER:
        owned = and_(table.c.served_by != "", table.c.served_by.not_like("%/%"))
    elif kind == "provider":
        owned = table.c.served_by.startswith(f"{id}/", autoescape=True)
    elif kind == "member":
        project, _, user = id.partition("/")
        owned = and_(table.c.project_id == project, table.c.user_id == user)
    else:
        owned = table.c[f"{kind}_id"] == id
    query = select(
        func.sum(table.c.cost, type_=table.c.requests.type).label("cost"),
        func.sum(table.c.charged).label("tokens"),
    ).where(owned, table.c.start >= microseconds(since))
    if model.endswith("*"):  # as limits and budgets cover models
        return query.where(table.c.model.startswith(model[:-1], autoescape=True))
    return query.where(table.c.model == model) if model else query


def _column_name(dimension: By) -> str:
    return RENAMED.get(dimension, dimension.value)


def _get_hour_or_day_start_column(table: Table, query: UsageQuery) -> ColumnElement[int]:
    if query.step is Step.DAY and table is not usage_daily:
        return table.c.start - table.c.start % DAY
    return table.c.start


def _start_time_conditions(
    table: Table, query: UsageQuery, rounding_us: int
) -> list[ColumnElement[bool]]:
    since = microseconds(query.since)
    return [table.c.start >= since - since % rounding_us, table.c.start < microseconds(query.until)]


def _build_filter_conditions(
    table: Table, usage_filter: UsageQuery | RecordFilter, *, indexed: bool = True
) -> list[ColumnElement[bool]]:
    # ``indexed`` false keeps the database from searching by these columns: a request id is rare,
    # and a project may have all the requests that there are.
    return [
        (table.c[_column_name(by)] if indexed else table.c[_column_name(by)].concat("")) == value
        for by in By
        if by not in LABELS and (value := getattr(usage_filter, by.value)) is not None
    ]


def _build_usage_sums(rows: Iterable[RowMapping], query: UsageQuery) -> Sequence[UsageSum]:
    # Without a group there is a row even where there is nothing to add up.
    found: Sequence[Mapping[str, Any]] = [dict(row) for row in rows if row["requests"] is not None]
    if By.PROVIDER in query.by:
        found = _merge_target_rows_by_provider(found, query)
    sums = [_build_usage_sum(row, query) for row in found]
    # Not by the database, which may sort text as some language does; cursors do not.
    return sorted(sums, key=lambda sum: (sum.start or _BEGINNING, *sum.group.values()))


def _merge_target_rows_by_provider(
    rows: Iterable[Mapping[str, Any]], query: UsageQuery
) -> Sequence[Mapping[str, Any]]:
    # Rows are by target: of one provider there are as many as it has models that were asked.
    starts = () if query.step is Step.ALL else ("start",)
    places = [*starts, *map(_column_name, query.by)]
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        each = {**row, "served_by": provider_of(row["served_by"])}
        place = tuple(each[name] for name in places)
        so_far = found.setdefault(place, each)
        if so_far is not each:
            for name in _SUMMED:
                so_far[name] += each[name]
    return list(found.values())


def _build_token_totals(rows: Iterable[RowMapping], query: UsageQuery) -> Sequence[TokenSum]:
    group, whole = itemgetter(*map(_column_name, query.by)), query.step is Step.ALL
    return [
        TokenSum(
            None if whole else moment_of(row["start"]),
            group(row),
            int(row["prompt"] + row["completion"]),
            int(row["requests"]),
        )
        for row in rows
    ]


def _build_charged_sum_of_each_row(rows: Iterable[RowMapping]) -> Sequence[ChargedSum]:
    counts = ("requests", *TOKEN_CLASSES, "units")
    return [ChargedSum(**{**row, **{name: int(row[name]) for name in counts}}) for row in rows]


def _compute_first_token_percentiles(
    rows: Sequence[RowMapping], query: UsageQuery, shares: Sequence[float]
) -> Sequence[FirstTokens]:
    counts: dict[tuple[int, str], dict[int, int]] = {}
    for row in rows:
        counts.setdefault((row["start"], row["group"]), {})[row["bucket"]] = int(row["requests"])
    return [
        FirstTokens(
            None if query.step is Step.ALL else moment_of(start),
            group,
            tuple((percentile(each, share) or 0.0) / _SECOND for share in shares),
        )
        for (start, group), each in sorted(counts.items(), key=lambda pair: pair[0][0])
    ]


def _build_usage_sum(row: Mapping[str, Any], query: UsageQuery) -> UsageSum:
    requests, first_tokens = int(row["requests"]), int(row["first_tokens"])
    counted = ("refused", "failed", "aborted", *TOKEN_CLASSES)
    return UsageSum(
        start=None if query.step is Step.ALL else moment_of(row["start"]),
        group={by: row[_column_name(by)] for by in query.by},
        requests=requests,
        cost=row["cost"],
        first_token_seconds=(
            int(row["first_token_us"]) / first_tokens / _SECOND if first_tokens else None
        ),
        duration_seconds=int(row["duration_us"]) / requests / _SECOND,
        first_tokens=first_tokens,
        charged=int(row["charged"]),
        **{name: int(row[name]) for name in counted},
    )
