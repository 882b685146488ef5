"""One request on its way over targets: begun at one, continued where that one breaks off.

Nothing is passed on before the first content-bearing event. There is one
budget of attempts and time for the whole request, however many targets fail
before or after that event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

from causerie.errors import Overloaded, ServiceError, UpstreamFailed
from causerie.protocol.events import Batch, FinishReason, Usage
from causerie.protocol.partial import Partial
from causerie.protocol.request import ChatRequest
from causerie.routing.continuation import Passed, added
from causerie.routing.search import Attempt, RetryBudget, Search
from causerie.routing.seat import Seat
from causerie.routing.target import Answering
from causerie.routing.visit import Visit

_FIRST_PAUSE_SECONDS = 0.25
_NOTHING = Usage(0, 0)


class Journey:
    """Use as an async context manager; entered, the first content-bearing event is there.

    Iterating gives the reply in batches of events.

    ``order`` gives the targets as they stand at the moment, the one to be asked
    first in front; ``see`` is shown whatever is passed on. ``continued`` counts
    how often another target went on with the reply, ``search`` tells who was
    asked and how long that took; ``whole`` says that the reply has been passed on
    to its end.
    """

    __slots__ = (
        "_answer", "_before", "_budget", "_order", "_over", "_passed", "_pause", "_request", "_see",
        "_told", "_visit", "continued", "search", "served_by", "whole",
    )  # fmt: skip

    def __init__(
        self,
        order: Callable[[], Sequence[Seat]],
        request: ChatRequest,
        search: Search,
        budget: RetryBudget,
        pause: Callable[[float], Awaitable[None]],
        see: Callable[[Batch], None] | None,
    ) -> None:
        self._order = order
        self._request = request
        self.search = search
        self._budget = budget
        self._pause = pause
        self._see = see
        self._visit: Visit | None = None
        self._answer: Answering | None = None  # of the visit
        self._before = _NOTHING
        self._passed = Passed()
        self._told: Usage | None = None
        self._over = False
        self.whole = False
        self.continued = 0
        self.served_by = ""  # who answers, or answered last; if nobody did, who was asked last

    async def __aenter__(self) -> Journey:
        search = self.search
        try:
            visit = self._visit = await search.find(self._order())
            self._answer = visit.answer
        finally:
            if search.tried:
                self.served_by = search.tried[-1].target
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._told is None:
            self._told = self.usage()  # who answers is gone afterwards
        await self._leave()

    @property
    def tried(self) -> Sequence[Attempt]:
        """Every target that was asked, in order, with why it did not do."""
        return self.search.tried

    @property
    def attempts(self) -> int:
        """How many targets were asked."""
        return len(self.search.tried)

    @property
    def hedged(self) -> bool:
        """Whether a second one was asked because the first was slow."""
        return self.search.hedged

    @property
    def queued_seconds(self) -> float:
        """Spent waiting for places at the targets that answered."""
        return self.search.queued_seconds

    @property
    def upstream_seconds(self) -> float:
        """Until the first content of the targets that answered."""
        return self.search.upstream_seconds

    @property
    def fingerprint(self) -> str:
        """Of who answers now."""
        return self._answer.fingerprint if self._answer is not None else ""

    @property
    def changes(self) -> Sequence[str]:
        """What was dropped or rewritten for the target."""
        return self._answer.changes if self._answer is not None else ()

    @property
    def finish(self) -> FinishReason | None:
        """How the choice ended that ended last."""
        return self._passed.finish

    def usage(self) -> Usage:
        """The tokens so far, of all targets."""
        if self._told is not None:
            return self._told
        answer = self._answer
        if answer is None:
            return self._before
        now = answer.usage()
        return added(self._before, now) if self.continued else now

    def __aiter__(self) -> Journey:
        return self

    async def __anext__(self) -> Batch:
        """The reply, unbroken where it can be; raises the failure that could not be mended."""
        while not self._over:
            visit = self._visit
            assert visit is not None
            try:
                batch = visit.first.pop(0) if visit.first else await visit.next()
            except (UpstreamFailed, Overloaded) as failure:
                if self._passed.finished < self._request.n:
                    await self._continue(visit, failure)
                    continue
                self._over = True
                if self._told is not None:
                    continue
                self.whole = True
                batch = [self.usage()]  # only the counts were missing
            else:
                self._passed.add(batch)
                if type(batch[-1]) is Usage:
                    batch = self._with_usage(visit, batch)
            if self._see is not None:
                self._see(batch)
            return batch
        raise StopAsyncIteration

    def _with_usage(self, visit: Visit, batch: Batch) -> Batch:
        """The batch that ends a whole reply; its usage is that of all targets."""
        visit.seat.breaker.succeeded()
        told = batch[-1]
        assert isinstance(told, Usage)
        visit.wrote(told.completion)
        self.whole = True
        if not self.continued:
            self._told = told
            return batch
        self._told = added(self._before, told)
        return [*batch[:-1], self._told]

    async def _continue(self, broken: Visit, failure: ServiceError) -> None:
        """Go on after what went out, or raise ``failure``."""
        assert broken.answer is not None
        usage, trail = self.usage(), broken.answer.trail()
        broken.seat.failed(failure)
        self.search.broke(failure)
        await self._leave()
        self._before = usage
        if self._request.n > 1:
            raise failure
        partial = self._passed.partial(usage, trail)
        waited, pause = 0.0, _FIRST_PAUSE_SECONDS
        while able := self._able(partial):
            try:
                visit = self._visit = await self.search.find(able, partial)
                self._answer = visit.answer
            except ServiceError as refused:
                seconds = max(min(seat.breaker.wait() for seat in able), pause)
                waited, pause = waited + seconds, pause * 2
                if self.search.spent or waited > self._budget.wait_seconds:
                    raise failure from refused
            else:
                self.served_by = visit.seat.name
                self.continued += 1
                return
            await self._pause(seconds)
            self.search.waited(seconds)
        raise failure

    def _able(self, partial: Partial) -> list[Seat]:
        """Who can go on, those first that have not failed in this request."""
        failed = {attempt.target for attempt in self.search.tried}
        able = [seat for seat in self._order() if seat.target.continues(self._request, partial)]
        return sorted(able, key=lambda seat: seat.name in failed)

    async def _leave(self) -> None:
        """Free whatever answers now."""
        visit, self._visit, self._answer = self._visit, None, None
        if visit is not None:
            await visit.leave()
