"""Accounts asked for by a worker process: the same decisions, and nothing that stays held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from accountkit import Door, World
from budgetkit import Books
from waiting import eventually

from causerie.access.credential import Credential
from causerie.access.keys import Caller
from causerie.access.quota import Rates, RateScope, Tokens
from causerie.access.windows import MemoryCounters, MemoryLease
from causerie.accounts.bookkeeping import Bookkeeping
from causerie.accounts.bounds import Budget, Limit, LimitsAndBudgets
from causerie.accounts.budgets import Budgets
from causerie.accounts.key_cache import KeyCache
from causerie.accounts.prices import ModelPrices, TokenPrice
from causerie.accounts.rpc_client import AccountsClient
from causerie.accounts.rpc_messages import EndLimits, TakeLimits, answer, encoded
from causerie.accounts.rpc_server import AccountsServer, AccountsSession
from causerie.errors import (
    ContextLengthExceeded,
    Failed,
    Forbidden,
    OverBudget,
    RateLimited,
    ServiceError,
    StoreUnavailable,
    Unauthenticated,
)
from causerie.metering import usage_records
from causerie.metering.ledger import INTERRUPTED, Ledger, UsageRecord
from causerie.metering.meter import Record
from causerie.protocol.events import FinishReason, Usage

BOUNDS = LimitsAndBudgets(
    (Limit(requests_per_minute=3, concurrent=1, tokens_per_minute=1000),), (Budget(Decimal(10)),)
)
NEED = Tokens(10, 20)


class Kept:
    """A store of records in memory."""

    def __init__(self) -> None:
        self.records: list[UsageRecord] = []

    async def append(self, records: Sequence[UsageRecord]) -> None:
        """Keep them."""
        self.records += records


class SlowCounters(MemoryCounters):
    """Counters that can be asked only once they may answer, as a server of replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()
        self.asked = 0

    async def take(
        self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]
    ) -> MemoryLease:
        """As in the base, later."""
        self.asked += 1
        await self.open.wait()
        return self.take_now(scopes, estimate)


@dataclass
class Worker:
    """A client, with the session that answers it in the same process."""

    session: AccountsSession
    kept: Kept
    counters: SlowCounters
    credential: Credential
    tasks: set[asyncio.Task[bytes]] = field(default_factory=set)

    def ask(self, data: bytes) -> Awaitable[bytes]:
        """Who does not wait any more does not keep the session from answering."""
        return asyncio.shield(self._started(data))

    def tell(self, data: bytes) -> None:
        """Nobody waits."""
        self.session.tell(data)

    def _started(self, data: bytes) -> asyncio.Task[bytes]:
        task = asyncio.get_running_loop().create_task(self.session.answer(data))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def told(self) -> bool:
        """The session has done what it was told."""
        return not self.tasks


@asynccontextmanager
async def worker(world: World) -> AsyncIterator[tuple[Worker, AccountsClient, Caller]]:
    """A worker, and a caller whose key has the bounds."""
    kept, counters = Kept(), SlowCounters()
    books = Books()
    async with (
        KeyCache(world.store, now=lambda: int(world.now.timestamp()) * 10**9) as keys,
        Ledger(kept) as ledger,
    ):
        desk = Bookkeeping(ledger, Budgets(books, books.clock))
        desk.prices = ModelPrices({"small": TokenPrice(request=Decimal(4))})
        person = await world.person("ada")
        key = await world.key(await world.project(owner=person), person, bounds=BOUNDS)
        credential = Credential.of(key.credential)
        session = AccountsServer(keys, counters, desk).session()
        made = Worker(session, kept, counters, credential)
        client = AccountsClient(made)
        yield made, client, await client.authenticate(Door(), credential)
        await eventually(made.told)
        await session.close()


def running_record(caller: Caller) -> Record:
    """The record of a request that begins now."""
    return Record("r", "hosted", caller.key, "small", project=caller.project, user=caller.user)


async def hold(client: AccountsClient, caller: Caller, *, stream: bool = False) -> Record:
    """The record of a request whose estimate is held."""
    record = running_record(caller)
    record.stream = stream
    record.held = await client.reserve(caller, "small", lambda: NEED)
    await client.begin_request(record, NEED.input)
    return record


@pytest.mark.parametrize(
    "failure",
    [
        OverBudget("Spent.", metadata={"budget": {"amount": "1"}}, headers={"x-more": "1"}),
        RateLimited("Too many.", code="tokens", headers={"Retry-After": "3"}),
        ContextLengthExceeded(prompt_tokens=9, max_tokens=None, context_length=8),
        Unauthenticated("Who?"),
        Forbidden("No.", code="scope_not_allowed", param="model"),
        StoreUnavailable(),
    ],
)
def test_a_failure_is_the_same_in_the_other_process(failure: ServiceError) -> None:
    message = answer(encoded(Failed.of(failure)))
    assert isinstance(message, Failed)
    made = message.failure()
    assert isinstance(failure, type(made))
    assert (made.error(), made.status, made.headers) == (
        failure.error(),
        failure.status,
        failure.headers,
    )


