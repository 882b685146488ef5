"""Keys: made, limited, rotated and revoked; and on the request path, known and not known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from accountkit import World
from waiting import eventually

from causerie.access.keys import Caller, Credential
from causerie.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    ServiceError,
    StoreUnavailable,
    Unauthenticated,
)
from causerie.hosted.accounts.bounds import Budget, Limit, LimitsAndBudgets
from causerie.hosted.accounts.issuing import KeyEdit
from causerie.hosted.accounts.key_cache import AccountCaller, KeyCache
from causerie.hosted.accounts.keys import KeyState, Purpose, new_secret
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.store.accounts import SqlStore, Transaction
from causerie.hosted.store.database import Database

QUICK = {"poll_seconds": 0.01}


HOSTED, OTHER = "hosted", "other"


class Flaky:
    """A store that can be away, or stop in the middle of a look-up; counts look-ups."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.away = False
        self.reads = 0
        self.hold: asyncio.Event | None = None
        self.held = asyncio.Event()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        if self.away:
            raise StoreUnavailable()
        self.reads += 1
        async with self.store.reading() as repositories:
            yield repositories
        if self.hold is not None and asyncio.current_task() is not self.poller:
            self.held.set()
            await self.hold.wait()

    poller: asyncio.Task[None] | None = None

    def writing(self) -> object:
        return self.store.writing()


@asynccontextmanager
async def key_cache(world: World, **options: float) -> AsyncIterator[KeyCache]:
    options = QUICK | options
    async with KeyCache(world.store, now=lambda: nanoseconds(world.now), **options) as made:
        yield made


def nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 10**9)


async def enter(keys: KeyCache, shown: str | None, door: str = HOSTED) -> Caller:
    return await keys.authenticate(door, None if shown is None else Credential.of(shown))


async def refusal(keys: KeyCache, shown: str | None, door: str = HOSTED) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await enter(keys, shown, door)
    return caught.value


async def outcome(keys: KeyCache, shown: str) -> object:
    try:
        return await enter(keys, shown)
    except ServiceError as failure:
        return failure


async def until(keys: KeyCache, shown: str, wanted: type[object]) -> None:
    """Return once the answer is of this kind; it may take a few polls."""

    async def it_is() -> bool:
        return isinstance(await outcome(keys, shown), wanted)

    await eventually(it_is)


async def test_a_key_says_who_calls(world: World) -> None:
    user = await world.person()
    project = await world.project(member=user)
    made = await world.key(project, user, name="laptop", models=frozenset({"small"}))
    async with key_cache(world) as keys:
        caller = await enter(keys, made.credential)
        assert await enter(keys, made.credential) is caller
    assert (caller.key, caller.name, caller.door) == (made.key.id, "laptop", "hosted")
    assert (caller.project, caller.user) == (project.id, user.id)
    assert caller.models == frozenset({"small"})
    assert made.credential.startswith(f"{made.key.id}_")


async def test_every_key_that_does_not_work_gets_one_answer(world: World) -> None:
    project, archived = await world.project(), await world.project()
    expired = await world.key(project, expires_at=world.now + timedelta(days=1))
    disabled, deleted = await world.key(project), await world.key(project)
    dead = await world.key(archived)
    rotated = await world.key(project)
    await world.keys.disable(SYSTEM, disabled.key.id)
    await world.keys.delete(SYSTEM, deleted.key.id)
    await world.keys.rotate(SYSTEM, rotated.key.id, timedelta(0))
    await world.projects.archive(SYSTEM, archived.id)
    world.later(days=1)
    none = new_secret("ck_none")
    async with key_cache(world) as keys:
        answers = []
        for each in (expired, disabled, deleted, dead, rotated):
            answers += [await refusal(keys, each.credential) for _ in range(2)]
        answers += [await refusal(keys, each) for each in (none, none, "", "ck_x", "\udcff")]
    assert {type(each) for each in answers} == {Unauthenticated}
    assert len({str(each.body()) for each in answers}) == 1


async def test_no_key_at_all(world: World) -> None:
    async with key_cache(world) as keys:
        assert (await refusal(keys, None)).code == "missing_api_key"


async def test_a_key_is_for_its_doors_and_its_purpose(world: World) -> None:
    project = await world.project()
    narrow = await world.key(project, doors=frozenset({"hosted"}))
    none = await world.key(project, doors=frozenset())
    manages = await world.key(project, purpose=Purpose.MANAGEMENT)
    async with key_cache(world) as keys:
        await enter(keys, narrow.credential)
        for door, key in ((OTHER, narrow), (HOSTED, none), (HOSTED, manages)):
            failure = await refusal(keys, key.credential, door)
            assert (type(failure), failure.code) == (Forbidden, "scope_not_allowed")
        actor = await keys.manager(Credential.of(manages.credential))
        assert (actor.id, actor.project) == (manages.key.id, project.id)
        with pytest.raises(Forbidden):
            await keys.manager(Credential.of(narrow.credential))
        for nothing in (None, Credential.of(new_secret("ck_none"))):
            with pytest.raises(Unauthenticated):
                await keys.manager(nothing)


