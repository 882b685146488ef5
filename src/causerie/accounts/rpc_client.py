"""Accounts as a worker process has them: it asks the process that keeps them.

So keys, limits, budgets and records are exact over all workers, without a server that they share.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Protocol, TypeVar

from msgspec import Struct

from causerie.access.credential import Credential
from causerie.access.keys import Caller, Named, no_key
from causerie.access.lease import CombinedLease, Lease
from causerie.access.limits import RateLimiter
from causerie.access.quota import LimitStatuses, Rates, RateScope, Tokens
from causerie.accounts import rpc_messages as messages
from causerie.errors import Failed, InternalError
from causerie.metering.ledger import UsageRecord
from causerie.metering.meter import Record
from causerie.metering.usage_records import RunningRequests, ended

_KEPT = 10_000
_KEPT_SECONDS = 0.4  # with the parent's half second a revoked key stops within a second
_NOBODY: tuple[float, RemoteCaller | None] = (0.0, None)

A = TypeVar("A", bound=messages.Answer)


class Line(Protocol):
    """The way to the process that has the accounts."""

    def ask(self, data: bytes) -> Awaitable[bytes]:
        """Return the answer; raise :class:`StoreUnavailable` if that process has gone."""

    def tell(self, data: bytes) -> None:
        """Send what has no answer. Whatever was asked or told before arrives before it."""


class RemoteCaller(Caller, frozen=True, kw_only=True):
    """A caller with a key of accounts; ``limited`` if the key, its person or project is."""

    credential: Credential
    limited: bool


class _Held(Struct, frozen=True):
    """The estimate of a request, with its caller and its number."""

    request: int
    caller: Caller
    tokens: Tokens


class AccountLimits(RateScope):
    """The limits of a caller's key, person and project for one model, counted elsewhere."""

    __slots__ = ("caller", "model")

    def __init__(self, caller: RemoteCaller, model: str) -> None:
        super().__init__("key", caller.key, Rates())
        self.caller = caller
        self.model = model


