"""Contents of requests: kept while a project says so, for its people, until their time is over."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from accountkit import SEAL, World
from ledgerkit import NOON, record
from sqlalchemy import select, text

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.encryption import Cipher
from causerie.hosted.accounts.people import SYSTEM, Project, Role, User, actor_of
from causerie.hosted.accounts.recordings import Recorder, Retention
from causerie.hosted.accounts.records import Recording
from causerie.hosted.store.accounts import SqlStore
from causerie.hosted.store.operations import SqlRetention
from causerie.hosted.store.tables import recordings
from causerie.http.tasks import owned
from causerie.metering.ledger import UsageRecord, record_id
from causerie.metering.meter import Contents
from causerie.protocol.events import Finished, TextDelta, Usage
from causerie.protocol.request import ChatRequest, Message
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.shapes.chat_completions.encoder import completion

SECRET = "the eleventh lighthouse"


def contents(words: str = SECRET) -> Contents:
    """Of a request that said this, and was told it back."""
    asked = {"messages": [{"role": "user", "content": words}]}
    request = ChatRequest("small", (Message("user", words),), sent=asked)
    made = Contents(
        request,
        ResponseContext(CompletionIdentity("chatcmpl-1", 1, "req-1"), "small", ""),
        completion,
    )
    made.see([TextDelta(words), Finished("stop"), Usage(1, 2)])
    return made


async def kept_of(world: World, project: Project, user: User, count: int = 1) -> list[UsageRecord]:
    """So many requests, written by a recorder."""
    at = NOON + int((world.now.timestamp() * 1_000_000) - NOON)
    made = [record(project=project.id, user=user.id, at=at) for _ in range(count)]
    async with Recorder(world.store) as recorder:
        for usage in made:
            recorder.put(usage, contents())
    return made


async def rows(world: World) -> int:
    async with world.database.reading() as connection:
        return len((await connection.execute(select(recordings.c.id))).all())


async def test_nothing_is_kept_unless_the_project_says_so(world: World) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    [usage] = await kept_of(world, project, owner)
    assert await rows(world) == 0
    with pytest.raises(NotFound):
        await world.recordings.see(actor_of(owner), project.id, usage.id)


async def test_what_is_kept_is_read_as_it_was_and_lies_there_encrypted(world: World) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    await world.recordings.keep(actor_of(owner), project.id, 7)
    [usage] = await kept_of(world, project, owner)
    found = await world.recordings.see(actor_of(owner), project.id, usage.id)
    assert SECRET in found.request
    assert SECRET in found.reply
    assert (found.user_id, found.at, found.reply_cut) == (owner.id, world.now, False)
    async with world.database.reading() as connection:
        stored = str((await connection.execute(text("SELECT * FROM recordings"))).all())
    assert "lighthouse" not in stored
    assert "lighthouse" not in repr(found)
    assert "project.recording" in await world.actions()


async def test_a_recording_opens_as_no_other(world: World) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    await world.recordings.keep(SYSTEM, project.id, 7)
    first, second = await kept_of(world, project, owner, 2)
    async with world.database.writing() as connection:
        other = await connection.scalar(
            select(recordings.c.request).where(recordings.c.id == second.id)
        )
        await connection.execute(
            recordings.update().where(recordings.c.id == first.id).values(request=other)
        )
    with pytest.raises(NotFound, match="cannot be read"):
        await world.recordings.see(actor_of(owner), project.id, first.id)


async def test_a_key_that_is_gone_is_named(world: World) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    await world.recordings.keep(SYSTEM, project.id, 7)
    [usage] = await kept_of(world, project, owner)
    cipher = Cipher(["another-key-of-the-tests-with-some-length"])
    other = SqlStore(world.database, cipher, world.clock)
    async with other.reading() as repositories:
        with pytest.raises(NotFound, match=r"store\.secret_keys"):
            await repositories.recordings.find(usage.id)
    cipher = Cipher(["another-key-of-the-tests-with-some-length", _SAME])
    both = SqlStore(world.database, cipher, world.clock)
    async with both.reading() as repositories:
        assert await repositories.recordings.find(usage.id) is not None


_SAME = "a-key-of-the-tests-with-some-length-to-it"
assert Cipher([_SAME]).open(SEAL.seal("x", "y"), "y") == "x"


async def test_its_time_ends_to_the_day(world: World) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    await world.recordings.keep(SYSTEM, project.id, 2)
    [usage] = await kept_of(world, project, owner)
    retention = Retention(SqlRetention(world.database), world.clock)
    world.later(days=2, microseconds=-1)
    await retention.sweep()
    assert (await world.recordings.see(actor_of(owner), project.id, usage.id)).id == usage.id
    world.later(microseconds=1)
    with pytest.raises(NotFound):  # before anything has swept
        await world.recordings.see(actor_of(owner), project.id, usage.id)
    assert await world.recordings.kept(actor_of(owner), project.id, [usage.id]) == frozenset()
    assert await rows(world) == 1
    await retention.sweep()
    assert await rows(world) == 0


async def test_a_sweep_goes_on_by_itself_and_takes_all(world: World) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    await world.recordings.keep(SYSTEM, project.id, 1)
    made = [
        Recording(record_id(), project.id, owner.id, world.now, "{}", False, "{}", False)
        for _ in range(1100)
    ]
    async with world.store.writing() as repositories:
        await repositories.recordings.put(made)
    async with owned(Retention(SqlRetention(world.database), world.clock).follow(0.01)):
        world.later(days=1)
        async with asyncio.timeout(60):
            while await rows(world):  # noqa: ASYNC110 - another task removes them
                await asyncio.sleep(0.01)


async def test_fewer_days_hold_for_what_is_there_and_more_do_not(world: World) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    await world.recordings.keep(SYSTEM, project.id, 10)
    [usage] = await kept_of(world, project, owner)
    await world.recordings.keep(SYSTEM, project.id, 3)
    await world.recordings.keep(SYSTEM, project.id, 90)
    world.later(days=3, microseconds=-1)
    assert (await world.recordings.see(actor_of(owner), project.id, usage.id)).id == usage.id
    world.later(microseconds=1)
    with pytest.raises(NotFound):
        await world.recordings.see(actor_of(owner), project.id, usage.id)


async def test_switching_it_off_deletes_all_of_this_project_at_once(world: World) -> None:
    owner = await world.person()
    project, other = await world.project(owner=owner), await world.project(owner=owner)
    for each in (project, other):
        await world.recordings.keep(SYSTEM, each.id, 7)
        await kept_of(world, each, owner, 3)
    await world.recordings.keep(actor_of(owner), project.id, None)
    assert await rows(world) == 3
    await kept_of(world, project, owner)  # one that was on its way
    assert await rows(world) == 3
    view = await world.projects.see(actor_of(owner), project.id)
    assert view.project.recording_days is None


async def test_renaming_a_project_does_not_switch_it_on_again(world: World) -> None:
    project = await world.project(owner=await world.person())
    await world.recordings.keep(SYSTEM, project.id, 7)
    async with world.store.reading() as repositories:
        before = await repositories.projects.find(project.id)
    assert before is not None
    await world.recordings.keep(SYSTEM, project.id, None)
    async with world.store.writing() as repositories:
        await repositories.projects.change(before)
    view = await world.projects.see(SYSTEM, project.id)
    assert view.project.recording_days is None


@pytest.mark.parametrize("days", [0, -1, 91, 10**9])
async def test_days_are_bounded(world: World, days: int) -> None:
    project = await world.project(owner=await world.person())
    with pytest.raises(InvalidRequest, match="1 to 90"):
        await world.recordings.keep(SYSTEM, project.id, days)


async def test_members_are_shown_which_are_theirs(world: World) -> None:
    owner, member = await world.person(), await world.person()
    viewer, operator = await world.person(), await world.person(operator=True)
    project = await world.project(owner=owner, member=member, viewer=viewer)
    other = await world.project(owner=owner)
    await world.recordings.keep(SYSTEM, project.id, 7)
    [theirs] = await kept_of(world, project, owner)
    [mine] = await kept_of(world, project, member)
    ids = [theirs.id, mine.id, record_id()]
    for user, seen in ((owner, {theirs.id, mine.id}), (member, {mine.id})):
        assert await world.recordings.kept(actor_of(user), project.id, ids) == seen
    for user in (viewer, operator, await world.person()):
        assert not await world.recordings.kept(actor_of(user), project.id, ids)
    with pytest.raises(NotFound):
        await world.recordings.see(actor_of(owner), other.id, mine.id)
    await world.join(project, operator, Role.ADMIN)
    assert (await world.recordings.see(actor_of(operator), project.id, mine.id)).id == mine.id


@pytest.mark.parametrize("id", ["", "1", "' OR 1=1 --", "\0", "../..", "x" * 10_000])
async def test_what_is_no_id_is_not_there(world: World, id: str) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    with pytest.raises(NotFound, match="no such recording"):
        await world.recordings.see(actor_of(owner), project.id, id)


async def test_too_much_is_not_held_and_the_rest_is_written(world: World) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    await world.recordings.keep(SYSTEM, project.id, 7)
    by_number = Recorder(world.store, most=2)
    by_size = Recorder(world.store, bytes_left=contents().weight)
    for recorder, written in ((by_number, 2), (by_size, 1)):
        before = await rows(world)
        async with recorder:
            for _ in range(5):
                usage = record(project=project.id, user=owner.id)
                recorder.put(usage, contents())
        assert await rows(world) == before + written


async def test_a_database_that_is_away_loses_contents_only(world: World) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    await world.recordings.keep(SYSTEM, project.id, 7)
    async with world.database.writing() as connection:
        await connection.execute(text("ALTER TABLE recordings RENAME TO away"))
    async with Recorder(world.store) as recorder:
        recorder.put(record(project=project.id, user=owner.id), contents())
    async with world.database.writing() as connection:
        await connection.execute(text("ALTER TABLE away RENAME TO recordings"))
    assert await rows(world) == 0
    await kept_of(world, project, owner)
    assert await rows(world) == 1


async def test_days_begin_with_the_request(world: World) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    await world.recordings.keep(SYSTEM, project.id, 1)
    [usage] = await kept_of(world, project, owner)
    async with world.database.reading() as connection:
        ends = await connection.scalar(
            select(recordings.c.expires_at).where(recordings.c.id == usage.id)
        )
    assert ends == world.now + timedelta(days=1)