async def test_none_and_all_are_kept_apart(world: World) -> None:
    project = await world.project()
    every, none = await world.key(project), await world.key(project, models=frozenset())
    found = {key.id: key.models for key in await world.keys.of(SYSTEM, project.id)}
    assert found == {every.key.id: None, none.key.id: frozenset()}


async def test_both_secrets_work_while_a_key_is_rotated(world: World) -> None:
    project = await world.project()
    old = await world.key(project)
    new = await world.keys.rotate(SYSTEM, old.key.id, timedelta(hours=1))
    assert new.key.id == old.key.id
    async with key_cache(world) as keys:
        for each in (old, new):
            assert (await enter(keys, each.credential)).key == old.key.id
        world.later(hours=1)
        assert isinstance(await refusal(keys, old.credential), Unauthenticated)
        await enter(keys, new.credential)


async def test_rotating_again_does_not_lengthen_the_life_of_the_first_secret(world: World) -> None:
    first = await world.key(await world.project())
    await world.keys.rotate(SYSTEM, first.key.id, timedelta(hours=1))
    await world.keys.rotate(SYSTEM, first.key.id, timedelta(days=7))
    world.later(hours=2)
    async with key_cache(world) as keys:
        assert isinstance(await refusal(keys, first.credential), Unauthenticated)


@pytest.mark.parametrize("how", ["disable", "delete", "archive", "rotate"])
async def test_a_revoked_key_stops_in_every_process(world: World, made_url: str, how: str) -> None:
    project = await world.project()
    made = await world.key(project)
    other = Database(made_url)
    remote = KeyCache(SqlStore(other), **QUICK, now=lambda: nanoseconds(world.now))
    async with key_cache(world) as here, remote as there:
        for each in (here, there):
            await enter(each, made.credential)
        if how == "disable":
            await world.keys.disable(SYSTEM, made.key.id)
        elif how == "delete":
            await world.keys.delete(SYSTEM, made.key.id)
        elif how == "archive":
            await world.projects.archive(SYSTEM, project.id)
        else:
            await world.keys.rotate(SYSTEM, made.key.id, timedelta(0))
        for each in (here, there):
            await until(each, made.credential, Unauthenticated)
        if how == "disable":
            await world.keys.enable(SYSTEM, made.key.id)
            for each in (here, there):
                await until(each, made.credential, Caller)
    await other.close()


async def test_an_edit_is_heard_of(world: World) -> None:
    project = await world.project()
    made = await world.key(project)
    bounds = LimitsAndBudgets((Limit(requests_per_minute=3),), (Budget(Decimal(5)),))
    async with key_cache(world) as keys:
        await enter(keys, made.credential)
        await world.keys.edit(
            SYSTEM, made.key.id, KeyEdit(bounds=bounds, doors=frozenset({"other"}))
        )
        await world.projects.set_bounds(SYSTEM, project.id, bounds)
        await until(keys, made.credential, Forbidden)
        await world.keys.edit(SYSTEM, made.key.id, KeyEdit(doors=None))
        await until(keys, made.credential, AccountCaller)
        caller = await enter(keys, made.credential)
    assert isinstance(caller, AccountCaller)
    grant = caller.grant
    assert grant.key.bounds == grant.project_bounds == bounds


@pytest.mark.parametrize("offline", [0, 600])
async def test_the_database_being_away_is_never_401(world: World, offline: int) -> None:
    project = await world.project()
    known, unknown = await world.key(project), await world.key(project)
    store = Flaky(world.store)
    options = {**QUICK, "offline_seconds": offline, "now": lambda: nanoseconds(world.now)}
    async with KeyCache(store, **options) as keys:
        await enter(keys, known.credential)
        store.away = True
        if offline:
            await enter(keys, known.credential)
        else:
            await until(keys, known.credential, StoreUnavailable)
        assert isinstance(await refusal(keys, unknown.credential), StoreUnavailable)
        store.away = False
        await until(keys, known.credential, Caller)
        await enter(keys, unknown.credential)


async def test_a_database_that_hangs_is_503_in_time(world: World) -> None:
    made = await world.key(await world.project())
    store = Flaky(world.store)
    async with KeyCache(store, poll_seconds=60, answer_seconds=0.5) as keys:
        store.hold = asyncio.Event()
        assert isinstance(await refusal(keys, made.credential), StoreUnavailable)
        store.hold = None
        await until(keys, made.credential, Caller)


