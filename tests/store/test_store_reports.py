"""Questions about usage: what the records add up to, by index and never by reading all of them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from accountkit import World
from ledgerkit import NOON, record
from msgspec.structs import replace
from sqlalchemy import Select, text

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.usage import TIMED, By, RecordFilter, Step, UsageQuery
from causerie.hosted.store.database import Database
from causerie.hosted.store.usage import (
    SqlUsage,
    SqlUsageReader,
    first_token_query,
    records_query,
    spent_query,
    sums_query,
)
from causerie.metering.ledger import UsageRecord

HOUR = 3_600_000_000
TODAY = datetime(2026, 11, 21, tzinfo=UTC)
WEEK = UsageQuery(TODAY - timedelta(days=6), TODAY + timedelta(days=1))


def made() -> list[UsageRecord]:
    """A week of requests of two projects, three keys and two models."""
    found = []
    for n in range(120):
        found.append(
            record(
                at=NOON - (n % 7) * 24 * HOUR + (n % 5) * HOUR,
                project="prj_a" if n % 3 else "prj_b",
                key=f"ck_{n % 3}",
                user=f"usr_{n % 2}",
                model="large" if n % 4 == 0 else "small",
                status=[200, 200, 429, 499, 502][n % 5],
                completion=n,
                amount=Decimal(n) / 1000,
                first_token_us=None if n % 5 == 2 else 10_000 + n * 1000,
            )
        )
    return found


@pytest.fixture
async def records(database: Database) -> list[UsageRecord]:
    """Those requests, in the database."""
    found = made()
    await SqlUsage(database).append(found)
    return found


async def test_sums_by_day_and_model(database: Database, records: list[UsageRecord]) -> None:
    question = UsageQuery(WEEK.since, WEEK.until, by=(By.MODEL,), project="prj_a")
    found = await SqlUsageReader(database).sums(question)
    wanted: Counter[tuple[datetime, str]] = Counter()
    cost: Counter[tuple[datetime, str]] = Counter()
    for each in records:
        if each.project == "prj_a":
            day = datetime.fromtimestamp(each.at // (24 * HOUR) * 86_400, UTC)
            wanted[day, each.model] += 1
            cost[day, each.model] += each.amount
    assert {(s.start, s.group[By.MODEL]): s.requests for s in found} == wanted
    assert {(s.start, s.group[By.MODEL]): s.cost for s in found} == cost
    starts = [s.start for s in found if s.start is not None]
    assert starts == sorted(starts)


async def test_sums_of_everything(database: Database, records: list[UsageRecord]) -> None:
    question = UsageQuery(WEEK.since, WEEK.until, Step.ALL)
    [found] = await SqlUsageReader(database).sums(question)
    assert found.start is None
    assert found.requests == len(records)
    assert found.refused == sum(each.status == 429 for each in records)
    assert found.failed == sum(each.status == 502 for each in records)
    assert found.aborted == sum(each.status == 499 for each in records)
    assert found.completion == sum(each.completion for each in records)
    assert found.cost == sum(each.amount for each in records)
    assert found.duration_seconds == pytest.approx(0.2)
    times = [each.first_token_us for each in records if each.first_token_us is not None]
    assert found.first_token_seconds == pytest.approx(sum(times) / len(times) / 1e6)


async def test_hours_and_narrowing(database: Database, records: list[UsageRecord]) -> None:
    noon = TODAY + timedelta(hours=12)
    question = UsageQuery(noon, noon + timedelta(hours=2), Step.HOUR, (By.KEY, By.USER), key="ck_1")
    found = await SqlUsageReader(database).sums(question)
    wanted = Counter(
        (datetime.fromtimestamp(each.at // 10**6, UTC), each.key, each.user)
        for each in records
        if each.key == "ck_1" and NOON <= each.at < NOON + 2 * HOUR
    )
    assert wanted
    assert {(s.start, s.group[By.KEY], s.group[By.USER]): s.requests for s in found} == wanted


def times_by(records: list[UsageRecord], name: str) -> dict[str, list[float]]:
    """Seconds to the first token, sorted, by a field."""
    found: dict[str, list[float]] = {}
    for each in records:
        if each.first_token_us is not None:
            found.setdefault(getattr(each, name), []).append(each.first_token_us / 1e6)
    return {group: sorted(times) for group, times in found.items()}


def assert_about(found: Sequence[float], times: list[float]) -> None:
    """The median and the slowest lie where the times say."""
    middle = len(times) // 2
    assert times[max(middle - 1, 0)] * 0.9 <= found[0] <= times[middle] * 1.1
    assert found[1] == pytest.approx(times[-1], rel=0.2)


@pytest.mark.parametrize("by", TIMED)
@pytest.mark.parametrize("project", [None, "prj_a"])
async def test_percentiles_by_group(
    database: Database, records: list[UsageRecord], by: By, project: str | None
) -> None:
    question = UsageQuery(WEEK.since, WEEK.until, Step.ALL, (by,), project=project)
    found = await SqlUsageReader(database).first_tokens(question, (0.5, 0.999))
    wanted = times_by([one for one in records if project in (None, one.project)], by)
    assert len(wanted) > 1 or by is By.PROJECT
    assert {each.group for each in found} == set(wanted)
    for each in found:
        assert each.start is None
        assert each.group is not None
        assert_about(each.times, wanted[each.group])


async def test_percentiles_of_everything_and_of_a_part(
    database: Database, records: list[UsageRecord]
) -> None:
    for narrowed in ({}, {"key": "ck_1"}, {"user": "usr_0"}, {"key": "ck_2", "model": "large"}):
        question = UsageQuery(WEEK.since, WEEK.until, Step.ALL, **narrowed)
        [found] = await SqlUsageReader(database).first_tokens(question, (0.5, 0.999))
        assert found.group == ""
        mine = [
            each.first_token_us / 1e6
            for each in records
            if each.first_token_us is not None
            and all(getattr(each, name) == value for name, value in narrowed.items())
        ]
        assert_about(found.times, sorted(mine))


async def test_times_without_a_key_or_person_are_a_group(database: Database) -> None:
    """The playground has no key, and keys may have no maker."""
    await SqlUsage(database).append(
        [
            record(key="", user="usr_a", first_token_us=1_000),
            record(key="ck_a", user="", first_token_us=50_000),
            record(project="", key="", user="", first_token_us=900_000),
        ]
    )
    reader = SqlUsageReader(database)
    for by, name in ((By.KEY, "ck_a"), (By.USER, "usr_a")):
        question = UsageQuery(WEEK.since, WEEK.until, Step.ALL, (by,))
        found = {one.group: one.times[0] for one in await reader.first_tokens(question, [1.0])}
        assert set(found) == {name, ""}
        assert found[""] == pytest.approx(0.9, rel=0.2)


async def test_percentiles_over_time(database: Database, records: list[UsageRecord]) -> None:
    reader = SqlUsageReader(database)
    question = UsageQuery(
        WEEK.since, WEEK.until, Step.DAY, (By.USER,), project="prj_a", model="small"
    )
    found = await reader.first_tokens(question, [0.5, 0.999])
    days: dict[tuple[datetime, str], list[float]] = {}
    for each in records:
        if each.project == "prj_a" and each.model == "small" and each.first_token_us is not None:
            day = datetime.fromtimestamp(each.at // (24 * HOUR) * 86_400, UTC)
            days.setdefault((day, each.user), []).append(each.first_token_us / 1e6)
    assert {(one.start, one.group) for one in found} == set(days)
    starts = [one.start for one in found if one.start is not None]
    assert starts == sorted(starts)
    for one in found:
        assert one.start is not None
        assert one.group is not None
        assert_about(one.times, sorted(days[one.start, one.group]))
    hourly = await reader.first_tokens(
        UsageQuery(TODAY, TODAY + timedelta(days=1), Step.HOUR), [0.5]
    )
    assert [each.start.hour for each in hourly if each.start is not None] == sorted(
        {each.at // HOUR % 24 for each in records if each.first_token_us and each.at >= NOON}
    )


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"by": (By.DOOR,)}, "by"),
        ({"by": (By.APP,)}, "by"),
        ({"by": (By.KEY, By.MODEL)}, "by"),
        ({"door": "d"}, "door"),
    ],
)
async def test_what_no_times_are_kept_by(world: World, changed: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await world.usage.first_tokens(SYSTEM, None, dataclasses.replace(WEEK, **changed))
    assert caught.value.param == param


async def test_single_requests_by_page(database: Database, records: list[UsageRecord]) -> None:
    reader = SqlUsageReader(database)
    wanted = [each for each in records if each.project == "prj_a" and each.status >= 400]
    wanted.sort(key=lambda each: (each.at, each.id), reverse=True)
    found: list[UsageRecord] = []
    before = None
    while True:
        page = await reader.records(
            RecordFilter(
                WEEK.since,
                WEEK.until,
                project="prj_a",
                failures_only=True,
                before=before,
                limit=7,
            )
        )
        found += page
        if len(page) < 7:
            break
        before = (page[-1].at, page[-1].id)
    assert found == wanted


async def test_one_request_by_its_id(database: Database) -> None:
    store, reader = SqlUsage(database), SqlUsageReader(database)
    await store.append([record(request_id="mine"), record(request_id="other")])
    found = await reader.records(RecordFilter(WEEK.since, WEEK.until, request_id="mine"))
    assert [each.request_id for each in found] == ["mine"]


async def test_questions_that_make_no_sense(world: World) -> None:
    for question in (
        UsageQuery(TODAY, TODAY),
        UsageQuery(TODAY.replace(tzinfo=None), TODAY + timedelta(days=1)),
    ):
        with pytest.raises(InvalidRequest):
            await world.usage.sums(SYSTEM, None, question)


PLANS: list[tuple[Select[Any], str]] = [
    (sums_query(UsageQuery(WEEK.since, WEEK.until, by=(By.KEY,), project="prj_a")), "usage_daily"),
    (sums_query(UsageQuery(WEEK.since, WEEK.until, Step.HOUR, key="ck_a")), "usage_hourly"),
    (sums_query(UsageQuery(WEEK.since, WEEK.until, by=(By.PROJECT,))), "usage_daily"),
    (sums_query(UsageQuery(WEEK.since, WEEK.until, by=(By.APP,), project="prj_a")), "usage_apps"),
    (sums_query(UsageQuery(WEEK.since, WEEK.until, Step.ALL, by=(By.APP,))), "usage_apps"),
    (first_token_query(UsageQuery(WEEK.since, WEEK.until, project="prj_a")), "usage_first_token"),
    (
        first_token_query(UsageQuery(WEEK.since, WEEK.until, Step.ALL, (By.KEY,), project="prj_a")),
        "usage_first_token",
    ),
    (first_token_query(UsageQuery(WEEK.since, WEEK.until, by=(By.USER,))), "usage_first_token"),
    (records_query(RecordFilter(WEEK.since, WEEK.until, project="prj_a")), "usage_records"),
    (records_query(RecordFilter(WEEK.since, WEEK.until, key="ck_a")), "usage_records"),
    (records_query(RecordFilter(WEEK.since, WEEK.until)), "usage_records"),
    (
        records_query(RecordFilter(WEEK.since, WEEK.until, project="prj_a", before=(NOON, "x"))),
        "usage_records",
    ),
    (records_query(RecordFilter(WEEK.since, WEEK.until, request_id="mine")), "usage_records"),
    (
        records_query(RecordFilter(WEEK.since, WEEK.until, project="prj_a", failures_only=True)),
        "usage_records",
    ),
    (spent_query("key:ck_a", "", TODAY), "usage_daily"),
    (spent_query("project:prj_a", "small", TODAY), "usage_daily"),
    (spent_query("user:usr_a", "", TODAY), "usage_daily"),
]


@pytest.mark.parametrize("made_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("query", "table"), PLANS)
async def test_no_question_reads_a_whole_table(
    database: Database, query: Select[Any], table: str
) -> None:
    """SQLite's plan for each says SEARCH with an index, never SCAN, and sorts no records."""
    async with database.reading() as connection:
        compiled = query.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        found = await connection.execute(text(f"EXPLAIN QUERY PLAN {compiled}"))
        plan = [row.detail for row in found]
    assert plan[0].startswith(f"SEARCH {table} USING"), plan
    assert not any(line.startswith("SCAN") for line in plan), plan
    if table == "usage_records" and "request_id" not in plan[0]:
        assert not any("ORDER BY" in line for line in plan[:1]), plan