class AccountsClient:
    """Keys, limits and bookkeeping of accounts, by asking on a line."""

    def __init__(self, line: Line, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = line
        self._clock = clock
        self._numbers = count(1)
        self._callers: dict[tuple[str, bytes], tuple[float, RemoteCaller]] = {}
        self._running = RunningRequests(self._checkpoint)

    async def authenticate(self, door: Named, credential: Credential | None) -> Caller:
        """As :meth:`causerie.accounts.key_cache.KeyCache.authenticate`."""
        if credential is None:
            raise no_key()
        place = (door.name, credential.digest)
        until, caller = self._callers.get(place, _NOBODY)
        if caller is None or until <= self._clock():
            until = self._clock() + _KEPT_SECONDS
            caller = await self._authenticated(door.name, credential)
            if len(self._callers) >= _KEPT:
                self._callers.clear()
            self._callers[place] = until, caller
        return caller

    async def _authenticated(self, door: str, credential: Credential) -> RemoteCaller:
        question = messages.Authenticate(door, credential)
        found = await self._ask(question, messages.Authenticated)
        return RemoteCaller(
            key=found.key,
            name=found.name,
            door=door,
            project=found.project,
            user=found.user,
            models=None if found.models is None else frozenset(found.models),
            recorded=found.recorded,
            credential=credential,
            limited=found.limited,
        )

    # Allowances.

    def scopes(self, caller: Caller, model: str) -> Sequence[RateScope]:
        """Return the scope that stands for all limits of the caller, if there are any."""
        if isinstance(caller, RemoteCaller) and caller.limited:
            return (AccountLimits(caller, model),)
        return ()

    async def reserve(self, caller: Caller, model: str, need: Callable[[], Tokens]) -> object:
        """Return what is to be held; :meth:`begin_request` asks for it."""
        return _Held(next(self._numbers), caller, need())

    def release(self, held: object) -> None:
        """Give back what a request holds."""
        if isinstance(held, _Held):
            self._tell(messages.ReleaseBudgets(held.request))

    # Settlement of usage.

    async def begin_request(self, record: Record, prompt: int) -> None:
        """Hold the estimate against budgets, and write down what the request leaves if this
        process ends before it.

        Raises :class:`OverBudget`, and :class:`StoreUnavailable`.
        """
        held = record.held
        if not isinstance(held, _Held):
            raise InternalError("A request begins without an estimate.")
        credential = held.caller.credential if isinstance(held.caller, RemoteCaller) else None
        usage = self._running.begin(record, prompt)
        question = messages.BeginRequest(held.request, record.door, credential, held.tokens, usage)
        await self._ask(question, messages.BudgetsHeld)

    async def enter(self, record: Record) -> None:
        """As :meth:`causerie.accounts.bookkeeping.Bookkeeping.enter`, but for contents."""
        self._running.end(record)
        request = record.held.request if isinstance(record.held, _Held) else 0
        record.held = None
        question = messages.RecordUsage(request, ended(record))
        record.cost = (await self._ask(question, messages.Recorded)).cost

    def _checkpoint(self, record: Record, usage: UsageRecord) -> None:
        if isinstance(record.held, _Held):
            self._tell(messages.Checkpoint(record.held.request, usage))

    # Limits.

    def limiter(self, own: RateLimiter) -> RateLimiter:
        """Return a limiter that asks for limits of accounts, and counts all others in ``own``."""
        return _Limiter(self, own)

    async def take_limits(self, wanted: AccountLimits, tokens: Tokens) -> Lease:
        """Take the limits of accounts; raise :class:`RateLimited` and :class:`InvalidRequest`."""
        request, caller = next(self._numbers), wanted.caller
        question = messages.TakeLimits(
            request, caller.door, caller.credential, wanted.model, tokens
        )
        try:
            taken = await self._ask(question, messages.LimitsTaken)
        except BaseException:
            self._tell(messages.EndLimits(request, undone=True))
            raise
        return _RemoteLease(client=self, request=request, statuses=taken.limit_statuses)

    def end_limits(self, notice: messages.EndLimits) -> None:
        self._tell(notice)

    async def _ask(self, question: messages.Question, kind: type[A]) -> A:
        found = messages.answer(await self._line.ask(messages.encoded(question)))
        if isinstance(found, Failed):
            raise found.failure()
        if not isinstance(found, kind):
            raise InternalError("A question about accounts has a wrong answer.")
        return found

    def _tell(self, notice: messages.Notice) -> None:
        self._line.tell(messages.encoded(notice))


class _RemoteLease(Lease):
    """Limits that were taken elsewhere."""

    client: AccountsClient
    request: int
    statuses: LimitStatuses

    def release(self, input: int, output: int) -> None:
        """The request has ended and has used this."""
        self.client.end_limits(messages.EndLimits(self.request, input, output))

    def undo(self) -> None:
        """Nothing was taken after all."""
        self.client.end_limits(messages.EndLimits(self.request, undone=True))

    def limit_statuses(self) -> LimitStatuses:
        """Return how the strictest limits stood when they were taken."""
        return self.statuses


class _Limiter:
    """Limits of accounts, which are counted elsewhere, and others."""

    def __init__(self, client: AccountsClient, own: RateLimiter) -> None:
        self._client = client
        self._own = own

    def take_now(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Lease | None:
        """As :meth:`take`, or ``None`` where that would have to wait."""
        if any(isinstance(scope, AccountLimits) for scope in scopes):
            return None
        return self._own.take_now(scopes, estimate)

    async def take(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Lease:
        """A lease on all scopes; see :meth:`causerie.access.limits.RateLimiter.take`."""
        others = [scope for scope in scopes if not isinstance(scope, AccountLimits)]
        lease = self._own.take_now(others, estimate) or await self._own.take(others, estimate)
        try:
            for scope in scopes:
                if isinstance(scope, AccountLimits):
                    taken = await self._client.take_limits(scope, estimate())
                    lease = CombinedLease(first=taken, second=lease)
        except BaseException:
            lease.undo()
            raise
        return lease
