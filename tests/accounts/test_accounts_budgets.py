"""Budgets: exact, never far over, and nobody refused while something is left."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from decimal import Decimal

import pytest
from budgetkit import START, Books, claim, money, releasing, services
from casekit import each_of
from ledgerkit import record
from msgspec import structs
from valkeyserver import ValkeyServer

from causerie.catalog.model import Tariff
from causerie.errors import OverBudget, StoreUnavailable
from causerie.hosted.accounts.bookkeeping import Bookkeeping, ModelPrices, RequestHold
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Unit
from causerie.hosted.accounts.budgets import Budgets, Claim
from causerie.hosted.accounts.usage import Spent
from causerie.hosted.store.database import Database
from causerie.hosted.store.usage import SqlUsage, SqlUsageReader
from causerie.metering.ledger import Ledger, UsageRecord
from causerie.metering.meter import Record
from causerie.protocol.events import Usage

Opened = Callable[..., Awaitable[Budgets]]


@pytest.fixture
async def opened(counted_in: ValkeyServer | None) -> AsyncIterator[Opened]:
    """Makes budgets of a process, in memory or in a server that replicas share."""
    async with services(counted_in) as made:
        yield made.budgets


async def test_what_is_settled_counts_and_what_failed_does_not(opened: Opened) -> None:
    budgets, held = await opened(Books()), claim("1.00")
    with releasing(await budgets.reserve(held, "small", money("0.40"), 10)) as one:
        await one.settle(money("0.30"), 10)
    with releasing(await budgets.reserve(held, "small", money("0.40"), 10)):
        pass  # failed: nothing is settled
    with releasing(await budgets.reserve(held, "small", money("0.70"), 10)) as rest:
        with pytest.raises(OverBudget) as caught:
            await budgets.reserve(held, "small", money("0.01"), 1)
        assert caught.value.metadata["retryable"] is True
        await rest.settle(money("0.70"), 10)
    with pytest.raises(OverBudget, match="is spent") as caught:
        await budgets.reserve(held, "small", money("0.01"), 1)
    assert (caught.value.status, caught.value.metadata["retryable"]) == (402, False)
    assert caught.value.metadata["budget"]["resets_at"] == "2026-12-01T00:00:00+00:00"


async def test_a_little_headroom_is_enough_to_be_let_in(opened: Opened) -> None:
    budgets = await opened(repositories := Books())
    repositories.known["key:ck_a"] = Spent(money("0.999999999"))
    with releasing(await budgets.reserve(claim(1), "small", money(5), 1)):
        pass


@pytest.mark.parametrize("unit", [Unit.MONEY, Unit.TOKENS])
async def test_the_largest_budget_is_exact_to_its_smallest_part(opened: Opened, unit: Unit) -> None:
    """Beyond the whole numbers that doubles hold: one more or less is seen."""
    most = Decimal(9_000_000_000 if unit is Unit.MONEY else 2**53 + 3)
    for missing, last in ((2, True), (1, False)):
        repositories = Books({"key:ck_a": Spent(money(most) - missing, int(most) - missing)})
        budgets = await opened(repositories)
        held = claim(most, unit=unit, period=BudgetPeriod.DAY if last else BudgetPeriod.MONTH)
        with releasing(await budgets.reserve(held, "small", 1, 1)) as first:
            assert await _let_in(budgets, held) is last
            await first.settle(1, 1)
        assert await _let_in(budgets, held) is last


async def _let_in(budgets: Budgets, held: list[Claim]) -> bool:
    try:
        (await budgets.reserve(held, "small", 1, 1)).release()
    except OverBudget:
        return False
    return True


async def test_what_costs_nothing_is_let_in_always(opened: Opened) -> None:
    budgets = await opened(repositories := Books())
    repositories.known["key:ck_a"] = Spent(money(2))
    with releasing(await budgets.reserve(claim(1), "free", money(0), 100)):
        pass


async def test_all_budgets_are_held_or_none(opened: Opened) -> None:
    repositories = Books()
    budgets = await opened(repositories)
    key = Claim("key:ck_a", (Budget(Decimal(10)),))
    project = Claim("project:prj_a", (Budget(Decimal(1)),))
    with releasing(await budgets.reserve([key, project], "small", money(1), 1)):
        with pytest.raises(OverBudget, match="this project"):
            await budgets.reserve([key, project], "small", money(10), 1)
        with releasing(await budgets.reserve([key], "small", money(9), 1)):
            pass  # nothing was left behind by the one that was refused


async def test_a_budget_for_one_model_is_for_that_model(opened: Opened) -> None:
    budgets, held = await opened(Books()), claim(0, model="large")
    with releasing(await budgets.reserve(held, "small", money(1), 1)):
        pass
    with pytest.raises(OverBudget, match="for the model large"):
        await budgets.reserve(held, "large", money(1), 1)


async def test_tokens_can_be_counted(opened: Opened) -> None:
    budgets, held = await opened(Books()), claim(100, unit=Unit.TOKENS)
    with releasing(await budgets.reserve(held, "small", money(0), 60)) as one:
        await one.settle(money(0), 100)
    with pytest.raises(OverBudget, match="100 tokens"):
        await budgets.reserve(held, "small", money(0), 1)


@pytest.mark.parametrize(
    ("period", "after", "since"),
    [
        (BudgetPeriod.DAY, timedelta(hours=12), "2026-11-22"),
        (BudgetPeriod.WEEK, timedelta(days=2), "2026-11-23"),
        (BudgetPeriod.MONTH, timedelta(days=10), "2026-12-01"),
    ],
)
async def test_a_new_period_begins_anew(
    opened: Opened, period: BudgetPeriod, after: timedelta, since: str
) -> None:
    budgets, held = await opened(repositories := Books()), claim(1, period=period)
    late = await budgets.reserve(held, "small", money(1), 1)
    with pytest.raises(OverBudget):
        await budgets.reserve(held, "small", money(1), 1)
    repositories.now += after
    with releasing(await budgets.reserve(held, "small", money(1), 1)):
        await late.settle(money(1), 1)  # counts for the period it was let in in
        with pytest.raises(OverBudget):
            await budgets.reserve(held, "small", money(1), 1)
    with releasing(await budgets.reserve(held, "small", money(1), 1)):
        pass
    assert repositories.asked[-1][2].strftime("%Y-%m-%d") == since


async def test_a_clock_that_was_ahead_leaves_no_period_of_the_future_behind(opened: Opened) -> None:
    budgets, held = await opened(repositories := Books()), claim(1, period=BudgetPeriod.DAY)
    repositories.now += timedelta(days=400)
    with releasing(await budgets.reserve(held, "small", money(1), 1)) as then:
        await then.settle(money(1), 1)
    repositories.now -= timedelta(days=400)
    for _ in range(2):
        with releasing(await budgets.reserve(held, "small", money(1), 1)) as today:
            await today.settle(money(1), 1)
        with pytest.raises(OverBudget):
            await budgets.reserve(held, "small", money(1), 1)
        repositories.now += timedelta(days=1)


async def test_an_amount_that_is_changed_holds_at_once(opened: Opened) -> None:
    budgets = await opened(Books())
    with releasing(await budgets.reserve(claim(1), "small", money(1), 1)) as one:
        await one.settle(money(1), 1)
    with releasing(await budgets.reserve(claim(2), "small", money(1), 1)):
        pass
    with pytest.raises(OverBudget):
        await budgets.reserve(claim(1), "small", money(1), 1)


async def test_a_reservation_ends_by_itself_and_may_still_be_settled(opened: Opened) -> None:
    repositories = Books()
    budgets = await opened(repositories, lease_seconds=60)
    held = claim(1, period=BudgetPeriod.NEVER)
    lost = await budgets.reserve(held, "small", money(1), 1)
    repositories.now += timedelta(days=1)  # a clock that is put forward ends none
    budgets.expire()
    with pytest.raises(OverBudget):
        await budgets.reserve(held, "small", money("0.5"), 1)
    repositories.seconds += 60
    budgets.expire()
    with releasing(await budgets.reserve(held, "small", money("0.5"), 1)):
        pass
    await lost.settle(money(1), 1)
    await lost.settle(money(1), 1)  # once
    with pytest.raises(OverBudget):
        await budgets.reserve(held, "small", money(1), 1)
    with releasing(
        await budgets.reserve(claim("1.5", period=BudgetPeriod.NEVER), "small", money(1), 1)
    ):
        pass


async def test_what_others_settled_is_heard_of(opened: Opened) -> None:
    budgets = await opened(repositories := Books())
    with releasing(await budgets.reserve(claim(1), "small", money(1), 1)):
        pass
    repositories.known["key:ck_a"] = Spent(money(1))
    await budgets.refresh()
    with pytest.raises(OverBudget):
        await budgets.reserve(claim(1), "small", money(1), 1)


async def test_what_is_not_known_is_503(opened: Opened) -> None:
    budgets = await opened(repositories := Books(away=True))
    with pytest.raises(StoreUnavailable):
        await budgets.reserve(claim(1), "small", money(1), 1)
    repositories.away = False
    with releasing(await budgets.reserve(claim(1), "small", money(1), 1)):
        repositories.away = True
        await budgets.refresh()


class Away:
    """A database that takes no records."""

    async def append(self, records: Sequence[UsageRecord]) -> None:
        raise StoreUnavailable()


async def test_what_could_not_be_recorded_is_not_spent() -> None:
    repositories = Books()
    budgets, held, prices = (
        Budgets(repositories.spent, repositories.clock),
        claim(5),
        ModelPrices({"small": Tariff(request=Decimal(4))}),
    )
    record = Record("r", "hosted", "ck_a", model="small", status=200, used=Usage(1, 1))
    record.held = RequestHold(prices, await budgets.reserve(held, "small", money(4), 2))
    async with Ledger(Away()) as ledger:
        with pytest.raises(StoreUnavailable):
            await Bookkeeping(ledger, budgets).enter(record)
    assert record.cost == money(4)
    with releasing(await budgets.reserve(held, "small", money(4), 2)):
        await budgets.reserve(held, "small", money(1), 2)


async def test_the_first_use_is_asked_for_once(opened: Opened) -> None:
    budgets = await opened(repositories := Books())
    held = claim(100)
    await asyncio.gather(*(budgets.reserve(held, "small", money(1), 1) for _ in range(20)))
    assert len(repositories.asked) == 1


async def test_a_period_that_is_over_leaves_nothing_behind() -> None:
    def locks() -> int:
        return sum(isinstance(each, asyncio.Lock) for each in gc.get_objects())

    repositories, before = Books(), locks()
    budgets = Budgets(repositories.spent, repositories.clock)
    for number in range(10):
        owner = Claim(f"key:ck_{number}", (Budget(Decimal(1)),))
        (await budgets.reserve([owner], "small", money(0), 1)).release()
    repositories.now += timedelta(days=40)
    budgets.expire()
    assert locks() == before


async def test_what_the_ledger_has_is_what_a_budget_begins_with(database: Database) -> None:
    costs = [("ck_a", "small", "0.25"), ("ck_a", "large", "0.50"), ("ck_b", "small", "1")]
    store = SqlUsage(database)
    await store.append([record(key=k, model=m, amount=Decimal(c)) for k, m, c in costs])
    await store.append([record(at=record().at - 40 * 86_400 * 10**6, amount=Decimal(8))])
    reader = SqlUsageReader(database)
    month = BudgetPeriod.MONTH.start(START)
    assert await reader.spent("key:ck_a", "", month) == Spent(money("0.75"), 240)
    assert await reader.spent("key:ck_a", "large", month) == Spent(money("0.5"), 120)
    assert await reader.spent("project:prj_a", "", month) == Spent(money("1.75"), 360)
    assert (await reader.spent("key:ck_a", "", BudgetPeriod.NEVER.start(START))).cost == money(
        "8.75"
    )
    assert await reader.spent("key:ck_none", "", month) == Spent(money(0), 0)


async def test_what_a_tag_and_a_provider_have_spent(database: Database) -> None:
    answered = [("nightly", "north/m"), ("", "north_/m"), ("nightly", "small"), ("%", "south/a/b")]
    records = [record(tag=tag, served_by=by, amount=Decimal(1)) for tag, by in answered]
    await SqlUsage(database).append(records)
    reader, month = SqlUsageReader(database), BudgetPeriod.MONTH.start(START)
    for owner, count in (
        ("tag:nightly", 2),
        ("tag:%", 1),
        ("provider:north", 1),
        ("provider:north_", 1),
        ("provider:south", 1),
        ("provider:causerie", 1),
        ("provider:none", 0),
    ):
        assert await reader.spent(owner, "", month) == Spent(money(count), count * 120), owner


async def test_a_budget_of_tokens_counts_what_is_charged(database: Database) -> None:
    """As the process counts that settles: not what failed, and not what nobody has had."""
    await SqlUsage(database).append(
        [
            record(status=502),
            record(status=200, completion=0),
            record(status=499),
            record(prompt=1, completion=2),
        ]
    )
    month = BudgetPeriod.MONTH.start(START)
    spent = await SqlUsageReader(database).spent("key:ck_a", "", month)
    assert spent.tokens == 120 + 3


def test_prices_by_the_token() -> None:
    price = Tariff(
        prompt=Decimal("0.000001"), completion=Decimal("0.000002"), cached=Decimal("0.0000001")
    )
    assert price.charge(Usage(100, 10, 40)) == money("0.000084000")
    plain = Tariff(prompt=Decimal("0.000001"), request=Decimal("0.01"))
    assert plain.charge(Usage(100, 10, 40)) == money("0.0101")
    deep = Tariff(completion=Decimal("0.000002"), reasoning=Decimal("0.000005"))
    assert deep.charge(Usage(9, 10, 0, 4)) == money("0.000032")
    assert deep.most(9, 10) == money("0.00005")
    light = Tariff(completion=Decimal("0.000002"), reasoning=Decimal(0))
    assert light.charge(Usage(9, 10, 0, 4)) == money("0.000012")
    assert light.most(9, 10) == money("0.00002")
    tiny = Tariff(prompt=Decimal("0.00000000015"))
    assert tiny.charge(Usage(1, 0, 0)) == money("0")
    assert tiny.charge(Usage(10, 0, 0)) == money("0.000000002")


@each_of(
    ("status", "prompt", "completion", "charged"),
    [
        (200, 10, 5, True),
        (200, 10, 0, False),  # an empty reply
        (499, 10, 0, True),  # left while the prompt was read
        (499, 10, 3, True),  # left in the middle
        (499, 0, 0, False),  # left in the queue
        (400, 0, 0, False),
        (429, 0, 0, False),
        (502, 10, 3, False),  # broke off, by our fault
        (504, 10, 0, False),
    ],
)
def test_who_pays(status: int, prompt: int, completion: int, charged: bool) -> None:
    """A plain reply that fails costs nothing; a stream costs what was delivered of it."""
    made = record(status=status, prompt=prompt, completion=completion, stream=False)
    assert made.charged is charged
    streamed = structs.replace(made, stream=True)
    assert streamed.charged is (charged or bool(status >= 500 and completion))
    assert structs.replace(streamed, first_token_us=None).charged is charged


def test_a_constraint_that_was_not_kept_is_charged() -> None:
    """The request brought it, and the model has worked for it."""
    made = record(status=400, code="constraint_not_kept", first_token_us=None)
    assert made.charged
    assert not structs.replace(made, code="unsupported_schema").charged
