"""The promise of budgets, however requests of several processes run, end, fail and are left.

Alongside them a model does the same the slow and obvious way: at every step both
must let the same requests in.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from budgetkit import Books, billionth, services
from casekit import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from valkeyserver import ValkeyServer

from causerie.errors import OverBudget
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Unit
from causerie.hosted.accounts.budgets import Budgets, Claim, Reservation
from causerie.hosted.accounts.usage import Spent

MOST = 9_000_000_000 * 10**9  # billionths: the largest budget there may be, beyond 2**53
DAY = timedelta(days=1)
costs = st.integers(0, 60)
numbers = st.integers(0, 100)


@dataclass
class Running:
    """A request that was let in on a day: what it may use, in money and tokens."""

    reservation: Reservation
    day: int
    cost: int
    tokens: int


@dataclass
class Told:
    """State of a day, by one budget."""

    amount: int
    spent: int = 0
    held: int = 0
    largest: int = 0
    beyond: int = 0


class Promise(RuleBasedStateMachine):
    """A key with a budget of money, its person and a project with one of tokens, each for a day."""

    server: ValkeyServer | None = None

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.books = Books()
        self.processes: list[Budgets] = []
        self.running: list[Running] = []
        self.unwritten: list[tuple[int, int, int]] = []  # day, cost, tokens
        self.today = 0
        self.days: dict[int, tuple[Told, Told, Told]] = {}
        self.written = (0, 0)

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()

    @initialize(
        money=st.integers(0, 200),
        person=st.integers(0, 300),
        tokens=st.integers(0, 300),
        large=st.booleans(),
        processes=st.integers(1, 3),
    )
    def begin(self, money: int, person: int, tokens: int, large: bool, processes: int) -> None:
        """``large``: nearly all of the largest budget is spent, and so much is left of it."""
        self.limits = MOST if large else money, person, tokens
        self.before = MOST - money if large else 0
        self.claims = [
            Claim("key:ck_a", (Budget(billionth(self.limits[0]), BudgetPeriod.DAY),)),
            Claim("user:usr_a", (Budget(Decimal(person), BudgetPeriod.DAY, Unit.TOKENS),)),
            Claim("project:p", (Budget(Decimal(tokens), BudgetPeriod.DAY, Unit.TOKENS),)),
        ]
        self._new_day()
        self.runner.run(self._open(processes if self.server is not None else 1))

    async def _open(self, processes: int) -> None:
        place = await self.stack.enter_async_context(services(self.server))
        self.processes = [await place.budgets(self.books) for _ in range(processes)]

    def _new_day(self) -> None:
        money, person, tokens = self.limits
        self.days[self.today] = Told(money, self.before), Told(person), Told(tokens)
        self.written = self.before, 0
        self._write()

    def _write(self) -> None:
        """Write today's spent amounts into the database."""
        for day, cost, tokens in self.unwritten:
            if day == self.today:
                self.written = self.written[0] + cost, self.written[1] + tokens
        self.unwritten.clear()
        spent = Spent(self.written[0], self.written[1])
        self.books.known = dict.fromkeys(("key:ck_a", "user:usr_a", "project:p"), spent)

    async def _told(self) -> None:
        """Wait until amounts given back in the background are there: an answer comes after them."""
        nothing = [Claim("key:ck_none", (Budget(Decimal(1)),))]
        for process in self.processes:
            await process.reserve(nothing, "small", 0, 0)

    def _process(self, number: int) -> Budgets:
        return self.processes[number % len(self.processes)]

    def _fits(self, cost: int, tokens: int) -> bool:
        return all(
            not estimate or told.spent + told.held < told.amount
            for told, estimate in zip(self.days[self.today], (cost, tokens, tokens), strict=True)
        )

    def _let_in(self, cost: int, tokens: int, reservation: Reservation) -> None:
        self.running.append(Running(reservation, self.today, cost, tokens))
        for told, estimate in zip(self.days[self.today], (cost, tokens, tokens), strict=True):
            told.held += estimate
            told.largest = max(told.largest, estimate)

    def _ended(self, number: int) -> Running:
        one = self.running.pop(number % len(self.running))
        for told, estimate in zip(
            self.days[one.day], (one.cost, one.tokens, one.tokens), strict=True
        ):
            told.held -= estimate
        return one

    @rule(process=numbers, cost=costs, tokens=costs)
    def ask(self, process: int, cost: int, tokens: int) -> None:
        asked = self._process(process).reserve(self.claims, "small", cost, tokens)
        try:
            reservation = self.runner.run(asked)
        except OverBudget:
            assert not self._fits(cost, tokens), "refused with headroom left"
        else:
            assert self._fits(cost, tokens), "let in without headroom"
            self._let_in(cost, tokens, reservation)

    @rule(wanted=st.lists(st.tuples(numbers, st.integers(1, 60)), min_size=2, max_size=12))
    def ask_at_once(self, wanted: list[tuple[int, int]]) -> None:
        """All of one process at the same time as all of the others: the order is theirs."""
        asked = [
            self._process(process).reserve(self.claims, "small", cost, cost)
            for process, cost in wanted
        ]

        async def gathered() -> list[Reservation | BaseException]:
            return await asyncio.gather(*asked, return_exceptions=True)

        refused, let_in = False, []
        for (_, cost), found in zip(wanted, self.runner.run(gathered()), strict=True):
            if isinstance(found, Reservation):
                self._let_in(cost, cost, found)
                let_in.append(cost)
            else:
                assert isinstance(found, OverBudget), found
                refused = True
        assert not (refused and self._fits(1, 1)), "refused with headroom left"
        for told in self.days[self.today] if let_in else ():
            before_the_last = told.spent + told.held - max(let_in)
            assert before_the_last < told.amount, "let in without headroom"

    @rule(process=numbers, cost=st.integers(1, 60), steps=st.integers(0, 6))
    def ask_and_leave(self, process: int, cost: int, steps: int) -> None:
        """Cancelled before it knows, or just when it does: nothing is held."""

        async def leave() -> None:
            asked = self._process(process).reserve(self.claims, "small", cost, cost)
            task = asyncio.ensure_future(asked)
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            for found in await asyncio.gather(task, return_exceptions=True):
                if isinstance(found, Reservation):
                    found.release()

        self.runner.run(leave())
        self.runner.run(self._told())

    @precondition(lambda self: self.running)
    @rule(number=numbers, cost=st.integers(0, 80), tokens=st.integers(0, 80))
    def finish(self, number: int, cost: int, tokens: int) -> None:
        one = self._ended(number)
        for told, used, estimate in zip(
            self.days[one.day],
            (cost, tokens, tokens),
            (one.cost, one.tokens, one.tokens),
            strict=True,
        ):
            told.spent += used
            told.beyond += max(used - estimate, 0)
            assert told.spent <= self._bound(told)
        self.runner.run(one.reservation.settle(cost, tokens))
        self.runner.run(self._told())
        self.unwritten.append((one.day, cost, tokens))

    def _bound(self, told: Told) -> int:
        spent_before = self.before if told is self.days[self.today][0] else 0
        return max(told.amount - 1, spent_before) + told.largest + told.beyond

    @precondition(lambda self: self.running)
    @rule(number=numbers)
    def fail(self, number: int) -> None:
        one = self._ended(number)

        async def failed() -> None:
            one.reservation.release()

        self.runner.run(failed())
        self.runner.run(self._told())

    @rule()
    def write(self) -> None:
        self._write()

    @rule(process=numbers)
    def refresh(self, process: int) -> None:
        self.runner.run(self._process(process).refresh())

    @rule()
    def next_day(self) -> None:
        self.books.now += DAY
        self.today += 1
        self._new_day()


def test_the_promise_holds_however_requests_run(counted_in: ValkeyServer | None) -> None:
    class Case(Promise):
        server = counted_in

    run_state_machine_as_test(  # type: ignore[no-untyped-call]  # hypothesis leaves it untyped
        Case,
        settings=settings(
            max_examples=examples(100 if counted_in is None else 40),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
