"""Bookkeeping of one process: budget reservations, prices and usage records of its requests.

Before a request its estimated cost is reserved in the budgets of its key, person and project. After
it the cost is settled and the record is stored durably, before the client sees the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs

from causerie.access.keys import Caller
from causerie.access.limits import RateScope, SpentProviders, Tokens
from causerie.catalog.model import TargetTariffs, Tariff
from causerie.errors import InternalError, StoreUnavailable
from causerie.hosted.accounts.budgets import Budgets, Reservation, entitlement
from causerie.hosted.accounts.key_cache import AccountCaller
from causerie.hosted.accounts.recordings import Recorder
from causerie.hosted.accounts.spending import LiveScopeBudgets
from causerie.metering.ledger import (
    INTERRUPTED,
    INTERRUPTED_WORDS,
    Ledger,
    UsageRecord,
    record_id,
    unrecorded,
)
from causerie.metering.meter import Record
from causerie.protocol.events import Usage

_CHECKPOINT_SECONDS = 5.0
_BATCH = 100  # requests: each takes some 30 µs


_BEGUN = ("request_id", "project", "key", "user", "door", "model", "operation", "stream")
_LABELS = ("app", "referer", "tag")
_ENDED = (
    *("served_by", "stream", "status", "code", "finish", "attempts", "continued", "reason"),
    *("param", "cache_miss"),
)
_TOKENS = ("prompt", "cached", "written", "completion", "reasoning")


def _copy_fields(source: object, *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _build_initial_interrupted_usage(record: Record, prompt_tokens: int) -> UsageRecord:
    return UsageRecord(
        id=record_id(),
        at=time.time_ns() // 1000 - _to_microseconds(time.monotonic() - record.started),
        **_copy_fields(record, *_BEGUN),
        **_copy_fields(record.labels, *_LABELS),
        status=InternalError.status,
        code=INTERRUPTED,
        prompt=prompt_tokens,
        estimated=True,
        reason=INTERRUPTED_WORDS,
    )


def _build_checkpoint_usage(record: Record, usage_until_now: UsageRecord) -> UsageRecord | None:
    outcome = record.outcome
    if outcome is None or not record.stream:
        return None
    used = outcome.usage()
    if used.completion == usage_until_now.completion or not outcome.delivered:
        return None
    return structs.replace(
        usage_until_now,
        served_by=outcome.answered_by,
        attempts=len(outcome.tried),
        **_copy_fields(used, *_TOKENS),
        first_token_us=_to_microseconds_or_none(record.first_token_seconds),
        duration_us=_to_microseconds(time.monotonic() - record.started),
    )


def _build_unpriced_final_usage(record: Record, usage_until_now: UsageRecord) -> UsageRecord:
    return structs.replace(
        usage_until_now,
        model=record.model or record.asked,
        **_copy_fields(record, *_ENDED),
        **_copy_fields(record.used, *_TOKENS, "units", "estimated"),
        queue_us=_to_microseconds(record.queue_seconds),
        first_token_us=_to_microseconds_or_none(record.first_token_seconds),
        duration_us=_to_microseconds(record.duration_seconds),
        upstream_us=_to_microseconds(record.upstream_seconds),
        tried=tuple(record.tried),
    )


def _to_microseconds(seconds: float) -> int:
    return int(seconds * 1_000_000)


def _to_microseconds_or_none(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1_000_000)


FREE = Tariff()
_NONE_SPENT: SpentProviders = {}


class ModelPrices(Struct, frozen=True):
    models: Mapping[str, Tariff] = {}
    """By model id: the highest price of its targets."""
    endpoints: Mapping[tuple[str, str], Tariff] = {}
    """By model id and target, where targets differ."""
    wildcards: Mapping[str, Callable[[str], TargetTariffs]] = {}
    """By id of a wildcard: the prices of the model that a name behind its beginning means."""

    def of(self, model: str, served_by: str, named: str = "") -> Tariff:
        if model in self.wildcards:
            return self._get_wildcard_tariffs(model, named).of(served_by)
        return self.endpoints.get((model, served_by)) or self.models.get(model, FREE)

    def dearest(self, model: str, named: str) -> Tariff:
        """Return the tariff of the model's dearest target, which bounds the cost of a request."""
        if model in self.wildcards:
            return self._get_wildcard_tariffs(model, named).dearest
        return self.models.get(model, FREE)

    def _get_wildcard_tariffs(self, wildcard_id: str, requested_model: str) -> TargetTariffs:
        return self.wildcards[wildcard_id](requested_model[len(wildcard_id) - 1 :])


class RequestHold(Struct, frozen=True):
    """Prices and budget reservation of one request; a reload of the settings changes neither."""

    prices: ModelPrices
    reservation: Reservation | None = None
    model: str = ""
    """Id of the model's entry, which has the price."""

    def priced(self, usage: UsageRecord) -> UsageRecord:
        if not usage.charged:
            return usage
        used = Usage(
            *(usage.prompt, usage.completion, usage.cached, usage.reasoning),
            units=usage.units,
            written=usage.written,
        )
        price = self.prices.of(self.model or usage.model, usage.served_by, usage.model)
        return structs.replace(usage, cost=price.charge(used))


