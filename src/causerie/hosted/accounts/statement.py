"""Credits of projects, and the statements that the bearer of a router's key can read.

The balance is the sum of the credits less all that the project has ever spent. A project with
credits cannot spend more than these; one without is bounded by its budgets only. The budget of
nothing a month that projects of people who signed up have ends with the first credit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b

from causerie.access.keys import Caller
from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.authorization import Clock, conflict
from causerie.hosted.accounts.bounds import (
    NOTHING_FOR_NEWCOMERS,
    Balance,
    Budget,
    BudgetPeriod,
    Credit,
    Unit,
)
from causerie.hosted.accounts.free_days import FreeAllowances
from causerie.hosted.accounts.key_cache import AccountCaller
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import Action, Actor
from causerie.hosted.accounts.records import Taken
from causerie.hosted.accounts.service import AccountService
from causerie.hosted.accounts.tokens import new_id
from causerie.hosted.accounts.usage import RecordFilter, UsageReader, provider_of
from causerie.hosted.store.accounts import SqlStore, Transaction
from causerie.metering.ledger import CLIENT_GONE, UsageRecord
from causerie.protocol.key_statements import (
    CreditsStatement,
    FreeRequests,
    GenerationStatement,
    KeyRateLimit,
    KeyStatement,
)
from causerie.protocol.money import BILLION

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = Decimal(9_000_000_000)
_LONGEST_NOTE = 200


class Credits(AccountService):
    """Credits of projects and their balances."""

    def __init__(self, store: SqlStore, reader: UsageReader, clock: Clock) -> None:
        super().__init__(store, clock)
        self._reader = reader

    async def put(
        self, actor: Actor, project_id: str, amount: Decimal, note: str = "", payment: str = ""
    ) -> Credit:
        """Add a credit, negative to withdraw money; raise :class:`InvalidRequest`.

        A ``payment`` is a credit once, however often it is reported: the first one is returned.
        """
        if not amount.is_finite() or not 0 < amount.copy_abs() <= _MOST:
            raise InvalidRequest(f"An amount is above 0, up to {_MOST:,}.", param="amount")
        if amount != amount.quantize(Decimal("0.000000001")):
            raise InvalidRequest("An amount has at most nine decimals.", param="amount")
        if len(note) > _LONGEST_NOTE:
            raise InvalidRequest(f"A note has at most {_LONGEST_NOTE} characters.", param="note")
        now = self._clock()
        id = f"pay:{payment}" if payment else new_id("cr")
        made = Credit(id, project_id, amount, now, actor.label, note.strip())
        async with self._writing(actor, Action.CREDITS_PUT, project_id) as tx:
            # ``_writing`` has locked the project, so that two reports of a payment come in turn.
            known = await tx.credits.find(id) if payment else None
            if known is not None and known.project_id == project_id:
                return known
            in_all = (await tx.credits.total(project_id) or 0) + amount
            if abs(in_all) > _MOST:
                raise InvalidRequest(
                    f"It would be {in_all:,f} in all; at most {_MOST:,} are kept.", param="amount"
                )
            await self._add(tx, actor, made)
        return made

    async def take_back(
        self, actor: Actor, project_id: str, payment: str, refunded: Decimal, note: str = ""
    ) -> Decimal:
        """Withdraw what was ``refunded`` of a payment in all; return what was taken now.

        Reports of refunds may come again, out of order, and before that of the payment.
        """
        now, taken = self._clock(), Decimal(0)
        async with self._writing(actor, Action.CREDITS_PUT, project_id) as tx:
            begin = f"pay:{payment}:refund:"
            for each in await tx.credits.of(project_id):
                taken -= each.amount if each.id.startswith(begin) else 0
            if refunded > taken:
                id, less = f"{begin}{refunded:f}", taken - refunded
                await self._add(tx, actor, Credit(id, project_id, less, now, actor.label, note))
        return max(refunded - taken, Decimal(0))

    async def _add(self, tx: Transaction, actor: Actor, made: Credit) -> None:
        try:
            await tx.credits.add(made)
        except Taken as failure:
            raise conflict("taken", "The payment was added to another project.") from failure
        if made.amount > 0:
            await self._end_newcomers_budget(tx, actor, made.project_id)
        await tx.keys.announce(f"project:{made.project_id}", made.at)
        details = {"amount": f"{made.amount:f}", "note": made.note}
        await self._record(tx, actor, "credits.put", made.id, made.project_id, **details)

    async def left(self, project_id: str) -> Decimal | None:
        """Return the balance of a project; ``None`` without credits."""
        async with self._store.reading() as tx:
            put_in = await tx.credits.total(project_id)
        if put_in is None:
            return None
        return put_in - (await self._reader.spent(f"project:{project_id}", "", BEGINNING)).amount

    async def _end_newcomers_budget(self, tx: Transaction, actor: Actor, project_id: str) -> None:
        before = await tx.keys.bounds(f"project:{project_id}")
        budgets = tuple(one for one in before.budgets if one != NOTHING_FOR_NEWCOMERS)
        if budgets != before.budgets:
            await self._set_bounds(
                tx, actor, "project.bounds", project_id, replace(before, budgets=budgets)
            )

    async def of(self, actor: Actor, project_id: str) -> Sequence[Credit]:
        """Return the credits of a project, newest first."""
        async with self._reading(actor, Action.USAGE_SEE, project_id) as tx:
            return await tx.credits.of(project_id)

    async def balance(self, actor: Actor, project_id: str) -> Balance:
        await self.require(actor, Action.USAGE_SEE, project_id)
        return await _balance(self._store, self._reader, project_id)


async def _balance(store: SqlStore, reader: UsageReader, project_id: str) -> Balance:
    async with store.reading() as tx:
        put_in = await tx.credits.total(project_id)
    spent = await reader.spent(f"project:{project_id}", "", BEGINNING)
    return Balance(put_in or Decimal(0), spent.amount)


_RESETS = {BudgetPeriod.DAY: "daily", BudgetPeriod.WEEK: "weekly", BudgetPeriod.MONTH: "monthly"}


class Statements:
    """Answers ``GET /key``, ``GET /credits`` and ``GET /generation`` for an account's API key."""

    def __init__(
        self, store: SqlStore, reader: UsageReader, clock: Clock, free_days: FreeAllowances
    ) -> None:
        self._store = store
        self._reader = reader
        self._clock = clock
        self._free_days = free_days

    async def key(self, caller: Caller) -> KeyStatement:
        """Return the answer to ``GET /key``: properties, spending and rest of a key."""
        member = _account_caller(caller)
        key, now = member.grant.key, self._clock()
        owner = f"key:{key.id}"
        spent = {
            period: (await self._reader.spent(owner, "", period.start(now))).amount
            for period in BudgetPeriod
        }
        free = await self._free_days.of(key.project_id)
        async with self._store.reading() as tx:
            put_in = await tx.credits.total(key.project_id)
        budget = _next_reset(key.bounds.budgets)
        left = None if budget is None else max(budget.amount - spent[budget.period], Decimal(0))
        return KeyStatement(
            label=key.name,
            name=key.name,
            limit=None if budget is None else float(budget.amount),
            limit_remaining=None if left is None else float(left),
            limit_reset=None if budget is None else _RESETS.get(budget.period),
            usage=float(spent[BudgetPeriod.NEVER]),
            usage_daily=float(spent[BudgetPeriod.DAY]),
            usage_weekly=float(spent[BudgetPeriod.WEEK]),
            usage_monthly=float(spent[BudgetPeriod.MONTH]),
            is_free_tier=not put_in,
            is_management_key=key.purpose is Purpose.MANAGEMENT,
            is_provisioning_key=key.purpose is Purpose.MANAGEMENT,
            expires_at=None if key.expires_at is None else key.expires_at.isoformat(),
            creator_user_id=key.created_by or None,
            workspace_id=key.project_id,
            free_model_daily_requests=FreeRequests(
                limit=free.limit, used=free.used, remaining=free.left
            ),
            rate_limit=KeyRateLimit(),
        )

    async def credits(self, caller: Caller) -> CreditsStatement:
        """Return the answer to ``GET /credits``: sum of credits and total spending of a project."""
        found = await _balance(self._store, self._reader, _account_caller(caller).project)
        return CreditsStatement(total_credits=float(found.put_in), total_usage=float(found.spent))

    async def generation(self, caller: Caller, id: str) -> GenerationStatement:
        """Return the answer to ``GET /generation``: one past request; raise :class:`NotFound`."""
        project, now = _account_caller(caller).project, self._clock()
        found = await self._reader.records(
            RecordFilter(
                BEGINNING, now + timedelta(days=1), project=project, request_id=id, limit=1
            )
        )
        if not found:
            raise NotFound(
                f"There is no request {id[:200]} of this project; a request is known here some "
                "moments after its reply has ended.",
                code="not_found",
                param="id",
            )
        return _statement_of(found[0])


