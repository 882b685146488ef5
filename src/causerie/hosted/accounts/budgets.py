"""Budget reservations of one process, and the limits and budgets that apply to a key and a model.

A request is admitted while settled and reserved use are below the amount; then its whole estimate
is reserved. So nobody is refused while something is left, and settled use stays below

    amount + the largest estimate + use beyond the estimates

where the last is zero if estimates are upper bounds. A request that costs nothing is always
admitted.

The counters are of this process. At first use, and then every few seconds, the database reports the
settled use of other processes. If replicas share budgets, their server decides, and the counters
here are used while it is away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from weakref import WeakValueDictionary

from msgspec import Struct, structs

from causerie.access.limits import RateScope, ScopeKind
from causerie.access.shared_budgets import HoldRequest, SharedBudgetStore
from causerie.errors import OverBudget, StoreUnavailable
from causerie.hosted.accounts.bounds import (
    UNBOUNDED,
    Budget,
    CreditBudget,
    Limit,
    LimitsAndBudgets,
    covers,
)
from causerie.hosted.accounts.keys import Grant
from causerie.hosted.accounts.usage import Spent
from causerie.protocol.model_entries import free_name, is_free

_SECOND = 1_000_000_000


class Claim(Struct, frozen=True):
    """Budgets of one owner: ``key:ID``, ``user:ID``, ``project:ID`` or ``tag:NAME``."""

    owner: str
    budgets: tuple[Budget, ...]
    places: tuple[str, ...] = ()
    """Names of the budgets among all owners."""

    def __post_init__(self) -> None:
        named = tuple(f"{self.owner}:{one.model}:{one.unit}:{one.period}" for one in self.budgets)
        structs.force_setattr(self, "places", named)


class _Counter(Struct):
    owner: str
    place: str
    budget: Budget
    amount: int  # in billionths of money, or tokens; so are all other amounts
    since: datetime
    begins: int
    ends: int
    shared_place: str  # name of this budget and period among all replicas
    spent: int = 0  # settled use as far as known; never more than the truth
    reserved: int = 0
    used: bool = True  # since the last read from the database
    reads: int = 1  # from the database
    joins: int | None = None  # of the replicas by this process, when the database was read for that


class _HeldAmount(Struct):
    counter: _Counter
    amount: int

    @property
    def request(self) -> HoldRequest:
        counter = self.counter
        return HoldRequest(counter.shared_place, counter.amount, self.amount, counter.spent)


class Reservation(Struct, eq=False):
    """Reservation of one request, until it is settled or released."""

    _budgets: Budgets
    _held_amounts: Sequence[_HeldAmount]
    _hold_requests: Sequence[HoldRequest]
    ends: float
    _settled_amounts_to_take_back: Sequence[tuple[_Counter, int]] = ()
    _is_held: bool = True

    async def settle(self, cost: int, tokens: int) -> None:
        """Count the actual use once, also after the reservation has expired.

        ``cost`` is in billionths. Returns when other replicas count it too, or can only read it
        from the database.
        """
        held, parts = self._release_held_amounts(), self._held_amounts
        if not parts:
            return
        self._held_amounts = ()
        settled = [(part.counter, part.counter.budget.counted(cost, tokens)) for part in parts]
        self._settled_amounts_to_take_back = settled
        for counter, more in settled:
            counter.spent += more
        shared_budgets = self._budgets.shared_budgets
        if shared_budgets is None:
            return
        spent = [more for _, more in settled]
        if any(spent):
            await shared_budgets.settle(self._hold_requests, spent, held=held)
        elif held:
            shared_budgets.give_back(self._hold_requests)

    def take_back(self) -> None:
        """Revoke the settled use in this process; other replicas still count it."""
        for counter, less in self._settled_amounts_to_take_back:
            counter.spent -= less
        self._settled_amounts_to_take_back = ()
        self.release()
        self._held_amounts = ()

    def release(self) -> None:
        shared_budgets = self._budgets.shared_budgets
        if self._release_held_amounts() and self._held_amounts and shared_budgets is not None:
            shared_budgets.give_back(self._hold_requests)

    def _release_held_amounts(self) -> bool:
        was_open, self._is_held = self._is_held, False
        if was_open:
            for part in self._held_amounts:
                part.counter.reserved -= part.amount
            self._budgets.running.discard(self)
        return was_open


@dataclass(eq=False, slots=True)
class Budgets:
    """Budgets of one process, shared with other replicas by ``shared_budgets`` if there are any.

    ``_spent_since`` reads the use by an owner of a model (empty: of all) from a time on. ``_clock``
    returns nanoseconds since 1970, ``seconds`` a monotonic time.
    """

    _spent_since: Callable[[str, str, datetime], Awaitable[Spent]]
    _clock: Callable[[], int]
    shared_budgets: SharedBudgetStore | None = None
    seconds: Callable[[], float] = time.monotonic
    refresh_seconds: float = 5.0
    lease_seconds: float = 3600.0
    """A reservation ends after this time at the latest."""
    _counters_by_budget_id: dict[str, _Counter] = field(default_factory=dict)
    _load_locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    running: set[Reservation] = field(default_factory=set)

    async def reserve(
        self, claims: Sequence[Claim], model: str, cost: int, tokens: int
    ) -> Reservation:
        """Reserve the estimate of a request in every budget that applies, or in none.

        ``cost`` is in billionths. Raises :class:`OverBudget`, and :class:`StoreUnavailable` if
        settled use cannot be read.
        """
        now, known = self._clock(), False
        parts: list[_HeldAmount] = []
        for claim in claims:
            for place, budget in zip(claim.places, claim.budgets, strict=True):
                if not covers(budget.model, model):
                    continue
                counter = self._find_loaded_counter(place, budget, now)
                known = known or counter is not None
                if counter is None:
                    counter = await self._load_counter(claim.owner, place, budget, now)
                parts.append(_HeldAmount(counter, counter.budget.counted(cost, tokens)))
        wants: Sequence[HoldRequest] = ()
        if parts and self.shared_budgets is not None:
            wants = await self._hold_in_shared_store(self.shared_budgets, parts, read=not known)
        else:
            self._refuse_if_any_spent(parts)
        for part in parts:
            part.counter.reserved += part.amount
            part.counter.used = True
        ends = self.seconds() + self.lease_seconds
        reservation = Reservation(self, parts, wants, ends)
        self.running.add(reservation)
        return reservation

    async def _hold_in_shared_store(
        self, shared_store: SharedBudgetStore, held_amounts: Sequence[_HeldAmount], *, read: bool
    ) -> Sequence[HoldRequest]:
        for part in held_amounts:
            await self._refresh_spent_after_rejoin(part.counter, shared_store.joins)
        reads = [part.counter.reads for part in held_amounts]
        wants = [part.request for part in held_amounts]
        answer = await shared_store.hold(wants, read=read)
        if answer is not None and answer.outcome == "spent unknown":
            for part, before in zip(held_amounts, reads, strict=True):
                await self._refresh_spent_unless_read_since(part.counter, before)
            wants = [part.request for part in held_amounts]
            answer = await shared_store.hold(wants, read=True)
        if answer is None:
            self._refuse_if_any_spent(held_amounts)
            shared_store.held_alone(wants)
            return wants
        for part, (spent, _) in zip(held_amounts, answer.stood, strict=True):
            part.counter.spent = max(part.counter.spent, spent)
        if answer.outcome == "refused":
            for part, want, stood in zip(held_amounts, wants, answer.stood, strict=True):
                self._refuse_if_spent(part, want.amount, *stood)
        return wants

    async def _refresh_spent_after_rejoin(self, counter: _Counter, join_count: int) -> None:
        # While they were apart, others have spent what only the database knows.
        if counter.joins == join_count:
            return
        if counter.joins is not None:
            try:
                await self._refresh_spent_unless_read_since(counter, counter.reads)
            except StoreUnavailable:
                return  # at the next request, or with the next refresh
        counter.joins = join_count

    async def _refresh_spent_unless_read_since(self, counter: _Counter, read_count: int) -> None:
        async with self._load_locks.setdefault(counter.place, asyncio.Lock()):
            if counter.reads == read_count:
                await self._refresh_spent(counter)

    async def _refresh_spent(self, counter: _Counter) -> None:
        spent = await self._spent_since(counter.owner, counter.budget.model, counter.since)
        counter.reads += 1
        counter.spent = max(counter.spent, counter.budget.counted(spent.cost, spent.tokens))

    async def follow(self) -> None:
        """Read the settled use of others and expire reservations at intervals, until cancelled."""
        while True:
            await asyncio.sleep(self.refresh_seconds)
            self.expire()
            await self.refresh()

    def expire(self) -> None:
        """Release expired reservations, and forget periods that are over."""
        now, seconds = self._clock(), self.seconds()
        for each in [each for each in self.running if each.ends <= seconds]:
            each.release()
        for place, counter in list(self._counters_by_budget_id.items()):
            if not counter.begins <= now < counter.ends:
                del self._counters_by_budget_id[place]

    async def refresh(self) -> None:
        """Read the settled use of all processes, unless the database is unavailable."""
        for counter in [each for each in self._counters_by_budget_id.values() if each.used]:
            try:
                await self._refresh_spent(counter)
            except StoreUnavailable:
                return
            counter.used = counter.reserved > 0

    def _find_loaded_counter(self, budget_id: str, budget: Budget, now: int) -> _Counter | None:
        counter = self._counters_by_budget_id.get(budget_id)
        if counter is None or not counter.begins <= now < counter.ends:  # a clock may be put back
            return None
        if counter.budget is not budget:
            counter.budget, counter.amount = budget, budget.whole  # from now on
        return counter

    async def _load_counter(self, owner: str, budget_id: str, budget: Budget, now: int) -> _Counter:
        async with self._load_locks.setdefault(budget_id, asyncio.Lock()):
            found = self._find_loaded_counter(budget_id, budget, now)
            if found is not None:
                return found
            at = datetime.fromtimestamp(now / _SECOND, UTC)
            since, end = budget.period.start(at), budget.period.end(at)
            spent = await self._spent_since(owner, budget.model, since)
            begins = int(since.timestamp()) * _SECOND
            ends = int(end.timestamp()) * _SECOND if end is not None else 2**63
            shared_place = f"{budget_id}:{since:%Y%m%d}"
            counter = _Counter(
                owner, budget_id, budget, budget.whole, since, begins, ends, shared_place
            )
            counter.spent = counter.budget.counted(spent.cost, spent.tokens)
            self._counters_by_budget_id[budget_id] = counter
            return counter

    def _refuse_if_any_spent(self, held_amounts: Sequence[_HeldAmount]) -> None:
        for part in held_amounts:
            counter = part.counter
            self._refuse_if_spent(part, counter.amount, counter.spent, counter.reserved)

    def _refuse_if_spent(self, held: _HeldAmount, limit: int, spent: int, reserved: int) -> None:
        if held.amount == 0 or spent + reserved < limit:
            return
        at = datetime.fromtimestamp(self._clock() / _SECOND, UTC)
        raise _build_over_budget_error(held.counter, at, waits=spent < limit)


def _build_over_budget_error(counter: _Counter, at: datetime, *, waits: bool) -> OverBudget:
    budget, owner = counter.budget, counter.owner.partition(":")[0]
    end = budget.period.end(at)
    model = f" for the model {budget.model}" if budget.model else ""
    credit = isinstance(budget, CreditBudget)
    what = "credits" if credit else "budget"
    if credit and not waits:
        said = f", {budget.words()}, are spent. Add credits, or use a model that costs nothing."
    elif not budget.amount:
        said = f" is {budget.words()}, so it may use only models that cost nothing."
        if owner == "project":
            said += " An operator of the service can raise it."
    elif waits:
        held = "are" if credit else "is"
        said = f", {budget.words()}, {held} held by requests that run now; "
        said += "try again when they end."
    else:
        said = f", {budget.words()}, is spent."
    if end is not None and budget.amount:
        said += f" It begins anew at {end:%Y-%m-%dT%H:%MZ}."
    return OverBudget(
        f"The {what} of this {owner}{model}{said}",
        metadata={
            "budget": {
                "owner": owner,
                "credits": credit,
                "model": budget.model or None,
                "unit": budget.unit,
                "period": budget.period,
                "amount": f"{budget.amount:f}",
                "resets_at": end.isoformat() if end is not None else None,
            },
            "retryable": waits,
        },
    )


class Entitlement(Struct, frozen=True):
    """The scopes of rate limits, and the budgets by owner, that apply to a grant and a model."""

    scopes: tuple[RateScope, ...]
    claims: tuple[Claim, ...]


@lru_cache(maxsize=10_000)  # a changed grant is another object
def entitlement(grant: Grant, model: str) -> Entitlement:
    """Return the limits and budgets of a grant for the model with this id."""
    key, person, project = grant.key.id, grant.key.person, grant.key.project_id
    bounds: Sequence[tuple[ScopeKind, str, LimitsAndBudgets]] = (
        ("key", key, grant.key.bounds),
        ("user", person, grant.person_bounds if person else UNBOUNDED),
        ("member", f"{project}/{person}", grant.member_bounds if person else UNBOUNDED),
        ("project", project, grant.project_bounds),
    )
    return Entitlement(
        scopes=tuple(
            RateScope(kind, _build_rate_scope_name(name, limit, model), limit)
            for kind, name, each in bounds
            for limit in each.limits
            if covers(limit.model, model)
        ),
        claims=tuple(
            Claim(f"{kind}:{name}", hard)
            for kind, name, each in bounds
            if (hard := tuple(one for one in each.budgets if not one.soft))
        ),
    )


def _build_rate_scope_name(owner_id: str, limit: Limit, model: str) -> str:
    # Free variants of models have counts of their own.
    if limit.model:
        return f"{owner_id} for {limit.model}"
    return free_name(owner_id) if is_free(model) else owner_id
