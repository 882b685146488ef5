"""One request on its way over targets: begun at one, continued where that one breaks off.

Nothing is passed on before the first content-bearing event. There is one
budget of attempts and time for the whole request, however many targets fail
before or after that event.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from msgspec import field

from causerie.errors import Overloaded, ServiceError, UpstreamFailed
from causerie.protocol.events import Batch, Event, Finished, FinishReason, Take, Usage
from causerie.protocol.partial import Partial
from causerie.routing.continuation import MANY, Passed, added
from causerie.routing.search import SLOWER, Search
from causerie.routing.seat import Seat
from causerie.routing.target import NOTHING
from causerie.routing.visit import Visit

_FIRST_PAUSE_SECONDS = 0.25


class Watch(Protocol):
    """Who is shown a reply."""

    def see(self, batch: Batch) -> None:
        """This is passed on."""
        ...

    def forget(self) -> None:
        """The reply begins anew."""
        ...


class Journey(Search, eq=False):
    """``begin``, then ``pour``, and in any case ``leave``.

    ``watch`` is shown whatever is passed on. ``continued`` counts how often another target
    went on with the reply, ``whole`` says that it has been passed on to its end; how the
    choice ended that ended last, ``finish`` says once it is over.
    """

    watch: Watch | None = None
    whole: bool = False
    finish: FinishReason | None = None
    continued: int = 0
    _passed: Passed = field(default_factory=Passed)
    _before: Usage = NOTHING  # of those who broke off
    _told: Usage | None = None

    def begin(self) -> Awaitable[Visit]:
        """Who answers, its first content-bearing event at hand.

        Raises what tells the client most where all have failed, or at once a failure that
        no other could do better at.
        """
        return self.find(self.seats())

    async def again(self, failure: ServiceError) -> Visit:
        """Who begins the reply anew, of those who have not failed; what was passed on is forgotten.

        For replies of which the client has been shown nothing. Raises ``failure``, which broke
        the last one off, where nobody does.
        """
        failed = {one.target for one in self.tried if one.failure and one.failure != SLOWER}
        others = [seat for seat in self.seats() if seat.name not in failed]
        if self.spent() or not others:
            raise failure
        before, self._before = self._before, NOTHING  # which nobody pays for, if all is made anew
        try:
            visit = await self.find(others)
        except ServiceError as refused:
            self._before = before
            raise failure from refused
        self._passed.forget()
        self.continued = 0
        if self.watch is not None:
            self.watch.forget()
        return visit

    def leave(self) -> Awaitable[object] | None:
        """Free the target, once what this gives, if anything, has been awaited."""
        if self._told is None:
            self._told = self.usage()  # who answers is gone afterwards
            self.finish = self._passed.finish
        return None if self.visit is None else self.visit.leave()

    def usage(self) -> Usage:
        """The tokens so far, of all targets."""
        if self._told is not None:
            return self._told
        if self.visit is None:
            return self._before
        now = self.visit.answer.usage()
        return now if self._before is NOTHING else added(self._before, now)

    async def pour(self, take: Take) -> None:
        """Hand on the reply, unbroken where it can be; raises the failure that could not be mended.

        To be called once after each beginning.
        """
        batches, watch, visit = self._passed.batches, self.watch, self.visit
        assert visit is not None
        batch: Batch = visit.first
        upcoming = visit.next
        while True:
            if batch:
                batches.append(batch)
                if len(batches) >= MANY:
                    self._passed.put_together()
                if isinstance(batch[-1], Usage) and not self.whole:
                    batch = self._ended(visit, batch, batch[-1])
                if watch is not None:
                    watch.see(batch)
                waiting = take(batch)
                if waiting is not None:
                    await waiting
                if self.whole:
                    return
            try:
                batch = await upcoming()
            except StopAsyncIteration:
                return
            except (UpstreamFailed, Overloaded) as failure:
                visit = await self._mended(visit, failure)
                batch, upcoming = visit.first, visit.next

    async def _mended(self, broken: Visit, failure: ServiceError) -> Visit:
        """Who goes on after what went out; the same one where only its end was missing."""
        passed, request, told = self._passed, self.request, self.usage()
        ending: list[Event] = []
        if passed.finished < request.n:
            limit = broken.request.max_tokens
            if request.n > 1 or limit is None or told.completion < limit:
                return await self._continued(broken, failure)
            broken.seat.failed(failure)
            ending.append(Finished("length"))  # whoever went on would say more than was asked for
        self._told, self.whole = told, True
        self.finish = "length" if ending else passed.finish
        broken.first = [*ending, told]
        return broken

    def _ended(self, visit: Visit, batch: Batch, told: Usage) -> Batch:
        """The batch that ends a whole reply; its usage is that of all targets."""
        seat = visit.seat
        if not seat.breaker.well:
            seat.breaker.succeeded()
        if batch is not visit.first:  # what comes at once tells nothing of speed
            now = self.terms.clock()
            seat.pace.wrote(told.completion, now - visit.began, now)
        self.whole = True
        if self._before is not NOTHING:
            told = added(self._before, told)
            batch = [*batch[:-1], told]
        self._told = told
        ending = batch[-2] if len(batch) > 1 else None
        self.finish = ending.reason if isinstance(ending, Finished) else self._passed.finish
        return batch

    async def _continued(self, broken: Visit, failure: ServiceError) -> Visit:
        """Who goes on after what went out, or begins anew where none of it was shown.

        Raises ``failure`` where nobody does.
        """
        usage, trail, request = self.usage(), broken.answer.trail(), self.request
        broken.seat.failed(failure)
        self.broke(broken, failure)
        self.visit, self._before = None, usage
        if (left := broken.leave()) is not None:
            await left
        try:
            if request.n > 1:
                raise failure
            return await self._gone_on(self._passed.partial(usage, trail), failure)
        except ServiceError:
            if not request.stream or request.thinking.visible or not self._passed.is_unsaid:
                raise
        return await self.again(failure)

    async def _gone_on(self, partial: Partial, failure: ServiceError) -> Visit:
        """Who goes on after ``partial``; raises ``failure`` where nobody does."""
        waited, pause = 0.0, _FIRST_PAUSE_SECONDS
        while not self.spent() and (able := self._able(partial)):
            try:
                visit = await self.find(able, partial)
            except ServiceError as refused:
                seconds = max(min(seat.breaker.wait() for seat in able), pause)
                waited, pause = waited + seconds, pause * 2
                if self.spent() or waited > self.terms.budget.wait_seconds:
                    raise failure from refused
            else:
                self.continued += 1
                return visit
            await self.terms.pause(seconds)
            self.waited(seconds)
        raise failure

    def _able(self, partial: Partial) -> list[Seat]:
        """Who can go on, those first that have not failed in this request."""
        request = self.request
        failed = {attempt.target for attempt in self.tried}
        able = [seat for seat in self.seats() if seat.target.continues(request, partial)]
        return sorted(able, key=lambda seat: seat.name in failed)