async def test_nothing_used_adds_up_to_nothing(database: Database) -> None:
    assert await SqlUsageReader(database).sums(UsageQuery(TODAY, WEEK.until, step=Step.ALL)) == []


@pytest.mark.parametrize(
    ("by", "step"), [*((By.APP, step) for step in Step), (By.TAG, Step.HOUR), (By.TAG, Step.DAY)]
)
async def test_sums_by_label(database: Database, by: By, step: Step) -> None:
    names = ("", "Robot", "=app()")
    records = [replace(each, **{by.value: names[n % 3]}) for n, each in enumerate(made())]
    await SqlUsage(database).append(records)
    span = 24 * HOUR if step is Step.DAY else HOUR
    noon = TODAY - timedelta(days=3) + timedelta(hours=12)
    for since, model in ((WEEK.since, None), (noon, "small")):
        question = UsageQuery(since, WEEK.until, step, (by, By.PROJECT), model=model)
        found = await SqlUsageReader(database).sums(question)
        began = int(since.timestamp() * 10**6) // span * span
        wanted = Counter(
            (None if step is Step.ALL else each.at // span * span, getattr(each, by), each.project)
            for each in records
            if each.at >= began and model in (None, each.model)
        )
        assert {
            (
                None if one.start is None else int(one.start.timestamp()) * 10**6,
                one.group[by],
                one.group[By.PROJECT],
            ): one.requests
            for one in found
        } == wanted


@pytest.mark.parametrize(
    "changed",
    [
        *({"by": (By.APP, By.KEY)}, {"by": (By.APP,), "user": "u"}, {"by": (By.APP,), "door": "d"}),
        *({"by": (By.TAG, By.KEY)}, {"by": (By.APP, By.TAG)}, {"by": (By.TAG,), "key": "k"}),
    ],
)
async def test_labels_are_not_known_by_key(world: World, changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await world.usage.sums(SYSTEM, None, dataclasses.replace(WEEK, **changed))
    assert caught.value.param == "by"
