"""Limits and budgets that replicas share: a server counts their use, and replicas take leases.

An operation takes a request from all its scopes or from none, by the server's clock; another holds
its estimate in all its budgets or in none. Two more release what was taken, and count what was
spent. Running requests and holds are counted by process, so they end with a process that dies.
Without the server each replica counts in its own memory, or refuses, as configured.

The database is the truth of spent amounts: a replica reports them where the server knows less.
Nothing is counted twice, because a replica writes into the database only after the server has
counted it or never will. The exception is use that waited for an unavailable database, if it is
read in between."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from struct import Struct as Layout
from struct import pack

from msgspec import Struct

from causerie.access.limits import (
    UNLIMITED,
    ExceededLimit,
    Lease,
    LimitStatus,
    LimitStatuses,
    MemoryCounters,
    MemoryLease,
    QuotaRefusal,
    RateScope,
    Tokens,
    concurrency,
    exceeded,
    limited,
    needed,
)
from causerie.access.shared_budgets import HoldAnswer, HoldRequest
from causerie.distributed.connection import ConnectionLost, Replica, SharedOperation

TICK = 100_000  # microseconds
_MINUTE = 600  # ticks

# How the script packs numbers.
_ASKED = Layout("<cdd")
_LIMITS = Layout("<6d")
_TAKEN = Layout("<Bq")
_WINDOW = Layout("<9q")
_REFUSING_WINDOW = Layout("<13q")
_USED = Layout("<ddd")


class ScopeWindow(Struct):
    """Use of a scope in the last minute, as the server counted it at one moment.

    ``first`` and ``freed`` are the ticks after which one more unit of each measure is free, or as
    many as a refused request needs; 0 if none is taken.
    """

    scope: RateScope
    tick: int
    requests: int
    input: int
    output: int
    running: int
    first: Sequence[int]
    freed: Sequence[int] = ()

    @property
    def used(self) -> tuple[int, int, int, int]:
        return self.requests, self.input + self.output, self.input, self.output


def refused(
    found: Sequence[ScopeWindow], input: int, outputs: Sequence[int], now: int
) -> QuotaRefusal:
    """Return the limits that refuse the request, at ``now`` microseconds."""
    limits: list[ExceededLimit] = []
    for each, output in zip(found, outputs, strict=True):
        need, wait = Tokens(input, output), partial(_seconds_until_free, each, now)
        limits += exceeded(each.scope, each.used, each.running, need, wait)
    return QuotaRefusal(tuple(limits), limit_statuses(found, now))


def limit_statuses(found: Sequence[ScopeWindow], now: int) -> LimitStatuses:
    """Return the status of the strictest request limit and token limit, at ``now`` microseconds."""
    requests: list[tuple[int, int, int]] = []
    tokens: list[tuple[int, int, int]] = []
    for each in found:
        scope = each.scope
        limits = (scope.requests, scope.tokens, scope.input, scope.output)
        rest = [
            (limit - used, limit, first)
            for limit, used, first in zip(limits, each.used, each.first, strict=True)
        ]
        if limits[0] < UNLIMITED:
            requests.append(rest[0])
        if scope.counts_tokens:
            tokens += rest[1:]
    return _find_strictest_status(requests, now), _find_strictest_status(tokens, now)


def _find_strictest_status(limits: Sequence[tuple[int, int, int]], now: int) -> LimitStatus | None:
    if not limits:
        return None
    left, limit, tick = min(limits, key=lambda each: each[0])
    reset = min(max(tick + _MINUTE - now // TICK, 0), _MINUTE) if tick else 0
    return limit, max(left, 0), reset


def _seconds_until_free(window: ScopeWindow, now: int, measure_index: int, _amount: int) -> float:
    tick = window.freed[measure_index]
    return max((tick + _MINUTE) * TICK - now, 0) / 1e6 if tick else 0.0


class DistributedLease(Lease):
    """A lease on windows in the server, at ``now`` microseconds there and ``at`` here."""

    keeper: DistributedCounters
    found: Sequence[ScopeWindow]
    input: int
    outputs: Sequence[int]
    now: int
    at: int

    def release(self, input: int, output: int) -> None:
        self._settle_usage(input, output, 0)

    def undo(self) -> None:
        self._settle_usage(0, 0, -1)

    def limit_statuses(self) -> LimitStatuses:
        return limit_statuses(self.found, self.now + self.keeper.elapsed() - self.at)

    def _settle_usage(self, input: int, output: int, request_change: int) -> None:
        taken = []
        for each, reserved in zip(self.found, self.outputs, strict=True):
            more = (0, 0)
            if each.scope.counts_tokens:
                more = input - self.input, output - reserved
                each.input += more[0]
                each.output += more[1]
            taken.append((each.scope, each.tick, *more))
        self.keeper.release(taken, request_change)


class LocalLease(MemoryLease):
    """A lease on windows in memory, taken without the server."""

    keeper: DistributedCounters
    join: int
    """Number of the join at which the server was not told of it."""

    def release(self, input: int, output: int) -> None:
        super().release(input, output)
        scopes = [scope for scope, *_ in self.parts]
        if self.keeper.replica.joins == self.join:
            self.keeper.count(scopes, -1)
        else:
            self.keeper.release([(scope, 0, 0, 0) for scope in scopes])


class DistributedCounters:
    """Rate limits of one replica by windows in the server; ``now`` (microseconds) is for tests."""

    def __init__(self, replica: Replica, *, now: Callable[[], int] | None = None) -> None:
        self.replica = replica
        self._test_clock = now
        self._fallback_counters = MemoryCounters()
        self._running_by_scope: Counter[str] = Counter()
        replica.holder(
            lambda: {self._scope_key(id): count for id, count in self._running_by_scope.items()},
            lambda held: pack(f"<c{len(held)}d", b"j", *held.values()),
        )

    def take_now(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Lease | None:
        """Return a lease without waiting if there are no limits, else ``None``."""
        return None if scopes else Lease()

    async def take(
        self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]
    ) -> DistributedLease | LocalLease:
        """Return a lease; without the server, take it in memory or raise ``StoreUnavailable``."""
        need = needed(scopes, estimate)
        if self.replica.here:
            try:
                taken = await self._request_lease(scopes, need)
            except ConnectionLost:
                pass
            else:
                if isinstance(taken, QuotaRefusal):
                    raise limited(taken)
                return taken
        self.replica.alone("limits")
        # Requests that run here also count if the server admitted them.
        full = [
            concurrency(scope, running)
            for scope in scopes
            if (running := self._running_by_scope[scope.id]) >= scope.concurrent
        ]
        if full:
            raise limited(QuotaRefusal(tuple(full), (None, None)))
        lease = self._fallback_counters.take_now(scopes, lambda: need)
        self.count(scopes, 1)
        join = self.replica.untold_join
        return LocalLease(lease.clock, lease.input, lease.parts, self, join)

    async def _request_lease(
        self, scopes: Sequence[RateScope], need: Tokens
    ) -> DistributedLease | QuotaRefusal:
        outputs = [min(need.output, each.output, each.tokens - need.input) for each in scopes]
        words = _ASKED.pack(b"t", self._get_time_override(), need.input)
        for scope, output in zip(scopes, outputs, strict=True):
            limits = scope.requests, scope.tokens, scope.input, scope.output, scope.concurrent
            words += _LIMITS.pack(*limits, output if scope.counts_tokens else -1)
        parse = partial(self._count_and_parse_lease, scopes, need.input, outputs)
        keys = [self._scope_key(scope.id) for scope in scopes]
        return await self.replica.ask(words, keys, parse, _undo_if_lease)

    def _count_and_parse_lease(
        self, scopes: Sequence[RateScope], input: int, outputs: Sequence[int], reply: bytes
    ) -> DistributedLease | QuotaRefusal:
        taken, now = _TAKEN.unpack_from(reply)
        windows = (_WINDOW if taken else _REFUSING_WINDOW).iter_unpack(reply[_TAKEN.size :])
        found = [
            ScopeWindow(scope, *(*each[:5], each[5:9], each[9:]))
            for scope, each in zip(scopes, windows, strict=True)
        ]
        if not taken:
            return refused(found, input, outputs, now)
        self.count(scopes, 1)
        return DistributedLease(self, found, input, outputs, now, self.elapsed())

    def count(self, scopes: Sequence[RateScope], more: int) -> None:
        """Add ``more`` to the number of running requests of each scope."""
        for scope in scopes:
            self._running_by_scope[scope.id] += more
            if not self._running_by_scope[scope.id]:
                del self._running_by_scope[scope.id]

    def release(self, taken: Sequence[tuple[RateScope, int, int, int]], requests: int = 0) -> None:
        """Release the requests and tokens taken from scopes, without waiting for the server.

        Of each scope the tick, and how much more input and output was used than was reserved; a
        tick of 0 for a lease without the server, which may know of it by now.
        """
        self.count([scope for scope, *_ in taken], -1)
        words = _ASKED.pack(b"r", self._get_time_override(), requests)
        words += b"".join(_USED.pack(*used) for _, *used in taken)
        keys = [self._scope_key(scope.id) for scope, *_ in taken]
        self.replica.send(SharedOperation(words, keys))

    def _get_time_override(self) -> int:
        # Of the server's clock: 0 says now.
        return 0 if self._test_clock is None else self._test_clock()

    def elapsed(self) -> int:
        """Return a monotonic time in microseconds."""
        return time.monotonic_ns() // 1000 if self._test_clock is None else self._test_clock()

    def _scope_key(self, scope_id: str) -> str:
        return self.replica.key(f"scope:{scope_id}")


def _undo_if_lease(outcome: DistributedLease | QuotaRefusal) -> None:
    if isinstance(outcome, DistributedLease):
        outcome.undo()


# Budgets.

_UNKNOWN = 2
_BILLION = 10**9
_STOOD = Layout("<4q")
_SPENT = Layout("<4d")
_PARTS = Layout("<2d")


class DistributedBudgets:
    def __init__(self, replica: Replica) -> None:
        self._server = replica
        self._reserved_by_budget: Counter[str] = Counter()  # amounts by place
        self._untold_join_by_holds_id: dict[int, int] = {}  # of holds without the server
        replica.holder(
            lambda: {self._budget_key(place): n for place, n in self._reserved_by_budget.items()},
            lambda held: b"k" + b"".join(_PARTS.pack(*divmod(n, _BILLION)) for n in held.values()),
        )

    @property
    def joins(self) -> int:
        return self._server.joins

    async def hold(self, wants: Sequence[HoldRequest], *, read: bool) -> HoldAnswer | None:
        if self._server.here:
            with suppress(ConnectionLost):
                return await self._reserve_shared(wants, read)
        self._server.alone("budgets")
        return None

    async def _reserve_shared(self, holds: Sequence[HoldRequest], knows_spent: bool) -> HoldAnswer:
        def undo(answer: HoldAnswer) -> None:
            if answer.outcome == "held":
                self.give_back(holds)

        words = pack("<cB", b"h", knows_spent)
        for want in holds:
            for amount in (want.amount, want.estimate, want.spent):
                words += _PARTS.pack(*divmod(amount, _BILLION))
        keys = [self._budget_key(want.place) for want in holds]
        return await self._server.ask(words, keys, partial(self._count_and_parse_hold, holds), undo)

    def _count_and_parse_hold(self, holds: Sequence[HoldRequest], reply: bytes) -> HoldAnswer:
        held = reply[0]
        if held == _UNKNOWN:
            return HoldAnswer("spent unknown")
        stood = [
            (spent * _BILLION + spent_low, held * _BILLION + held_low)
            for spent, spent_low, held, held_low in _STOOD.iter_unpack(reply[1:])
        ]
        if not held:
            return HoldAnswer("refused", stood)
        self._add_reserved_amounts(holds, 1)
        return HoldAnswer("held", stood)

    def held_alone(self, wants: Sequence[HoldRequest]) -> None:
        self._add_reserved_amounts(wants, 1)
        self._untold_join_by_holds_id[id(wants)] = self._server.untold_join

    def give_back(self, wants: Sequence[HoldRequest]) -> None:
        self._add_reserved_amounts(wants, -1)
        if self._untold_join_by_holds_id.pop(id(wants), None) != self._server.joins:
            command = self._build_settle_command(wants, [0] * len(wants), held=True)
            self._server.send(SharedOperation(*command))

    async def settle(
        self, wants: Sequence[HoldRequest], spent: Sequence[int], *, held: bool
    ) -> None:
        if held:
            self._add_reserved_amounts(wants, -1)
            held = self._untold_join_by_holds_id.pop(id(wants), None) != self._server.joins
        with suppress(ConnectionLost):
            await self._server.ask(*self._build_settle_command(wants, spent, held=held), bytes)

    def _build_settle_command(
        self, holds: Sequence[HoldRequest], spent: Sequence[int], *, held: bool
    ) -> tuple[bytes, Sequence[str]]:
        words = pack("<cd", b"s", self._server.waits_until())
        for want, more in zip(holds, spent, strict=True):
            estimate = want.estimate if held else 0
            words += _SPENT.pack(*divmod(estimate, _BILLION), *divmod(more, _BILLION))
        return words, [self._budget_key(want.place) for want in holds]

    def _budget_key(self, budget_period: str) -> str:
        return self._server.key(f"budget:{budget_period}")

    def _add_reserved_amounts(self, holds: Sequence[HoldRequest], sign: int) -> None:
        for want in holds:
            self._reserved_by_budget[want.place] += sign * want.estimate
            if not self._reserved_by_budget[want.place]:
                del self._reserved_by_budget[want.place]