async def test_a_key_that_is_revoked_while_it_is_looked_up_does_not_stay(world: World) -> None:
    """A read from before the change must not be kept after the change was heard of."""
    made = await world.key(await world.project())
    store = Flaky(world.store)
    async with KeyCache(store, **QUICK, now=lambda: nanoseconds(world.now)) as keys:
        store.poller = keys._polling_task
        store.hold = asyncio.Event()
        asking = asyncio.ensure_future(outcome(keys, made.credential))
        await store.held.wait()  # it has read that the key works
        await world.keys.disable(SYSTEM, made.key.id)
        before = keys._last_change_number
        async with asyncio.timeout(60):
            while keys._last_change_number == before:  # noqa: ASYNC110 - it sends no event
                await asyncio.sleep(0.005)
        hold, store.hold = store.hold, None
        hold.set()
        assert isinstance(await asking, Unauthenticated)
        assert isinstance(await refusal(keys, made.credential), Unauthenticated)


async def test_many_that_ask_for_the_same_key_ask_once(world: World) -> None:
    made = await world.key(await world.project())
    store = Flaky(world.store)
    async with KeyCache(store, poll_seconds=60) as keys:
        before = store.reads
        await asyncio.gather(*(enter(keys, made.credential) for _ in range(50)))
        nothing = new_secret("ck_none")
        await asyncio.gather(*(outcome(keys, nothing) for _ in range(50)))
        await outcome(keys, nothing)
        assert store.reads == before + 2


async def test_what_is_remembered_is_bounded(world: World) -> None:
    project = await world.project()
    many = [await world.key(project) for _ in range(4)]
    async with KeyCache(world.store, poll_seconds=60, capacity=2) as keys:
        for _ in range(2):
            for each in many:
                await enter(keys, each.credential)
        assert len(keys._cached_keys) == 2


async def test_changes_of_long_ago_drop_everything(world: World) -> None:
    project = await world.project()
    made = await world.key(project)
    async with key_cache(world, poll_seconds=60) as keys:
        await enter(keys, made.credential)
        await world.keys.disable(SYSTEM, made.key.id)
        world.later(hours=2)
        await world.projects.archive(SYSTEM, (await world.project()).id)
        number, subjects = await keys._fetch_unapplied_changes()
        assert subjects is None
        keys._apply_changes(number, subjects)
        assert isinstance(await refusal(keys, made.credential), Unauthenticated)


async def test_states_are_told_to_owners(world: World) -> None:
    project = await world.project()
    made = await world.key(project, expires_at=world.now + timedelta(days=1))
    assert made.key.state(world.now) is KeyState.ACTIVE
    stopped = await world.keys.disable(SYSTEM, made.key.id)
    assert stopped.state(world.now) is KeyState.DISABLED
    world.later(days=1)
    assert (await world.keys.enable(SYSTEM, made.key.id)).state(world.now) is KeyState.EXPIRED
    longer = await world.keys.edit(SYSTEM, made.key.id, KeyEdit(expires_at=None))
    assert longer.state(world.now) is KeyState.ACTIVE


async def test_a_deleted_key_is_gone_and_its_name_stays(world: World) -> None:
    project = await world.project()
    made = await world.key(project)
    await world.keys.delete(SYSTEM, made.key.id)
    assert await world.keys.of(SYSTEM, project.id) == []
    with pytest.raises(NotFound):
        await world.keys.see(SYSTEM, made.key.id)
    async with world.store.reading() as repositories:
        assert (await repositories.keys.find(made.key.id)) is not None


@pytest.mark.parametrize(
    "draft",
    [
        {"expires_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"expires_at": datetime(2027, 1, 1)},
        {"name": ""},
        {"bounds": LimitsAndBudgets(budgets=(Budget(Decimal(-1)),))},
        {"bounds": LimitsAndBudgets(budgets=(Budget(Decimal("NaN")),))},
        {"bounds": LimitsAndBudgets(budgets=(Budget(Decimal("0.0000000001")),))},
        {"bounds": LimitsAndBudgets(budgets=(Budget(Decimal("0E-999999999999")),))},
        {"bounds": LimitsAndBudgets(budgets=(Budget(Decimal(1)), Budget(Decimal(2))))},
        {"bounds": LimitsAndBudgets(limits=(Limit(requests_per_minute=-1),))},
    ],
)
async def test_drafts_that_make_no_sense(world: World, draft: dict[str, object]) -> None:
    project = await world.project()
    with pytest.raises(InvalidRequest):
        await world.key(project, **draft)
    assert await world.keys.of(SYSTEM, project.id) == []


async def test_a_secret_that_is_nearly_right_costs_what_any_other_costs(world: World) -> None:
    """Only a digest of all of it is looked up, so no part of a guess is right by itself."""
    made = await world.key(await world.project())
    store = Flaky(world.store)
    nearly = made.credential[:-1] + ("a" if made.credential[-1] != "a" else "b")
    guesses = (nearly, new_secret(made.key.id), new_secret("ck_nobodyhasthis"))
    told = set()
    async with KeyCache(store, poll_seconds=3600) as keys:
        for guess in guesses:
            before = store.reads
            with pytest.raises(Unauthenticated) as refused:
                await enter(keys, guess)
            told.add((refused.value.message, refused.value.code, store.reads - before))
        assert (await enter(keys, made.credential)).key == made.key.id
    assert len(told) == 1
