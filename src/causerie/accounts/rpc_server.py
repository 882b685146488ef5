"""Accounts for worker processes: the process that has them answers what a worker asks.

One :class:`AccountsSession` for each worker. It keeps what requests of the worker hold, and gives
it back where the worker ends before them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from msgspec import Struct

from causerie.access.credential import Credential
from causerie.access.keys import Caller
from causerie.access.lease import Lease
from causerie.access.limits import RateLimiter
from causerie.access.quota import Tokens
from causerie.accounts import rpc_messages as messages
from causerie.accounts.bookkeeping import Bookkeeping, RequestHold
from causerie.accounts.key_cache import AccountCaller, KeyCache
from causerie.errors import (
    Failed,
    InternalError,
    ServiceError,
    StoreUnavailable,
    forget_frames,
)
from causerie.metering.ledger import UsageRecord

log = structlog.get_logger(__name__)


class _Door(Struct, frozen=True):
    name: str


class _Limits(Struct, frozen=True):
    """Limits that a request of the worker has taken, with the tokens that were foreseen."""

    lease: Lease
    tokens: Tokens


class _Running(Struct, frozen=True):
    """A running request of the worker: its hold, and the record that it leaves if it never ends."""

    hold: RequestHold
    usage: UsageRecord


@dataclass(frozen=True, slots=True)
class AccountsServer:
    """Keys, limits and bookkeeping, as worker processes use them."""

    keys: KeyCache
    limits: RateLimiter
    bookkeeping: Bookkeeping

    def session(self) -> AccountsSession:
        """Begin to answer one worker."""
        return AccountsSession(self)


class AccountsSession:
    """Answers the questions of one worker process, and keeps what its requests hold."""

    def __init__(self, server: AccountsServer) -> None:
        self._keys, self._limits = server.keys, server.limits
        self._bookkeeping = server.bookkeeping
        self._taken: dict[int, _Limits] = {}
        self._running: dict[int, _Running] = {}
        self._asking: dict[int, asyncio.Task[object]] = {}  # by request

    async def answer(self, data: bytes) -> bytes:
        found: messages.Answer
        try:
            found = await self._answer(messages.question(data))
        except ServiceError as failure:
            found = Failed.of(failure)
            forget_frames(failure)
        except Exception:  # the worker waits for an answer, whatever it is
            log.exception("a question about accounts failed")
            found = Failed.of(InternalError("The service failed at this request."))
        return messages.encoded(found)

    def tell(self, data: bytes) -> None:
        """Give back what a request holds, or what it was asking for.

        In the next turn of the loop: what was asked just before is being done by then.
        """
        asyncio.get_running_loop().call_soon(self._told, messages.notice(data))

    def _told(self, notice: messages.Notice) -> None:
        asking = self._asking.get(notice.request)
        if isinstance(notice, messages.Checkpoint):
            self._checkpoint(notice)
        elif asking is not None:
            asking.cancel()  # so it gets nothing
        elif isinstance(notice, messages.ReleaseBudgets):
            self._release_budgets(notice)
        else:
            self._end_limits(notice)

    async def close(self) -> None:
        """The worker has ended: give back what its requests hold, and record them.

        Tokens that were foreseen stay counted for their minute.
        """
        for request in list(self._asking):
            await self._stop_asking(request)
        while self._taken:
            _, taken = self._taken.popitem()
            taken.lease.release(taken.tokens.input, taken.tokens.output)
        while self._running:
            _, running = self._running.popitem()
            try:
                await self._bookkeeping.keep(running.usage, running.hold)
            except StoreUnavailable as failure:
                log.warning("an interrupted request is not recorded", reason=failure.message)

    async def _answer(self, question: messages.Question) -> messages.Answer:
        match question:
            case messages.Authenticate():
                return await self._authenticated(question)
            case messages.TakeLimits():
                return await self._take_limits(question)
            case messages.BeginRequest():
                return await self._begin(question)
            case messages.RecordUsage():
                return await self._record(question)

    async def _authenticated(self, question: messages.Authenticate) -> messages.Answer:
        caller = await self._caller(question.door, question.credential)
        grant = caller.grant
        bounds = (grant.key.bounds, grant.person_bounds, grant.project_bounds)
        return messages.Authenticated(
            caller.key,
            caller.name,
            caller.project,
            caller.user,
            caller.models if caller.models is None else sorted(caller.models),
            recorded=caller.recorded,
            limited=any(one.limits for one in bounds),
        )

    async def _take_limits(self, question: messages.TakeLimits) -> messages.Answer:
        with self._asked(question.request):
            caller = await self._caller(question.door, question.credential)
            scopes = self._bookkeeping.scopes(caller, question.model)
            lease = await self._limits.take(scopes, lambda: question.tokens)
        self._taken[question.request] = _Limits(lease, question.tokens)
        return messages.LimitsTaken(lease.limit_statuses())

    def _end_limits(self, notice: messages.EndLimits) -> None:
        taken = self._taken.pop(notice.request, None)
        if taken is None:
            return  # they were refused
        if notice.undone:
            taken.lease.undo()
        else:
            taken.lease.release(notice.input, notice.output)

    async def _begin(self, question: messages.BeginRequest) -> messages.Answer:
        usage, credential = question.usage, question.credential
        with self._asked(question.request):
            caller = Caller(key=usage.key, name="", door=question.door)
            if credential is not None:
                caller = await self._caller(question.door, credential)
            hold = await self._bookkeeping.reserve(caller, usage.model, lambda: question.tokens)
        self._running[question.request] = _Running(hold, usage)
        self._bookkeeping.write_down(usage)
        return messages.BudgetsHeld()

    def _checkpoint(self, notice: messages.Checkpoint) -> None:
        running = self._running.get(notice.request)
        if running is not None:  # else it has ended
            usage = running.hold.priced(notice.usage)
            self._running[notice.request] = _Running(running.hold, usage)
            self._bookkeeping.checkpoint(usage)

    def _release_budgets(self, notice: messages.ReleaseBudgets) -> None:
        running = self._running.pop(notice.request, None)
        if running is not None:  # else they were refused
            self._bookkeeping.release(running.hold)

    async def _record(self, question: messages.RecordUsage) -> messages.Answer:
        await self._stop_asking(question.request)
        running = self._running.pop(question.request, None)
        hold = self._bookkeeping.no_hold() if running is None else running.hold
        usage = hold.priced(question.usage)
        await self._bookkeeping.keep(usage, hold)
        return messages.Recorded(usage.cost)

    async def _caller(self, door: str, credential: Credential | None) -> AccountCaller:
        return await self._keys.authenticate(_Door(door), credential)

    @contextmanager
    def _asked(self, request: int) -> Iterator[None]:
        """Let :meth:`_stop_asking` end the block."""
        task = asyncio.current_task()
        assert task is not None
        self._asking[request] = task
        try:
            yield
        finally:
            del self._asking[request]

    async def _stop_asking(self, request: int) -> None:
        """The worker does not wait for what it asked for any more: what is not had, is not had."""
        task = self._asking.get(request)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
