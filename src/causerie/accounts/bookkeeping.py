"""The books of one process: what a request may cost before it, what it did cost after it.

Before a request its estimate is held against the budgets of its key and its
project. When it has ended, however it did, its cost is settled and its record
made safe; only then may its client be told that it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal

from causerie.access.keys import Caller
from causerie.access.quota import Scope, Tokens
from causerie.accounts.budgets import Budgets, Reservation
from causerie.accounts.entitlements import Entitlements
from causerie.accounts.prices import Price, is_charged
from causerie.accounts.recorder import Recorder
from causerie.accounts.ring import Member
from causerie.errors import StoreUnavailable
from causerie.metering.ledger import Ledger, UsageRecord, record_id
from causerie.metering.meter import Record

FREE = Price()


class Bookkeeping:
    """Holds, settles and records.

    ``prices`` are by the id of the model, ``offers`` by that and by who answers,
    where that makes a difference; ``prices`` are the highest of them then.
    ``recorder`` keeps contents, where projects want that.
    """

    def __init__(self, ledger: Ledger, budgets: Budgets, recorder: Recorder | None = None) -> None:
        self._ledger = ledger
        self._recorder = recorder
        self._budgets = budgets
        self._entitlements = Entitlements()
        self.prices: Mapping[str, Price] = {}
        self.offers: Mapping[tuple[str, str], Price] = {}

    def scopes(self, caller: Caller, model: str) -> tuple[Scope, ...]:
        """Whose limits hold for the caller, with this model."""
        if not isinstance(caller, Member):
            return ()
        return self._entitlements.of(caller.grant, model).scopes

    async def reserve(
        self, caller: Caller, model: str, need: Callable[[], Tokens]
    ) -> Reservation | None:
        """Hold the estimate of a request; ``None`` where no budget applies.

        Raises :class:`OverBudget`, and :class:`StoreUnavailable` where usage
        could not be recorded or what was spent cannot be known.
        """
        if self._ledger.full:
            raise StoreUnavailable("Usage cannot be recorded now. Try again.")
        if not isinstance(caller, Member):
            return None
        claims = self._entitlements.of(caller.grant, model).claims
        if not claims:
            return None
        tokens = need()
        price = self.prices.get(model, FREE)
        cost = price.most(prompt=tokens.input, completion=tokens.output)
        return await self._budgets.reserve(claims, model, cost, tokens.input + tokens.output)

    def release(self, reservation: object) -> None:
        """Give back what :meth:`reserve` holds."""
        if isinstance(reservation, Reservation):
            reservation.release()

    def price(self, model: str, served_by: str) -> Price:
        """What the use of a model costs, by who answers."""
        return self.offers.get((model, served_by)) or self.prices.get(model, FREE)

    async def enter(self, record: Record) -> None:
        """Settle what a request used, and return when its record is safe.

        Raises :class:`StoreUnavailable` where it cannot be made safe.
        """
        used = record.used
        price = self.price(record.model, record.served_by)
        cost = price.charge(
            status=record.status,
            prompt=used.prompt,
            cached=used.cached,
            completion=used.completion,
            reasoning=used.reasoning,
        )
        usage = _usage(record, cost)
        contents, reservation = record.contents, record.reservation
        record.contents = record.reservation = None  # the record is kept until it is counted
        if contents is not None and record.attempts and self._recorder is not None:
            self._recorder.put(usage, contents)
        try:
            if isinstance(reservation, Reservation):
                charged = is_charged(record.status, used.prompt, used.completion)
                tokens = used.prompt + used.completion if charged else 0
                await reservation.settle(cost, tokens)
        finally:  # whoever waits may be cancelled, and the record has to be kept
            await self._ledger.commit(usage)


def _usage(record: Record, cost: Decimal) -> UsageRecord:
    """The record as it is kept."""
    used = record.used
    return UsageRecord(
        id=record_id(),
        request_id=record.request_id,
        at=_now() - _us(record.duration_seconds),
        project=record.project,
        key=record.key,
        user=record.user,
        door=record.door,
        model=record.model,
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
    )


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1_000_000)


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)


def _first(seconds: float | None) -> int | None:
    return None if seconds is None else _us(seconds)
