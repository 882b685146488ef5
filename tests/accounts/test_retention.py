"""What is deleted when its time is over, and what stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from accountkit import World
from ledgerkit import record
from sqlalchemy import Table, func, select

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.recordings import Retention
from causerie.hosted.accounts.records import Recording
from causerie.hosted.accounts.usage import Step, UsageQuery
from causerie.hosted.store.operations import SqlRetention
from causerie.hosted.store.tables import audit, recordings, usage_records
from causerie.hosted.store.usage import SqlUsage, SqlUsageReader
from causerie.metering.ledger import record_id

DAY = 86_400_000_000
NOW = datetime.now(UTC)


async def count(world: World, table: Table) -> int:
    async with world.database.reading() as connection:
        return int(await connection.scalar(select(func.count()).select_from(table)) or 0)


def retention(world: World, **days: int) -> Retention:
    return Retention(SqlRetention(world.database), world.clock, **days)


async def test_old_requests_go_in_batches_and_their_sums_stay(world: World) -> None:
    world.now = NOW
    at = int(NOW.timestamp() * 1_000_000)
    made = [record(at=at - n % 20 * DAY) for n in range(1200)]
    await SqlUsage(world.database).append(made)
    whole = UsageQuery(NOW - timedelta(days=30), NOW + timedelta(days=1), Step.ALL)
    before = await SqlUsageReader(world.database).sums(whole)
    await retention(world).sweep()  # for ever, unless a number is set
    assert await count(world, usage_records) == 1200
    await retention(world, requests_days=7).sweep()
    kept = sum(one.at >= at - 7 * DAY for one in made)
    assert await count(world, usage_records) == kept == 480
    assert await SqlUsageReader(world.database).sums(whole) == before


async def test_audit_entries_go_after_their_days(world: World) -> None:
    world.now = NOW - timedelta(days=100)
    await world.project()
    world.now = NOW - timedelta(days=50)
    await world.project()
    entries = await count(world, audit)
    world.now = NOW
    await retention(world, audit_days=120).sweep()
    assert await count(world, audit) == entries
    await retention(world, audit_days=90).sweep()
    left = await count(world, audit)
    assert 0 < left < entries
    assert await world.actions() == ["project.create"] * left


async def test_contents_have_a_bound_for_the_whole_service(world: World) -> None:
    world.now = NOW
    owner = await world.person()
    project = await world.project(owner=owner)
    await world.recordings.keep(SYSTEM, project.id, 60)
    old = record_id()
    milliseconds = int((NOW - timedelta(days=20)).timestamp() * 1000)
    old = f"{milliseconds:012x}"[:8] + "-" + f"{milliseconds:012x}"[8:] + old[13:]
    async with world.store.writing() as repositories:
        await repositories.recordings.put(
            [
                Recording(id, project.id, owner.id, at, "{}", False, "{}", False)
                for id, at in ((old, NOW - timedelta(days=20)), (record_id(), NOW))
            ]
        )
    await retention(world, contents_days=30).sweep()
    assert await count(world, recordings) == 2
    await retention(world, contents_days=14).sweep()
    assert await count(world, recordings) == 1
    world.recordings.most_days = 14
    with pytest.raises(InvalidRequest, match="1 to 14 days"):
        await world.recordings.keep(SYSTEM, project.id, 15)
