"""The books of one process: what a request may cost before it, what it did cost after it.

Before a request its estimate is held against the budgets of its key, its person
and its project. When it has ended, however it did, its cost is settled and its record
made safe; only then may its client be told that it has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct, structs

from causerie.access.keys import Caller
from causerie.access.quota import RateScope, Tokens
from causerie.accounts.budgets import Budgets, Reservation
from causerie.accounts.entitlements import Entitlements
from causerie.accounts.key_cache import AccountCaller
from causerie.accounts.prices import FREE, ModelPrices
from causerie.accounts.recorder import Recorder
from causerie.errors import StoreUnavailable
from causerie.metering.ledger import Ledger, UsageRecord, unrecorded
from causerie.metering.meter import Record
from causerie.metering.usage_records import RunningRequests, ended


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