def _account_caller(caller: Caller) -> AccountCaller:
    if not isinstance(caller, AccountCaller):
        raise NotFound(
            "Only doors for keys of accounts know this; this door takes other keys.",
            code="unknown_path",
        )
    return caller


def _next_reset(budgets: tuple[Budget, ...]) -> Budget | None:
    # Of several, the one that resets soonest.
    periods = list(BudgetPeriod)
    money = [each for each in budgets if each.unit is Unit.MONEY and not each.model]
    return min(money, key=lambda each: periods.index(each.period), default=None)


def _statement_of(record: UsageRecord) -> GenerationStatement:
    began = datetime.fromtimestamp(record.at / 1_000_000, UTC)
    first = record.first_token_us
    # The same number for the same name: clients expect numbers, exact ones in a double.
    number = int.from_bytes(blake2b(record.app.encode(), digest_size=6).digest())
    return GenerationStatement(
        id=record.request_id,
        request_id=record.request_id,
        app_id=number if record.app else None,
        created_at=began.isoformat(),
        http_referer=record.referer or None,
        origin=record.referer,
        model=record.model,
        provider_name=provider_of(record.served_by) or None,
        streamed=record.stream,
        cancelled=record.status == CLIENT_GONE,
        finish_reason=record.finish,
        native_finish_reason=record.finish,
        latency=None if first is None else first / 1000,
        generation_time=None if first is None else (record.duration_us - first) / 1000,
        tokens_prompt=record.prompt,
        tokens_completion=record.completion,
        native_tokens_prompt=record.prompt,
        native_tokens_cached=record.cached,
        native_tokens_completion=record.completion,
        native_tokens_reasoning=record.reasoning,
        total_cost=record.cost / BILLION,
        usage=record.cost / BILLION,
    )