class Bookkeeping(Struct):
    """Reserves, settles and records requests.

    Running ones have the usage records that apply if this process ends before them. Every few
    seconds that of each stream is written with the tokens delivered until then, so a crash loses
    only the charge of a stream's last seconds.

    ``prices`` apply to new requests; ``recorder`` stores contents for projects that keep them.
    """

    ledger: Ledger
    _budgets: Budgets
    _content_recorder: Recorder | None = None
    _scope_budgets: LiveScopeBudgets | None = None
    _running_requests: dict[str, tuple[Record, UsageRecord]] = {}
    _due_request_ids: list[str] = []
    _checkpoint_timer: asyncio.TimerHandle | None = None
    prices: ModelPrices = ModelPrices()
    logs_contents: bool = True

    def scopes(self, caller: Caller, model: str) -> tuple[RateScope, ...]:
        if not isinstance(caller, AccountCaller):
            return ()
        return entitlement(caller.grant, model).scopes

    @property
    def spent_providers(self) -> SpentProviders:
        return _NONE_SPENT if self._scope_budgets is None else self._scope_budgets.spent

    async def reserve(
        self, caller: Caller, model: str, need: Callable[[], Tokens], named: str = "", tag: str = ""
    ) -> RequestHold:
        """Reserve a request's highest cost; raise :class:`StoreUnavailable` for a full ledger."""
        if self.ledger.full:
            raise StoreUnavailable("Usage cannot be recorded now. Try again.")
        prices = self.prices
        if not isinstance(caller, AccountCaller):
            return RequestHold(prices, None, model)
        claims = entitlement(caller.grant, model).claims
        if tag and self._scope_budgets is not None:
            claims = (*claims, *self._scope_budgets.tags.get(tag, ()))
        if not claims:
            return RequestHold(prices, None, model)
        tokens = need()
        cost = prices.dearest(model, named).most(tokens.input, tokens.output, tokens.units)
        total = tokens.input + tokens.output
        reservation = await self._budgets.reserve(claims, named or model, cost, total)
        return RequestHold(prices, reservation, model)

    def release(self, held: object) -> None:
        if isinstance(held, RequestHold) and held.reservation is not None:
            held.reservation.release()

    def begin_request(self, record: Record, prompt: int) -> None:
        usage = _build_initial_interrupted_usage(record, prompt)
        record.id = usage.id
        self._running_requests[usage.id] = record, usage
        if self._checkpoint_timer is None:
            self._schedule_checkpoints(_CHECKPOINT_SECONDS)
        self.ledger.begin_request(usage)

    def _schedule_checkpoints(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._checkpoint_timer = loop.call_later(seconds, self._write_checkpoints_of_one_batch)

    def _write_checkpoints_of_one_batch(self) -> None:
        due = self._due_request_ids = self._due_request_ids or list(self._running_requests)
        for id in due[-_BATCH:]:
            if id in self._running_requests:
                record, before = self._running_requests[id]
                usage = _build_checkpoint_usage(record, before)
                if usage is not None:
                    self._running_requests[id] = record, usage
                    with suppress(StoreUnavailable):  # the record that was written before stays
                        self.ledger.begin_request(self._get_prices_and_hold(record).priced(usage))
        del due[-_BATCH:]
        self._checkpoint_timer = None
        if self._running_requests:
            self._schedule_checkpoints(0 if due else _CHECKPOINT_SECONDS)

    def _get_prices_and_hold(self, record: Record) -> RequestHold:
        return record.held if isinstance(record.held, RequestHold) else RequestHold(self.prices)

    async def enter(self, record: Record) -> None:
        running = self._running_requests.pop(record.id, None)
        begun = _build_initial_interrupted_usage(record, 0) if running is None else running[1]
        hold = self._get_prices_and_hold(record)
        usage = hold.priced(_build_unpriced_final_usage(record, begun))
        record.cost = usage.cost
        contents = record.contents
        record.contents = record.held = None  # the record is kept until it is counted
        kept = contents is not None and record.attempts and self.logs_contents
        if kept and contents is not None and self._content_recorder is not None:
            self._content_recorder.put(usage, contents)
        await self.keep(usage, hold)
        if self._scope_budgets is not None:
            self._scope_budgets.count(usage)

    async def keep(self, usage: UsageRecord, hold: RequestHold) -> None:
        """Settle the reservation and store the usage record; raise :class:`StoreUnavailable`."""
        reservation = hold.reservation
        if reservation is None:
            await self.ledger.commit(usage)
            return
        tokens = usage.prompt + usage.completion if usage.charged else 0
        try:
            if not self.ledger.away:  # else other replicas hear of it only once it is safe
                if usage.cost and self._budgets.shared_budgets is not None:
                    self.ledger.prepare(usage)
                await reservation.settle(usage.cost, tokens)
        finally:  # whoever waits may be cancelled, and the record has to be kept
            try:
                await self.ledger.commit(usage)
            except StoreUnavailable as failure:  # the client is told this instead of the end
                if not unrecorded(usage, failure).charged:
                    reservation.take_back()
                raise
            except Exception:
                reservation.take_back()
                raise
            finally:
                await reservation.settle(usage.cost, tokens)
