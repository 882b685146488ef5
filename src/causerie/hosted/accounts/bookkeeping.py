"""Bookkeeping of one process: budget reservations, prices and usage records of its requests.

Before a request its estimated cost is reserved in the budgets of its key, person and project. After
it the cost is settled and the record is stored durably, before the client sees the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal

from msgspec import Struct, structs

from causerie.access.keys import Caller
from causerie.access.limits import RateScope, Tokens
from causerie.errors import InternalError, StoreUnavailable
from causerie.hosted.accounts.budgets import Budgets, Entitlements, Reservation
from causerie.hosted.accounts.key_cache import AccountCaller
from causerie.hosted.accounts.recordings import Recorder
from causerie.metering.ledger import (
    INTERRUPTED,
    INTERRUPTED_WORDS,
    Ledger,
    UsageRecord,
    record_id,
    unrecorded,
)
from causerie.metering.meter import Record

_CHECKPOINT_SECONDS = 5.0
_BATCH = 100  # requests: each takes some 30 µs


class RunningRequests:
    """Running requests, with the usage records that apply if this process ends before them.

    ``write`` is called every few seconds with the record of each stream and the tokens delivered
    until then, so a crash loses only the charge of a stream's last seconds.
    """

    def __init__(self, write: Callable[[Record, UsageRecord], None]) -> None:
        self._write = write
        self._running: dict[str, tuple[Record, UsageRecord]] = {}
        self._due: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, record: Record, prompt: int) -> UsageRecord:
        """Add a request, and return its record as of now."""
        usage = _interrupted(record, prompt)
        self._running[usage.id] = record, usage
        if self._timer is None:
            self._schedule(_CHECKPOINT_SECONDS)
        return usage

    def end(self, record: Record) -> None:
        """Remove a request."""
        self._running.pop(record.id, None)

    def _schedule(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._checkpoint)

    def _checkpoint(self) -> None:
        due = self._due = self._due or list(self._running)
        for id in due[-_BATCH:]:
            if id in self._running:
                record, before = self._running[id]
                usage = _updated(record, before)
                if usage is not None:
                    self._running[id] = record, usage
                    self._write(record, usage)
        del due[-_BATCH:]
        self._timer = None
        if self._running:
            self._schedule(0 if due else _CHECKPOINT_SECONDS)


def _updated(record: Record, before: UsageRecord) -> UsageRecord | None:
    outcome = record.outcome
    if outcome is None or not record.stream:
        return None
    used = outcome.usage()
    if used.completion == before.completion or not outcome.delivered:
        return None
    return structs.replace(
        before,
        served_by=outcome.served_by,
        attempts=len(outcome.tried),
        prompt=used.prompt,
        cached=used.cached,
        completion=used.completion,
        reasoning=used.reasoning,
        first_token_us=_us_if_known(record.first_token_seconds),
        duration_us=_us(time.monotonic() - record.started),
    )


def _interrupted(record: Record, prompt: int) -> UsageRecord:
    record.id = record.id or record_id()
    return UsageRecord(
        id=record.id,
        request_id=record.request_id,
        at=_now() - _us(time.monotonic() - record.started),
        project=record.project,
        key=record.key,
        user=record.user,
        door=record.door,
        model=record.model,
        operation=record.operation,
        stream=record.stream,
        status=InternalError.status,
        code=INTERRUPTED,
        prompt=prompt,
        estimated=True,
        reason=INTERRUPTED_WORDS,
        app=record.labels.app,
        referer=record.labels.referer,
        tag=record.labels.tag,
    )


def _ended(record: Record) -> UsageRecord:
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
        operation=record.operation,
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
        units=used.units,
        queue_us=_us(record.queue_seconds),
        first_token_us=_us_if_known(record.first_token_seconds),
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


def _us_if_known(seconds: float | None) -> int | None:
    return None if seconds is None else _us(seconds)


_SMALLEST = Decimal("0.000000001")
NOTHING = Decimal(0)


class TokenPrice(Struct, frozen=True, kw_only=True):
    """Price of one token of each kind, and of one request."""

    prompt: Decimal = NOTHING
    completion: Decimal = NOTHING
    cached: Decimal | None = None
    """Prompt tokens from the cache; unset: as ``prompt``."""
    reasoning: Decimal | None = None
    """Completion tokens of reasoning; unset: as ``completion``."""
    request: Decimal = NOTHING

    @property
    def dearest_output(self) -> Decimal:
        """Highest price of one completion token."""
        return self.completion if self.reasoning is None else max(self.completion, self.reasoning)

    def cost(
        self, *, prompt: int, cached: int, completion: int, reasoning: int = 0, units: int = 0
    ) -> Decimal:
        """Return the cost of a request to a billionth, rounded half to even.

        ``cached`` are part of ``prompt``, ``reasoning`` of ``completion``. Of a rerank each of its
        search units (``units``) costs as much as a request.
        """
        cached_price = self.prompt if self.cached is None else self.cached
        reasoning_price = self.completion if self.reasoning is None else self.reasoning
        cost = (
            self.prompt * (prompt - cached)
            + cached_price * cached
            + self.completion * (completion - reasoning)
            + reasoning_price * reasoning
            + self.request * max(units, 1)
        )
        return cost.quantize(_SMALLEST, ROUND_HALF_EVEN)

    def most(self, *, prompt: int, completion: int, units: int = 0) -> Decimal:
        """Return the highest cost of so many tokens, whatever part of them is reasoning."""
        cost = self.prompt * prompt + self.dearest_output * completion
        cost += self.request * max(units, 1)
        return cost.quantize(_SMALLEST, ROUND_HALF_EVEN)


FREE = TokenPrice()


class ModelPrices(Struct, frozen=True):
    """Prices of models."""

    models: Mapping[str, TokenPrice] = {}
    """By model id: the highest price of its endpoints."""
    endpoints: Mapping[tuple[str, str], TokenPrice] = {}
    """By model id and endpoint, where endpoints differ."""

    def of(self, model: str, served_by: str) -> TokenPrice:
        """Return the price of a model at the endpoint that answered."""
        return self.endpoints.get((model, served_by)) or self.models.get(model, FREE)


class RequestHold(Struct, frozen=True):
    """Prices and budget reservation of one request; a reload of the settings changes neither."""

    prices: ModelPrices
    reservation: Reservation | None = None

    def priced(self, usage: UsageRecord) -> UsageRecord:
        if not usage.charged:
            return usage
        cost = self.prices.of(usage.model, usage.served_by).cost(
            prompt=usage.prompt,
            cached=usage.cached,
            completion=usage.completion,
            reasoning=usage.reasoning,
            units=usage.units,
        )
        return structs.replace(usage, cost=cost)


class Bookkeeping:
    """Reserves, settles and records requests.

    ``prices`` apply to new requests; ``recorder`` stores contents for projects that keep them.
    """

    def __init__(self, ledger: Ledger, budgets: Budgets, recorder: Recorder | None = None) -> None:
        self._ledger = ledger
        self._recorder = recorder
        self._budgets = budgets
        self._entitlements = Entitlements()
        self._running = RunningRequests(self._write_checkpoint)
        self.prices = ModelPrices()

    def obstacle(self) -> str:
        """Return why requests cannot be recorded now, or an empty text."""
        return self._ledger.obstacle()

    def scopes(self, caller: Caller, model: str) -> tuple[RateScope, ...]:
        """Return the scopes of the limits that apply to this caller and model."""
        if not isinstance(caller, AccountCaller):
            return ()
        return self._entitlements.of(caller.grant, model).scopes

    async def reserve(self, caller: Caller, model: str, need: Callable[[], Tokens]) -> RequestHold:
        """Reserve the estimated cost of a request in the budgets that apply.

        Raises :class:`OverBudget`, and :class:`StoreUnavailable` if usage cannot be recorded or
        read.
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
        cost = price.most(prompt=tokens.input, completion=tokens.output, units=tokens.units)
        total = tokens.input + tokens.output
        return RequestHold(prices, await self._budgets.reserve(claims, model, cost, total))

    def release(self, held: object) -> None:
        """Release a reservation of :meth:`reserve`."""
        if isinstance(held, RequestHold) and held.reservation is not None:
            held.reservation.release()

    def begin_request(self, record: Record, prompt: int) -> None:
        """Write the usage record that applies if this process ends before the request.

        Raises :class:`StoreUnavailable` if usage cannot be recorded.
        """
        self._ledger.begin_request(self._running.begin(record, prompt))

    def _write_checkpoint(self, record: Record, usage: UsageRecord) -> None:
        with suppress(StoreUnavailable):  # the record that was written before stays
            self._ledger.begin_request(self._hold(record).priced(usage))

    def _hold(self, record: Record) -> RequestHold:
        return record.held if isinstance(record.held, RequestHold) else RequestHold(self.prices)

    async def enter(self, record: Record) -> None:
        """Settle the cost of an ended request, and store its record durably.

        Raises :class:`StoreUnavailable` if the record cannot be stored.
        """
        self._running.end(record)
        hold = self._hold(record)
        usage = hold.priced(_ended(record))
        record.cost = usage.cost
        contents = record.contents
        record.contents = record.held = None  # the record is kept until it is counted
        if contents is not None and record.attempts and self._recorder is not None:
            self._recorder.put(usage, contents)
        await self.keep(usage, hold)

    async def keep(self, usage: UsageRecord, hold: RequestHold) -> None:
        """Settle and store a record with its cost; raise as :meth:`enter`."""
        reservation = hold.reservation
        if reservation is None:
            await self._ledger.commit(usage)
            return
        tokens = usage.prompt + usage.completion if usage.charged else 0
        try:
            if not self._ledger.away:  # else other replicas hear of it only once it is safe
                await reservation.settle(usage.cost, tokens)
        finally:  # whoever waits may be cancelled, and the record has to be kept
            try:
                await self._ledger.commit(usage)
            except StoreUnavailable as failure:  # the client is told this instead of the end
                if not unrecorded(usage, failure).charged:
                    reservation.take_back()
                raise
            except Exception:
                reservation.take_back()
                raise
            finally:
                await reservation.settle(usage.cost, tokens)
