"""The books of one process: what a request may cost before it, what it did cost after it.

Before a request its estimate is held against the budgets of its key, its person
and its project. When it has ended, however it did, its cost is settled and its record
made safe; only then may its client be told that it has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

from msgspec import Struct

from causerie.access.keys import Caller
from causerie.access.quota import RateScope, Tokens
from causerie.accounts.budgets import Budgets, Reservation
from causerie.accounts.entitlements import Entitlements
from causerie.accounts.key_cache import AccountCaller
from causerie.accounts.prices import FREE, ModelPrices, is_charged
from causerie.accounts.recorder import Recorder
from causerie.errors import InternalError, StoreUnavailable
from causerie.metering.ledger import INTERRUPTED, Ledger, UsageRecord, record_id
from causerie.metering.meter import Record

_INTERRUPTED = "The service ended while the request ran."


class RequestHold(Struct, frozen=True):
    """Reservation and prices of one request, fixed at its start: a reload changes neither."""

    prices: ModelPrices
    reservation: Reservation | None = None


class Bookkeeping:
    """Holds, settles and records.

    ``prices`` are those of requests that begin; ``recorder`` keeps contents, where projects
    want that.
    """

    def __init__(self, ledger: Ledger, budgets: Budgets, recorder: Recorder | None = None) -> None:
        self._ledger = ledger
        self._recorder = recorder
        self._budgets = budgets
        self._entitlements = Entitlements()
        self.prices = ModelPrices()

    def obstacle(self) -> str:
        """Return why no request could be recorded now, or an empty text."""
        return self._ledger.obstacle()

    def scopes(self, caller: Caller, model: str) -> tuple[RateScope, ...]:
        """Return the scopes whose limits apply to the caller with this model."""
        if not isinstance(caller, AccountCaller):
            return ()
        return self._entitlements.of(caller.grant, model).scopes

    async def reserve(self, caller: Caller, model: str, need: Callable[[], Tokens]) -> RequestHold:
        """Hold the estimate of a request against the budgets that apply, if any do.

        Raises :class:`OverBudget`, and :class:`StoreUnavailable` where usage
        could not be recorded or what was spent cannot be known.
        """
        if self._ledger.full:
            raise StoreUnavailable("Usage cannot be recorded now. Try again.")
        prices = self.prices
        if not isinstance(caller, AccountCaller):
            return RequestHold(prices)
        claims = self._entitlements.of(caller.grant, model).claims
        if not claims:
            return RequestHold(prices)
        tokens = need()
        price = prices.models.get(model, FREE)
        cost = price.most(prompt=tokens.input, completion=tokens.output)
        total = tokens.input + tokens.output
        return RequestHold(prices, await self._budgets.reserve(claims, model, cost, total))

    def release(self, held: object) -> None:
        """Give back what :meth:`reserve` holds."""
        if isinstance(held, RequestHold) and held.reservation is not None:
            held.reservation.release()

    def begin_request(self, record: Record, prompt: int) -> None:
        """Write down what the request leaves if this process ends before it: it is not charged.

        Raises :class:`StoreUnavailable` if its usage could not be recorded.
        """
        record.id = record.id or record_id()
        self._ledger.begin_request(_interrupted(record, prompt))

    async def enter(self, record: Record) -> None:
        """Settle what a request used, and return when its record is safe.

        Raises :class:`StoreUnavailable` where it cannot be made safe.
        """
        used = record.used
        held = record.held if isinstance(record.held, RequestHold) else RequestHold(self.prices)
        record.cost = cost = held.prices.of(record.model, record.served_by).charge(
            status=record.status,
            prompt=used.prompt,
            cached=used.cached,
            completion=used.completion,
            reasoning=used.reasoning,
        )
        usage = _usage(record, cost)
        contents = record.contents
        record.contents = record.held = None  # the record is kept until it is counted
        if contents is not None and record.attempts and self._recorder is not None:
            self._recorder.put(usage, contents)
        reservation = held.reservation
        if reservation is None:
            await self._ledger.commit(usage)
            return
        charged = is_charged(record.status, used.prompt, used.completion)
        tokens = used.prompt + used.completion if charged else 0
        try:
            if not self._ledger.away:  # else other replicas hear of it only once it is safe
                await reservation.settle(cost, tokens)
        finally:  # whoever waits may be cancelled, and the record has to be kept
            try:
                await self._ledger.commit(usage)
            except Exception:  # who is told this instead of the answer is not charged
                reservation.take_back()
                raise
            finally:
                await reservation.settle(cost, tokens)


def _interrupted(record: Record, prompt: int) -> UsageRecord:
    """The record of a request that runs now, as it is kept if it never ends."""
    return UsageRecord(
        id=record.id,
        request_id=record.request_id,
        at=_now() - _us(time.monotonic() - record.started),
        project=record.project,
        key=record.key,
        user=record.user,
        door=record.door,
        model=record.model,
        stream=record.stream,
        status=InternalError.status,
        code=INTERRUPTED,
        prompt=prompt,
        estimated=True,
        reason=_INTERRUPTED,
        app=record.labels.app,
        referer=record.labels.referer,
        tag=record.labels.tag,
    )


def _usage(record: Record, cost: Decimal) -> UsageRecord:
    """The record as it is kept."""
    used = record.used
    return UsageRecord(
        id=record.id or record_id(),
        request_id=record.request_id,
        at=_now() - _us(record.duration_seconds),
        project=record.project,
        key=record.key,
        user=record.user,
        door=record.door,
        model=record.model or record.asked,
        served_by=record.served_by,
        stream=record.stream,
        status=record.status,
        code=record.code,
        finish=record.finish,
        attempts=record.attempts,
        prompt=used.prompt,
        cached=used.cached,
        completion=used.completion,
        reasoning=used.reasoning,
        cost=cost,
        queue_us=_us(record.queue_seconds),
        first_token_us=_first(record.first_token_seconds),
        duration_us=_us(record.duration_seconds),
        upstream_us=_us(record.upstream_seconds),
        continued=record.continued,
        estimated=used.estimated,
        tried=tuple(record.tried),
        reason=record.reason,
        param=record.param,
        app=record.labels.app,
        referer=record.labels.referer,
        tag=record.labels.tag,
        cache_miss=record.cache_miss,
    )


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1_000_000)


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)


def _first(seconds: float | None) -> int | None:
    return None if seconds is None else _us(seconds)
