"""Files to download: requests, the statement of a month, and what was said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import pytest
from accountkit import World
from ledgerkit import NOON, record

from causerie.errors import Forbidden, InvalidRequest, NotFound
from causerie.hosted.accounts import reports, usage
from causerie.hosted.accounts.people import SYSTEM, actor_of
from causerie.hosted.accounts.recordings import contents_lines
from causerie.hosted.accounts.records import Recording
from causerie.hosted.accounts.reports import Month, request_rows, statement_rows
from causerie.hosted.accounts.usage import By, ChargedQuery, RecordFilter, Step, UsageQuery
from causerie.hosted.store.usage import SqlUsage, SqlUsageReader
from causerie.metering.ledger import record_id

HOUR = 3_600_000_000
DAY = 24 * HOUR
NOVEMBER = Month.named("2026-11", datetime(2026, 12, 3, tzinfo=UTC))


async def table(rows: Any) -> list[dict[str, str]]:
    found = [row async for piece in rows for row in piece]
    return [dict(zip(found[0], row, strict=True)) for row in found[1:]]


def test_the_months_of_statements() -> None:
    now = datetime(2026, 1, 3, 12, tzinfo=UTC)
    assert Month.named("", now).name == "2025-12"
    assert NOVEMBER.until == datetime(2026, 12, 1, tzinfo=UTC)
    for text in ("2026-13", "2026", "x-y", "0-1", "2026-11-01"):
        with pytest.raises(InvalidRequest, match="A month looks like"):
            Month.named(text, now)


async def test_a_statement_adds_up_to_what_was_charged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "ChargedQuery", partial(ChargedQuery, limit=3))
    owner = await world.person()
    mine, other = [await world.project(owner=owner) for _ in range(2)]
    made = [
        record(
            project=(mine, other)[n % 2].id,
            at=NOON + (n % 13 - 2) * DAY,
            tag=("", "shop", "=1+1")[n % 3],
            model="chat",
            served_by=("near/gpt", "far/gpt", "small", "near/mini")[n % 4],
            status=(200, 200, 502, 200)[n % 4],
            stream=False,
            prompt=100 + n,
            cached=40,
            written=n % 7,
            completion=20,
            cost=0 if n % 4 == 2 else n * 1_000_001,
        )
        for n in range(120)
    ]
    await SqlUsage(world.database).append(made)
    lines = await table(statement_rows(world.usage, world.projects, SYSTEM, None, NOVEMBER))
    charged = [one for one in made if one.charged and one.moment.month == 11]
    assert 0 < len(charged) < 120
    for name, total in (
        ("requests", len(charged)),
        ("input_tokens", sum(one.prompt - one.cached - one.written for one in charged)),
        ("cache_read_tokens", sum(one.cached for one in charged)),
        ("cache_write_tokens", sum(one.written for one in charged)),
        ("output_tokens", sum(one.completion for one in charged)),
        ("reasoning_tokens", sum(one.reasoning for one in charged)),
    ):
        assert sum(int(line[name]) for line in lines) == total
    assert sum(Decimal(line["cost"]) for line in lines) == sum(one.amount for one in charged)
    places = {(one.project, one.tag, one.served_by) for one in charged}
    shown = {
        (line["project"], line["tag"], f"{line['provider']}/{line['provider_model']}")
        for line in lines
    }
    assert shown == places
    assert {line["project_name"] for line in lines} == {"Project"}
    own = await table(
        statement_rows(world.usage, world.projects, actor_of(owner), mine.id, NOVEMBER)
    )
    assert own == [line for line in lines if line["project"] == mine.id]
    stranger = actor_of(await world.person())
    with pytest.raises(NotFound):
        await table(statement_rows(world.usage, world.projects, stranger, mine.id, NOVEMBER))
    with pytest.raises(Forbidden):
        await table(statement_rows(world.usage, world.projects, stranger, None, NOVEMBER))


async def test_own_models_are_of_this_service(world: World) -> None:
    project = await world.project(owner=await world.person())
    await SqlUsage(world.database).append([record(project=project.id, served_by="small")])
    [line] = await table(statement_rows(world.usage, world.projects, SYSTEM, None, NOVEMBER))
    assert (line["provider"], line["provider_model"]) == ("causerie", "small")


async def test_sums_by_provider(world: World) -> None:
    made = [
        record(
            at=NOON + n % 2 * HOUR,
            served_by=("near/gpt", "near/mini", "small", "")[n % 4],
            model="ab"[n % 2],
            written=n,
        )
        for n in range(8)
    ]
    await SqlUsage(world.database).append(made)
    since = datetime(2026, 11, 21, tzinfo=UTC)
    for step, count in ((Step.ALL, 3), (Step.HOUR, 4)):
        asked = UsageQuery(since, since + timedelta(days=1), step, (By.PROVIDER,))
        found = await SqlUsageReader(world.database).sums(asked)
        assert len(found) == count
        sums = dict.fromkeys(("near", "causerie", ""), 0)
        for each in found:
            sums[each.group[By.PROVIDER]] += each.written
        assert sums == {"near": 0 + 1 + 4 + 5, "causerie": 2 + 6, "": 3 + 7}
    wrong = UsageQuery(since, since + timedelta(days=1), Step.ALL, (By.PROVIDER, By.KEY))
    with pytest.raises(InvalidRequest, match="Sums by provider know"):
        wrong.check()


async def test_every_request_is_a_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_MOST_RECORDS", 4)
    owner = await world.person()
    project = await world.project(owner=owner)
    made = [
        record(project=project.id, at=NOON + n, operation="messages", served_by="near/gpt")
        for n in range(10)
    ]
    await SqlUsage(world.database).append(made)
    day = datetime(2026, 11, 21, tzinfo=UTC)
    whole = RecordFilter(day, day + timedelta(days=1))
    found = await table(request_rows(world.usage, actor_of(owner), project.id, whole))
    assert len(found) == 10
    assert {(one["operation"], one["provider"]) for one in found} == {("messages", "near")}
    assert [one["at"] for one in found] == sorted((one["at"] for one in found), reverse=True)


async def test_an_owner_exports_what_was_said_and_nobody_else(world: World) -> None:
    owner, admin = await world.person(), await world.person()
    operator = await world.person(operator=True)
    project = await world.project(owner=owner, admin=admin)
    await world.recordings.keep(SYSTEM, project.id, 30)
    kept = [
        Recording(
            *(record_id(), project.id, owner.id, world.now, f'{{"n": {n}}}', False),
            *('{"a": 1' if n == 3 else '{"a": 1}', n == 3),
        )
        for n in range(45)
    ]
    async with world.store.writing() as repositories:
        await repositories.recordings.put(kept)

    async def exported(who: Any) -> bytes:
        lines = contents_lines(world.recordings, actor_of(who), project.id)
        return b"".join([piece async for piece in lines])

    lines = (await exported(owner)).splitlines()
    found = [msgspec.json.decode(line) for line in lines]
    assert [one["id"] for one in found] == sorted(one.id for one in kept)
    said = {one["request"]["n"]: (one["reply"], one["cut"]) for one in found}
    assert said == dict.fromkeys(range(45), ({"a": 1}, [])) | {3: ('{"a": 1', ["reply"])}
    for other in (admin, operator):
        with pytest.raises(Forbidden, match="export logged prompts"):
            await exported(other)
    assert (await world.actions()).count("project.export_contents") == 1
