"""One request on its way over targets: started at one, continued where that one breaks off.

Nothing is passed on before the first content-bearing event. There is one
budget of attempts and time for the whole request, however many targets fail
before or after that event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec import field

from causerie.errors import (
    ErrorClass,
    InternalError,
    Overloaded,
    ServiceError,
    UpstreamFailed,
    forget_frames,
)
from causerie.protocol.events import (
    ArrivalSink,
    Batch,
    BatchSink,
    Event,
    Finished,
    FinishReason,
    Usage,
)
from causerie.protocol.partial import Partial
from causerie.routing.attempt import Attempt
from causerie.routing.continuation import LONG, MANY, Passed, added
from causerie.routing.target import NOTHING
from causerie.routing.target_selector import SLOWER, TargetSelector
from causerie.routing.target_state import IMPOSSIBLE_USAGE, TargetState

_FIRST_PAUSE_SECONDS = 0.25
_BROKEN = frozenset({ErrorClass.CONNECTION, ErrorClass.INVALID_REPLY})  # once a reply has begun


class ReplyObserver(Protocol):
    """Observer of a reply."""

    def see(self, batch: Batch) -> None:
        """This is passed on."""

    def forget(self) -> None:
        """The reply begins anew."""


class Execution(TargetSelector, eq=False):
    """``begin``, then ``stream``, and in any case ``leave``.

    ``watch`` is shown whatever is passed on. ``continued`` counts how often another target
    went on with the reply, ``whole`` says that it has been passed on to its end; how the
    choice ended that ended last, ``finish`` says once it is over.
    """

    watch: ReplyObserver | None = None
    whole: bool = False
    finish: FinishReason | None = None
    continued: int = 0
    _passed: Passed = field(default_factory=Passed)
    _before: Usage = NOTHING  # of those who broke off
    _told: Usage | None = None
    _full: Awaitable[object] | None = None  # ends when the client takes more

    def begin(self) -> Awaitable[Attempt]:
        """Return the attempt that answers, with its first content-bearing event.

        Raises the most informative failure if all have failed, or at once a failure that no other
        target could avoid.
        """
        return self.find(self.target_states())

    async def again(self, failure: ServiceError) -> Attempt:
        """Begin the reply anew at a target that has not failed; forget the part that was passed on.

        For replies of which the client has been shown nothing. Raises ``failure``, which broke the
        last one off, if no target answers.
        """
        failed = {one.target for one in self.tried if one.failure and one.failure != SLOWER}
        others = [
            target_state for target_state in self.target_states() if target_state.name not in failed
        ]
        if self.spent() or not others:
            raise failure
        before, self._before = self._before, NOTHING  # which nobody pays for, if all is made anew
        try:
            attempt = await self.find(others)
        except ServiceError as refused:
            self._before = before
            raise failure from refused
        self._passed.forget()
        self.continued = 0
        if self.watch is not None:
            self.watch.forget()
        return attempt

    def leave(self) -> Awaitable[object] | None:
        """Free the target, once what this gives, if anything, has been awaited."""
        if self._told is None:
            self._told = self.usage()  # who answers is gone afterwards
            self.finish = self._passed.finish
        return None if self.attempt is None else self.attempt.leave()

    def calls(self) -> Sequence[tuple[str, str]]:
        """Return names and arguments of the calls that a whole reply delivered."""
        return self._passed.calls() if self.whole else ()

    @property
    def delivered(self) -> bool:
        """Return true if the client has content that nothing takes back: a piece of a stream."""
        request = self.request
        return request.stream and self._passed.shows(reasoning=request.thinking.visible)

    def usage(self) -> Usage:
        """The tokens so far, of all targets."""
        if self._told is not None:
            return self._told
        if self.attempt is None:
            return self._before
        now = self.attempt.answer.usage()
        return now if self._before is NOTHING else added(self._before, now)

    async def stream(self, emit: BatchSink) -> None:
        """Emit the reply, unbroken where it can be; raise the failure that could not be mended.

        To be called once after each beginning.
        """
        attempt = self.attempt
        assert attempt is not None
        pass_on: ArrivalSink | None = None
        batch: Batch = attempt.first
        upcoming: Callable[[], Awaitable[Batch]] | None = None
        while True:
            if batch:
                if isinstance(batch[-1], Usage) and not self.whole:
                    batch = self._ended(attempt, batch, batch[-1])
                if not self._pass_on(emit, batch):
                    await self._taken()
                if self.whole:
                    return
            if (on_arrival := attempt.answer.on_arrival) is not None:
                pass_on = pass_on or partial(self._pass_on, emit)
                on_arrival(pass_on)
            upcoming = upcoming or attempt.upcoming()
            try:
                batch = await upcoming()
            except StopAsyncIteration:
                raise InternalError("The reply ended without its usage.") from None
            except (UpstreamFailed, Overloaded) as failure:
                attempt = await self._mended(attempt, failure)
                forget_frames(failure)  # the attempt that broke off keeps it
                batch, upcoming = attempt.first, None
            if self._full is not None:
                await self._taken()

    def _pass_on(self, emit: BatchSink, batch: Batch) -> bool:
        """Emit a batch; false where the client takes no more now: see :meth:`_taken`."""
        self._full = emit(batch)
        batches = self._passed.batches  # what could not be emitted is none of them
        batches.append(batch)
        if len(batches) >= MANY or len(batch) > LONG:
            self._passed.put_together()
        if self.watch is not None:
            self.watch.see(batch)
        return self._full is None

    async def _taken(self) -> None:
        """Wait until the client takes more."""
        full, self._full = self._full, None
        if full is not None:
            await full

    async def _mended(self, broken: Attempt, failure: ServiceError) -> Attempt:
        """Return an attempt that continues the reply; the same one if only its end was missing."""
        if failure.error_class in _BROKEN:
            failure.caused_by(ErrorClass.BROKEN_STREAM)
        passed, request, told = self._passed, self.request, self.usage()
        ending: list[Event] = []
        if passed.finished < request.n:
            limit = broken.request.max_tokens
            if request.n > 1 or limit is None or told.completion < limit:
                return await self._continued(broken, failure)
            broken.target_state.failed(failure)
            ending.append(Finished("length"))  # whoever went on would say more than was asked for
        self._told, self.whole = told, True
        self.finish = "length" if ending else passed.finish
        broken.first = [*ending, told]
        return broken

    def _ended(self, attempt: Attempt, batch: Batch, told: Usage) -> Batch:
        """The batch that ends a whole reply; its usage is that of all targets."""
        target_state = attempt.target_state
        if not target_state.breaker.well:
            target_state.breaker.succeeded()
        if batch is not attempt.first:  # what comes at once tells nothing of speed
            now = self.context.clock()
            target_state.latency_stats.wrote(told.completion, now - attempt.began, now)
        if told.impossible:
            target_state.failures[IMPOSSIBLE_USAGE] += 1
        self.whole = True
        if self._before is not NOTHING:
            told = added(self._before, told)
            batch = [*batch[:-1], told]
        self._told = told
        ending = batch[-2] if len(batch) > 1 else None
        self.finish = ending.reason if isinstance(ending, Finished) else self._passed.finish
        return batch

    async def _continued(self, broken: Attempt, failure: ServiceError) -> Attempt:
        """Return an attempt that continues the reply, or begins it anew if none of it was shown.

        Raises ``failure`` if there is none.
        """
        usage, trail, request = self.usage(), broken.answer.trail(), self.request
        broken.target_state.failed(failure)
        self.broke(broken, failure)
        self.attempt, self._before = None, usage
        if (left := broken.leave()) is not None:
            await left
        try:
            if request.n > 1:
                raise failure
            return await self._gone_on(self._passed.partial(usage, trail), failure)
        except ServiceError as last:
            if not request.stream or request.thinking.visible or not self._passed.is_unsaid:
                raise
            forget_frames(last)
        return await self.again(failure)

    async def _gone_on(self, partial: Partial, failure: ServiceError) -> Attempt:
        """Return an attempt that continues ``partial``; raise ``failure`` if there is none."""
        waited, pause = 0.0, _FIRST_PAUSE_SECONDS
        while not self.spent() and (able := self._able(partial)):
            try:
                attempt = await self.find(able, partial)
            except ServiceError as refused:
                forget_frames(refused)
                seconds = max(min(target_state.breaker.wait() for target_state in able), pause)
                waited, pause = waited + seconds, pause * 2
                if self.spent() or waited > self.context.budget.wait_seconds:
                    raise failure from refused
            else:
                self.continued += 1
                return attempt
            await self.context.pause(seconds)
            self.waited(seconds)
        raise failure

    def _able(self, partial: Partial) -> list[TargetState]:
        """Return the targets that can continue, with those that failed in this request last."""
        request = self.request
        failed = {attempt.target for attempt in self.tried}
        able = [
            target_state
            for target_state in self.target_states()
            if target_state.target.continues(request, partial)
        ]
        return sorted(able, key=lambda target_state: target_state.name in failed)
