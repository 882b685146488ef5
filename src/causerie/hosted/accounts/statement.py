"""Project credits, daily free-request allowances, and answers to GET /key, /credits, /generation.

The balance is the sum of the credits less all that the project has ever spent. A project with
credits cannot spend more than these; one without is bounded by its budgets only. The budget of
nothing a month that projects of people who signed up have ends with the first credit.

The allowance is for all keys and free models of a project; days are UTC. A request that was
rejected or failed does not count, unless it is charged. The counts are of this process; at first
use, and then every few seconds, it reads those of others from the ledger's sums. Replicas may
together exceed the limit by the requests that they admit within these seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b

from msgspec import Struct, field

from causerie.access.keys import Caller
from causerie.errors import InvalidRequest, NotFound, RateLimited, StoreUnavailable, counted
from causerie.hosted.accounts.authorization import AccountService, conflict, set_bounds
from causerie.hosted.accounts.bounds import (
    NOTHING_FOR_NEWCOMERS,
    Balance,
    BudgetPeriod,
    Credit,
    LimitsAndBudgets,
    Unit,
)
from causerie.hosted.accounts.key_cache import AccountCaller
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import Action, Actor
from causerie.hosted.accounts.records import Taken
from causerie.hosted.accounts.tokens import new_id
from causerie.hosted.accounts.usage import By, RecordFilter, Step, UsageQuery, provider_of
from causerie.hosted.store.accounts import SqlStore, Transaction
from causerie.metering.ledger import CLIENT_GONE, UsageRecord
from causerie.protocol.key_statements import (
    CreditsStatement,
    FreeRequests,
    GenerationStatement,
    KeyRateLimit,
    KeyStatement,
)
from causerie.protocol.model_entries import FREE, is_free
from causerie.protocol.money import BILLION, exact

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = Decimal(9_000_000_000)
_LONGEST_NOTE = 200


class Credits(AccountService):
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
        id = f"pay:{payment}" if payment else new_id("cr")
        async with self._begin_write(actor, Action.CREDITS_PUT, project_id) as tx:
            made = Credit(id, project_id, amount, tx.now, actor.label, note.strip())
            # ``_begin_write`` has locked the project, so two reports of a payment come in turn.
            known = await tx.credits.find(id) if payment else None
            if known is not None and known.project_id == project_id:
                return known
            in_all = (await tx.credits.total(project_id) or 0) + amount
            if abs(in_all) > _MOST:
                raise InvalidRequest(
                    f"It would be {in_all:,f} in all; at most {_MOST:,} are kept.", param="amount"
                )
            await self._credit_and_lift_budget(tx, actor, made)
        return made

    async def take_back(
        self, actor: Actor, project_id: str, payment: str, refunded: Decimal, note: str = ""
    ) -> Decimal:
        """Withdraw the part of a payment's total ``refunded`` not yet withdrawn; return that part.

        Reports of refunds may come again, out of order, and before that of the payment.
        """
        taken = Decimal(0)
        async with self._begin_write(actor, Action.CREDITS_PUT, project_id) as tx:
            begin = f"pay:{payment}:refund:"
            for each in await tx.credits.of(project_id):
                taken -= each.amount if each.id.startswith(begin) else 0
            if refunded > taken:
                id, less = f"{begin}{refunded:f}", taken - refunded
                made = Credit(id, project_id, less, tx.now, actor.label, note)
                await self._credit_and_lift_budget(tx, actor, made)
        return max(refunded - taken, Decimal(0))

    async def _credit_and_lift_budget(self, tx: Transaction, actor: Actor, credit: Credit) -> None:
        try:
            await tx.credits.add(credit)
        except Taken as failure:
            raise conflict("taken", "The payment was added to another project.") from failure
        owner = f"project:{credit.project_id}"
        before = await tx.keys.bounds(owner)
        budgets = tuple(one for one in before.budgets if one != NOTHING_FOR_NEWCOMERS)
        if budgets != before.budgets:
            await set_bounds(tx, actor, {owner: LimitsAndBudgets(before.limits, budgets)})
        await tx.keys.announce(owner)
        details = {"amount": f"{credit.amount:f}", "note": credit.note}
        await tx.audit.record(actor, "credits.put", credit.id, credit.project_id, **details)

    async def left(self, project_id: str) -> Decimal | None:
        """Return the money that a project has left; ``None`` if it never had credits."""
        async with self._store.reading() as tx:
            if await tx.credits.total(project_id) is None:
                return None
        return (await _sum_credits_and_costs(self._store, project_id)).left

    async def of(self, actor: Actor, project_id: str) -> Sequence[Credit]:
        """Return the credits of a project, newest first."""
        async with self._begin_read(actor, Action.USAGE_SEE, project_id) as tx:
            return await tx.credits.of(project_id)

    async def balance(self, actor: Actor, project_id: str) -> Balance:
        await self.require(actor, Action.USAGE_SEE, project_id)
        return await _sum_credits_and_costs(self._store, project_id)


async def _sum_credits_and_costs(store: SqlStore, project_id: str) -> Balance:
    async with store.reading() as tx:
        put_in = await tx.credits.total(project_id)
    spent = await store.usage.spent(f"project:{project_id}", "", BEGINNING)
    return Balance(put_in or Decimal(0), spent.amount)


_RESETS = {BudgetPeriod.DAY: "daily", BudgetPeriod.WEEK: "weekly", BudgetPeriod.MONTH: "monthly"}


class Statements(Struct, frozen=True):
    """Answers ``GET /key``, ``GET /credits`` and ``GET /generation`` for an account's API key."""

    _store: SqlStore
    _free_days: FreeAllowances

    async def key(self, caller: Caller) -> KeyStatement:
        """Return the answer to ``GET /key``: a key's properties, spending and remaining budget."""
        member = _require_account_caller(caller)
        key, now = member.grant.key, self._store.clock()
        owner = f"key:{key.id}"
        spent = {
            period: (await self._store.usage.spent(owner, "", period.start(now))).amount
            for period in BudgetPeriod
        }
        free = await self._free_days.of(key.project_id)
        async with self._store.reading() as tx:
            put_in = await tx.credits.total(key.project_id)
        # Of several budgets, the one that resets soonest.
        money = [each for each in key.bounds.budgets if each.unit is Unit.MONEY and not each.model]
        budget = min(money, key=lambda each: [*BudgetPeriod].index(each.period), default=None)
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
        found = await _sum_credits_and_costs(self._store, _require_account_caller(caller).project)
        return CreditsStatement(total_credits=float(found.put_in), total_usage=float(found.spent))

    async def generation(self, caller: Caller, id: str) -> GenerationStatement:
        """Return the answer to ``GET /generation``: one past request; raise :class:`NotFound`."""
        project, now = _require_account_caller(caller).project, self._store.clock()
        found = await self._store.usage.records(
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
        return _build_generation_statement(found[0])


def _require_account_caller(caller: Caller) -> AccountCaller:
    if not isinstance(caller, AccountCaller):
        raise NotFound(
            "Only doors for keys of accounts know this; this door takes other keys.",
            code="unknown_path",
        )
    return caller


def _build_generation_statement(record: UsageRecord) -> GenerationStatement:
    first = record.first_token_us
    # The same number for the same name: clients expect numbers, exact ones in a double.
    number = int.from_bytes(blake2b(record.app.encode(), digest_size=6).digest())
    return GenerationStatement(
        id=record.request_id,
        request_id=record.request_id,
        app_id=number if record.app else None,
        created_at=record.moment.isoformat(),
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


_KEPT = 100_000
_REFRESH_SECONDS = 5.0


class FreeDay(Struct):
    """Limit and use of a project's free requests today; ``resets_in`` is in seconds."""

    limit: int
    used: int
    resets_in: int

    @property
    def left(self) -> int:
        return max(self.limit - self.used, 0)

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers ``x-ratelimit-…-requests-day``."""
        return {
            "x-ratelimit-limit-requests-day": str(self.limit),
            "x-ratelimit-remaining-requests-day": str(self.left),
            "x-ratelimit-reset-requests-day": f"{self.resets_in}s",
        }


class _FreeRequests(Struct):
    date: date
    done: int = 0
    running: int = 0
    put_in: Decimal = Decimal(0)
    read_at: float = -math.inf
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class FreeUse(FreeDay):
    """Context manager of a free request: a failed block does not count it unless ``charged``."""

    _counts: _FreeRequests  # of its day, whatever the clock says when it ends
    charged: bool = False

    def __enter__(self) -> FreeUse:
        return self

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        self._counts.running -= 1
        self._counts.done += self.charged or not isinstance(failure, Exception)


class FreeAllowances(Struct):
    """Counts the free requests of each project today, and refuses those above its limit."""

    _store: SqlStore
    _monotonic_seconds: Callable[[], float]
    _free_requests_today_by_project: dict[str, _FreeRequests] = {}
    requests: int = 50
    """Free requests a day."""
    paid_requests: int = 1000
    """For projects with credits of at least ``paid_from``."""
    paid_from: Decimal = Decimal(10)

    async def take(self, project: str) -> FreeUse:
        day = await self._get_free_request_tally(project)
        before = self._build_allowance_status(day, day.running)
        if not before.left:
            raise self._build_allowance_refusal(before)
        day.running += 1
        return FreeUse(before.limit, before.used + 1, before.resets_in, day)

    async def of(self, project: str) -> FreeDay:
        """Return limit and use of today, without running requests; raise ``StoreUnavailable``."""
        return self._build_allowance_status(await self._get_free_request_tally(project), 0)

    def _build_allowance_status(self, tally: _FreeRequests, running: int) -> FreeDay:
        now = self._store.clock()
        limit = self.paid_requests if tally.put_in >= self.paid_from else self.requests
        ends = BudgetPeriod.DAY.start(now) + timedelta(days=1)
        return FreeDay(limit, tally.done + running, max(math.ceil((ends - now).total_seconds()), 1))

    async def _get_free_request_tally(self, project: str) -> _FreeRequests:
        today = self._store.clock().astimezone(UTC).date()
        day = self._free_requests_today_by_project.get(project)
        if day is None or day.date != today:
            if len(self._free_requests_today_by_project) >= _KEPT:
                # The database knows the counts of those that have no request under way.
                self._free_requests_today_by_project = {
                    name: one
                    for name, one in self._free_requests_today_by_project.items()
                    if one.running
                }
            day = self._free_requests_today_by_project[project] = _FreeRequests(today)
        if self._is_refresh_due(day):
            async with day.reading:
                if self._is_refresh_due(day):
                    await self._refresh_tally(project, day)
        return day

    def _is_refresh_due(self, tally: _FreeRequests) -> bool:
        return self._monotonic_seconds() - tally.read_at >= _REFRESH_SECONDS

    async def _refresh_tally(self, project: str, tally: _FreeRequests) -> None:
        try:
            tally.done = max(tally.done, await self._count_free_today(project, self._store.clock()))
            async with self._store.reading() as tx:
                tally.put_in = await tx.credits.total(project) or Decimal(0)
        except StoreUnavailable:
            if tally.read_at == -math.inf:
                raise  # else it goes on with what is known here
        tally.read_at = self._monotonic_seconds()

    async def _count_free_today(self, project: str, now: datetime) -> int:
        midnight = BudgetPeriod.DAY.start(now)
        today = UsageQuery(
            midnight, midnight + timedelta(days=1), step=Step.ALL, by=(By.MODEL,), project=project
        )
        sums = await self._store.usage.sums(today)
        free = [each for each in sums if is_free(each.group[By.MODEL])]
        done = sum(each.requests - each.refused - each.failed for each in free)
        if any(each.refused + each.failed for each in free):
            done += await self._store.usage.charged_failures(project, midnight, FREE)
        return done

    def _build_allowance_refusal(self, status: FreeDay) -> RateLimited:
        wait, more = status.resets_in, ""
        if status.limit < self.paid_requests:
            more = (
                f" Projects into which at least {exact(self.paid_from)} was put have "
                f"{self.paid_requests} a day."
            )
        return RateLimited(
            f"The project may make {counted(status.limit, 'free request')} a day, over all its "
            f"keys and models; none is left. They begin anew at 00:00 UTC, in {wait} s.{more} "
            "Without `:free` the model has no such limit.",
            code="requests",
            metadata={
                "limit": "free_requests_per_day",
                "allowed": status.limit,
                "used": status.used,
                "needed": 1,
            },
            headers={
                "Retry-After": str(wait),
                **status.headers,
                "x-ratelimit-limit-requests": str(status.limit),
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": f"{wait}s",
            },
        )