async def test_limits_of_a_key_and_of_a_door_are_taken_together(world: World) -> None:
    async with worker(world) as (made, client, caller):
        own = MemoryCounters()
        door = RateScope("door", "hosted", Rates(requests_per_minute=100))
        limiter = client.limiter(own)
        scopes = [*client.scopes(caller, "small"), door]
        assert limiter.take_now([door], lambda: NEED) is not None
        assert limiter.take_now(scopes, lambda: NEED) is None
        with await limiter.take(scopes, lambda: NEED) as lease:
            requests, tokens = lease.limit_statuses()
            assert (requests, tokens) == (("3", 2, 600), ("1000", 970, 600))
            with pytest.raises(RateLimited, match="at the same time") as refused:
                await limiter.take(scopes, lambda: NEED)
            assert refused.value.code == "concurrency"
            lease.settle(Usage(1, 1))
        await eventually(made.told)
        with await limiter.take(scopes, lambda: NEED) as lease:
            assert lease.limit_statuses()[1] == ("1000", 968, 600)
        left = (await limiter.take([door], lambda: NEED)).limit_statuses()[0]
        assert left is not None
        assert left[1] == 100 - 4  # the refused one is not counted at the door


async def test_who_leaves_while_it_waits_has_taken_nothing(world: World) -> None:
    async with worker(world) as (made, client, caller):
        limiter, scopes = client.limiter(MemoryCounters()), client.scopes(caller, "small")
        made.counters.open.clear()
        waits = asyncio.ensure_future(limiter.take(scopes, lambda: NEED))
        await eventually(lambda: asked(made))
        waits.cancel()
        await asyncio.wait([waits])
        await eventually(made.told)
        made.counters.open.set()
        for _ in range(3):  # all of the minute are left
            with await limiter.take(scopes, lambda: NEED):
                pass
            await eventually(made.told)


async def test_who_leaves_before_the_question_is_read_has_taken_nothing(world: World) -> None:
    async with worker(world) as (made, client, caller):
        take = TakeLimits(10**6, "hosted", made.credential, "small", NEED)
        taken = made.ask(encoded(take))
        made.tell(encoded(EndLimits(10**6, undone=True)))  # both came in one piece
        await taken
        await eventually(made.told)
        limiter, scopes = client.limiter(MemoryCounters()), client.scopes(caller, "small")
        with await limiter.take(scopes, lambda: NEED):  # one at the same time
            pass


async def asked(made: Worker) -> bool:
    """The limits are being asked for."""
    return made.counters.asked > 0


async def test_what_is_held_is_settled_given_back_or_recorded(world: World) -> None:
    async with worker(world) as (made, client, caller):
        first, second, third = [await hold(client, caller) for _ in range(3)]  # 12 of 10 dollars
        refused = running_record(caller)
        refused.held = await client.reserve(caller, "small", lambda: NEED)
        with pytest.raises(OverBudget, match="held by requests that run now"):
            await client.begin_request(refused, NEED.input)
        client.release(refused.held)  # it holds nothing
        client.release(second.held)  # which asks for another model instead
        record = await hold(client, caller)
        record.status, record.code, record.used = 200, None, Usage(5, 7)
        await client.enter(record)
        assert record.cost == Decimal(4)
        first.status = 500
        await client.enter(first)
        assert first.cost == 0
        running = await hold(client, caller)
        await made.session.close()  # the worker has ended
        for _ in range(2):  # of 10 dollars 4 are spent, and nothing is held
            await hold(client, caller)
        with pytest.raises(OverBudget):
            await hold(client, caller)
    ids = {one.id: one for one in made.kept.records}
    assert (ids[record.id].cost, ids[record.id].completion) == (Decimal(4), 7)
    assert {ids[each.id].code for each in (running, third)} == {INTERRUPTED}
    assert len(made.kept.records) == 6


async def test_a_key_that_is_unknown_or_not_for_this_door_is_refused(world: World) -> None:
    async with worker(world) as (_, client, caller):
        assert caller.models is None
        with pytest.raises(Unauthenticated):
            await client.authenticate(Door(), None)
        with pytest.raises(Unauthenticated, match="not valid"):
            await client.authenticate(Door(), Credential.of("ck_nobody"))
        anybody = Caller(key="", name="anonymous", door="gateway")  # of a door without accounts
        assert client.scopes(anybody, "small") == ()
        record = await hold(client, anybody)
        record.status, record.code, record.used = 200, None, Usage(1, 1)
        await client.enter(record)
        assert record.cost == Decimal(4)


async def test_what_a_stream_delivered_is_charged_when_its_worker_is_killed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as was told some seconds before; a plain reply was not delivered."""
    monkeypatch.setattr(usage_records, "_BETWEEN_SECONDS", 0.0)
    async with worker(world) as (made, client, caller):
        for stream in (True, False):
            record = await hold(client, caller, stream=stream)
            record.outcome = Delivering()
            record.first_token(0.0)

        async def told() -> bool:
            return any(one.usage.completion for one in made.session._running.values())

        await eventually(told)
        await made.session.close()  # the worker has ended
        streamed, plain = sorted(made.kept.records, key=lambda one: not one.stream)
        assert (streamed.status, streamed.code) == (500, "interrupted")
        assert (streamed.prompt, streamed.completion, streamed.cost) == (30, 12, Decimal(4))
        assert streamed.charged
        assert not plain.charged
        assert not plain.cost
        await hold(client, caller)  # of 10 dollars 4 are spent
        await hold(client, caller)
        with pytest.raises(OverBudget):
            await hold(client, caller)


class Delivering:
    """A reply under way, of which a stream has delivered something."""

    served_by = "small"
    tried = ("small",)
    continued = 0
    queued_seconds = upstream_seconds = 0.0
    whole, delivered = False, True
    finish: FinishReason | None = None

    def usage(self) -> Usage:
        return Usage(30, 12)
