"""The books of one process: what a request may cost before it, what it did cost after it, by the
prices of its tokens.

Before a request its estimate is held against the budgets of its key, its person and its
project. When it has ended, however it did, its cost is settled and its record made safe; only
then may its client be told that it has ended.
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


_BETWEEN_SECONDS = 5.0
_AT_ONCE = 100  # requests: each takes some 30 µs


class RunningRequests:
    """Requests that run, with the records that they leave if this process ends before them.

    ``write`` is called with the record of each stream every few seconds, with the tokens that were
    delivered until then. So a crash loses the charge of a stream's last seconds only.
    """

    def __init__(self, write: Callable[[Record, UsageRecord], None]) -> None:
        self._write = write
        self._running: dict[str, tuple[Record, UsageRecord]] = {}
        self._due: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, record: Record, prompt: int) -> UsageRecord:
        """Return the record of a request that goes to a target now."""
        usage = interrupted(record, prompt)
        self._running[usage.id] = record, usage
        if self._timer is None:
            self._look_again(_BETWEEN_SECONDS)
        return usage

    def end(self, record: Record) -> None:
        """Forget a request that has ended."""
        self._running.pop(record.id, None)

    def _look_again(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        due = self._due = self._due or list(self._running)
        for id in due[-_AT_ONCE:]:
            if id in self._running:
                record, before = self._running[id]
                usage = _so_far(record, before)
                if usage is not None:
                    self._running[id] = record, usage
                    self._write(record, usage)
        del due[-_AT_ONCE:]
        self._timer = None
        if self._running:
            self._look_again(0 if due else _BETWEEN_SECONDS)


def _so_far(record: Record, before: UsageRecord) -> UsageRecord | None:
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
        first_token_us=_first(record.first_token_seconds),
        duration_us=_us(time.monotonic() - record.started),
    )


def interrupted(record: Record, prompt: int) -> UsageRecord:
    """Return the record of a request that runs now, as it is kept if it never ends."""
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


def ended(record: Record) -> UsageRecord:
    """Return the record of a request that has ended, without its cost."""
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


_SMALLEST = Decimal("0.000000001")
NOTHING = Decimal(0)


class TokenPrice(Struct, frozen=True, kw_only=True):
    """Price of one token of each kind, and of a request as such."""

    prompt: Decimal = NOTHING
    completion: Decimal = NOTHING
    cached: Decimal | None = None
    """Tokens from the prompt cache; unset: like others of the prompt."""
    reasoning: Decimal | None = None
    """Tokens of reasoning, a part of the completion; unset: like others of the completion."""
    request: Decimal = NOTHING

    @property
    def dearest_output(self) -> Decimal:
        """The most that one token of output can cost."""
        return self.completion if self.reasoning is None else max(self.completion, self.reasoning)

    def cost(self, *, prompt: int, cached: int, completion: int, reasoning: int = 0) -> Decimal:
        """The money for so many tokens, to a billionth, rounded half to even.

        ``cached`` are some of ``prompt``, ``reasoning`` some of ``completion``.
        """
        from_cache = self.prompt if self.cached is None else self.cached
        thought = self.completion if self.reasoning is None else self.reasoning
        cost = (
            self.prompt * (prompt - cached)
            + from_cache * cached
            + self.completion * (completion - reasoning)
            + thought * reasoning
            + self.request
        )
        return cost.quantize(_SMALLEST, ROUND_HALF_EVEN)

    def most(self, *, prompt: int, completion: int) -> Decimal:
        """The most that so many tokens can cost, whatever part of them is reasoning."""
        cost = self.prompt * prompt + self.dearest_output * completion + self.request
        return cost.quantize(_SMALLEST, ROUND_HALF_EVEN)


FREE = TokenPrice()


class ModelPrices(Struct, frozen=True):
    """Prices of models."""

    models: Mapping[str, TokenPrice] = {}
    """By model id; the highest price of its endpoints if these differ."""
    endpoints: Mapping[tuple[str, str], TokenPrice] = {}
    """By model id and endpoint that answers, if the endpoint makes a difference."""

    def of(self, model: str, served_by: str) -> TokenPrice:
        """Return the price of a model's tokens, by the endpoint that answers."""
        return self.endpoints.get((model, served_by)) or self.models.get(model, FREE)


class RequestHold(Struct, frozen=True):
    """Reservation and prices of one request, fixed at its start: a reload changes neither."""

    prices: ModelPrices
    reservation: Reservation | None = None

    def priced(self, usage: UsageRecord) -> UsageRecord:
        if not usage.charged:
            return usage
        price = self.prices.of(usage.model, usage.served_by)
        cost = price.cost(
            prompt=usage.prompt,
            cached=usage.cached,
            completion=usage.completion,
            reasoning=usage.reasoning,
        )
        return structs.replace(usage, cost=cost)


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
        self._running = RunningRequests(self._checkpoint)
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
        """Write down what the request leaves if this process ends before it.

        It is charged for what was delivered of a stream some seconds before. Raises
        :class:`StoreUnavailable` if its usage could not be recorded.
        """
        self.write_down(self._running.begin(record, prompt))

    def _checkpoint(self, record: Record, usage: UsageRecord) -> None:
        hold = record.held if isinstance(record.held, RequestHold) else self.no_hold()
        self.checkpoint(hold.priced(usage))

    def checkpoint(self, usage: UsageRecord) -> None:
        """Write down what a running request leaves from now on, if it can be kept."""
        with suppress(StoreUnavailable):  # what was written before stays
            self.write_down(usage)

    def write_down(self, usage: UsageRecord) -> None:
        """As :meth:`begin_request`, for the record that the request leaves."""
        self._ledger.begin_request(usage)

    async def enter(self, record: Record) -> None:
        """Settle what a request used, and return when its record is safe.

        Raises :class:`StoreUnavailable` where it cannot be made safe.
        """
        self._running.end(record)
        hold = record.held if isinstance(record.held, RequestHold) else self.no_hold()
        usage = hold.priced(ended(record))
        record.cost = usage.cost
        contents = record.contents
        record.contents = record.held = None  # the record is kept until it is counted
        if contents is not None and record.attempts and self._recorder is not None:
            self._recorder.put(usage, contents)
        await self.keep(usage, hold)

    def no_hold(self) -> RequestHold:
        """Return what a request holds that was refused before it could hold anything."""
        return RequestHold(self.prices)

    async def keep(self, usage: UsageRecord, hold: RequestHold) -> None:
        """Settle a record with its cost, and return when it is safe; raises as :meth:`enter`."""
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
