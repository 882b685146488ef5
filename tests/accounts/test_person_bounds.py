"""Budgets and limits of a person hold over all their keys, all projects, and the playground."""

from __future__ import annotations

from contextlib import AsyncExitStack
from decimal import Decimal
from secrets import token_hex

import pytest
from accountkit import World
from budgetkit import Books, services
from ledgerkit import record
from limitkit import shared_counters
from valkeyserver import ValkeyServer
from waiting import eventually

from causerie.access.keys import Caller, Credential
from causerie.access.limits import MemoryCounters, RateLimiter, Tokens
from causerie.catalog.model import Tariff
from causerie.errors import Forbidden, NotFound, OverBudget, RateLimited
from causerie.hosted.accounts.bookkeeping import Bookkeeping, ModelPrices
from causerie.hosted.accounts.bounds import UNBOUNDED, Budget, Limit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.budgets import Budgets
from causerie.hosted.accounts.key_cache import AccountCaller, KeyCache, admitted
from causerie.hosted.accounts.people import SYSTEM, actor_of
from causerie.hosted.accounts.usage import By
from causerie.hosted.store.usage import SqlUsage
from causerie.metering.ledger import Ledger
from causerie.metering.meter import Record
from causerie.protocol.events import Usage

BOUNDS = LimitsAndBudgets((Limit(requests_per_minute=3),), (Budget(Decimal(10)),))
QUICK = {"poll_seconds": 0.01}
PRICES = ModelPrices({"small": Tariff(request=Decimal(4))})


def _need() -> Tokens:
    return Tokens(1, 1)


async def _callers(world: World, keys: KeyCache) -> list[Caller]:
    """Two keys of one person in two projects, the playground, and a key of somebody else."""
    ada, bo = await world.person("ada"), await world.person("bo")
    atlas, zephyr = await world.project(owner=ada, member=bo), await world.project(owner=ada)
    await world.person_bounds.set(SYSTEM, ada.id, BOUNDS)
    made = [await world.key(atlas, ada), await world.key(zephyr, ada), await world.key(atlas, bo)]
    entered = [await keys.authenticate("hosted", Credential.of(each.credential)) for each in made]
    grant = await world.projects.ask(actor_of(ada), atlas.id)
    return [*entered[:2], admitted(grant, "hosted"), entered[2]]


async def _spend(desk: Bookkeeping, caller: Caller) -> None:
    made = Record("r", "hosted", caller.key, model="small", status=200, used=Usage(1, 1))
    made.project, made.user = caller.project, caller.user
    made.held = await desk.reserve(caller, "small", _need)
    await desk.enter(made)


async def test_a_budget_holds_over_keys_projects_and_playground(
    world: World, counted_in: ValkeyServer | None
) -> None:
    """Of 10 dollars at 4 a request, the third crosses the line, and the fourth is refused."""
    async with (
        KeyCache(world.store, **QUICK, now=lambda: int(world.now.timestamp()) * 10**9) as keys,
        services(counted_in) as place,
        Ledger(SqlUsage(world.database)) as ledger,
    ):
        first, second, playground, other = await _callers(world, keys)
        processes = [await place.budgets(Books()) for _ in range(1 if counted_in is None else 2)]
        desks = [Bookkeeping(ledger, each) for each in processes]
        for desk in desks:
            desk.prices = PRICES
        for caller in (first, second, playground):
            await _spend(desks[0], caller)
        for desk in desks:
            for caller in (first, second, playground):
                with pytest.raises(OverBudget, match=r"of this user, .* is spent") as it:
                    await desk.reserve(caller, "small", _need)
                assert it.value.metadata["budget"]["owner"] == "user"
            await _spend(desk, other)


async def test_limits_hold_over_keys_projects_and_playground(
    world: World, counted_in: ValkeyServer | None
) -> None:
    async with (
        AsyncExitStack() as stack,
        KeyCache(world.store, **QUICK, now=lambda: int(world.now.timestamp()) * 10**9) as keys,
        Ledger(SqlUsage(world.database)) as ledger,
    ):
        first, second, playground, other = await _callers(world, keys)
        prefix = token_hex(8)
        counters: list[RateLimiter] = [MemoryCounters()]
        if counted_in is not None:
            counters = [
                await stack.enter_async_context(shared_counters(counted_in, prefix=prefix))
                for _ in range(2)
            ]
        desk = Bookkeeping(ledger, Budgets(Books().spent, Books().clock))
        for number, caller in enumerate((first, second, playground)):
            place = counters[number % len(counters)]
            with await place.take(desk.scopes(caller, "small"), _need):
                pass
        for place in counters:
            with pytest.raises(RateLimited, match="may have 3 requests per minute") as it:
                await place.take(desk.scopes(first, "small"), _need)
            assert it.value.metadata["scope"] == {"kind": "user", "name": first.user}
            assert desk.scopes(other, "small") == ()


async def test_a_change_is_heard_of_and_follows_a_key_to_its_new_person(world: World) -> None:
    ada, bo = await world.person(), await world.person()
    project = await world.project(owner=ada, member=bo)
    made = await world.key(project, bo)
    async with KeyCache(
        world.store, **QUICK, now=lambda: int(world.now.timestamp()) * 10**9
    ) as keys:

        async def bounds() -> LimitsAndBudgets:
            caller = await keys.authenticate("hosted", Credential.of(made.credential))
            assert isinstance(caller, AccountCaller)
            return caller.grant.person_bounds

        async def bounded() -> bool:
            return await bounds() == BOUNDS

        async def unbounded() -> bool:
            return await bounds() == UNBOUNDED

        assert await unbounded()
        await world.person_bounds.set(SYSTEM, bo.id, BOUNDS)
        await eventually(bounded)
        await world.keys.transfer(actor_of(ada), made.key.id, ada.id)
        await eventually(unbounded)
    assert "user.bounds" in await world.actions()


async def test_operators_set_them_and_the_person_sees_what_is_spent(world: World) -> None:
    boss, ada, bo = await world.person(operator=True), await world.person(), await world.person()
    budgets = Budget(Decimal(10)), Budget(Decimal(1000), unit=Unit.TOKENS, model="large")
    await world.person_bounds.set(actor_of(boss), ada.id, LimitsAndBudgets(budgets=budgets))
    with pytest.raises(Forbidden):
        await world.person_bounds.set(actor_of(ada), ada.id, UNBOUNDED)
    with pytest.raises(Forbidden):
        await world.person_bounds.see(actor_of(bo), ada.id)
    with pytest.raises(NotFound):
        await world.person_bounds.set(actor_of(boss), "usr_none", UNBOUNDED)
    at = int(world.now.timestamp()) * 1_000_000
    used = [("prj_a", "large", "2.5"), ("prj_b", "small", "1.5")]
    await SqlUsage(world.database).append(
        [record(user=ada.id, project=p, model=m, amount=Decimal(c), at=at) for p, m, c in used]
    )
    for actor in (actor_of(boss), actor_of(ada)):
        money, tokens = sorted(
            await world.person_bounds.spending(actor, ada.id), key=lambda each: each.budget.unit
        )
        assert (money.spent, tokens.spent) == (Decimal(4), Decimal(120))
    found = await world.summaries.spending(actor_of(boss), By.USER, [ada.id, bo.id])
    assert {each.spent for each in found[ada.id]} == {Decimal(4), Decimal(120)}
    assert list(found[bo.id]) == []
