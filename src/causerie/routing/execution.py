"""One request over its targets: started at one, continued at another if that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct, field

from causerie import errors
from causerie.protocol import events
from causerie.routing.attempt import Attempt
from causerie.routing.target import NOTHING
from causerie.routing.target_selector import TargetSelector
from causerie.routing.target_state import IMPOSSIBLE_USAGE, TargetState

_At = tuple[int, int]  # choice, and index of a call there
MANY = 256  # batches that are kept as they are; more are put together, to be small
LONG = 16  # events of a batch; a longer one is put together with the others at once


class Passed(Struct):
    """The part of a reply that was sent; batches are joined once ``MANY`` or ``LONG``."""

    batches: list[events.Batch] = []
    _reasoning_pieces: list[str] = []
    _text_pieces: list[str] = []
    _started_calls: dict[_At, events.ToolCallStarted] = {}
    _argument_pieces: dict[_At, list[str]] = {}
    _complete_choices: set[int] = set()  # choices that ended by themselves
    _finish_reason: events.FinishReason | None = None
    _finished_choices: int = 0

    @property
    def finished(self) -> int:
        self.put_together()
        return self._finished_choices

    @property
    def finish(self) -> events.FinishReason | None:
        for batch in reversed(self.batches):
            for event in reversed(batch):
                if type(event) is events.Finished:
                    return event.reason
        return self._finish_reason

    def shows(self, *, reasoning: bool) -> bool:
        """Return true if content was passed on; ``reasoning`` counts as content or not."""
        self.put_together()
        said = any(self._text_pieces) or bool(self._started_calls)
        return said or (reasoning and any(self._reasoning_pieces))

    def partial(self, usage: events.Usage, trail: events.Trail | None) -> events.Partial:
        """Return the reply so far, which has one choice; ``usage`` counts all its tokens."""
        self.put_together()
        return events.Partial(
            reasoning="".join(self._reasoning_pieces),
            text="".join(self._text_pieces),
            calls=tuple(
                events.PartialCall(at[1], call.id, call.name, "".join(self._argument_pieces[at]))
                for at, call in sorted(self._started_calls.items())
            ),
            completion=usage.completion,
            reasoning_tokens=usage.reasoning,
            trail=trail,
        )

    def calls(self) -> Sequence[tuple[str, str]]:
        """Return names and arguments of the calls of all complete choices."""
        self.put_together()
        return [
            (call.name, "".join(self._argument_pieces[at]))
            for at, call in sorted(self._started_calls.items())
            if at[0] in self._complete_choices
        ]

    def put_together(self) -> None:
        """Empty ``batches``; what they say is kept in few pieces."""
        reasoning: list[str] = []
        text: list[str] = []
        arguments: dict[_At, list[str]] = {}
        for batch in self.batches:
            for event in batch:  # passed bytes are none of these: other events say them again
                match event:
                    case events.TextDelta():
                        text.append(event.text)
                    case events.ReasoningDelta():
                        reasoning.append(event.text)
                    case events.ToolCallStarted():
                        at = event.choice, event.index
                        self._started_calls[at] = event
                        self._argument_pieces[at] = []
                    case events.ToolCallDelta():
                        at = event.choice, event.index
                        arguments.setdefault(at, []).append(event.arguments)
                    case events.Finished():
                        self._finish_reason = event.reason
                        self._finished_choices += 1
                        if event.reason in ("stop", "tool_calls"):
                            self._complete_choices.add(event.choice)
        self.batches.clear()
        self._reasoning_pieces.append("".join(reasoning))
        self._text_pieces.append("".join(text))
        for at, pieces in arguments.items():
            self._argument_pieces.setdefault(at, []).append("".join(pieces))


def added(before: events.Usage, new: events.Usage) -> events.Usage:
    """Add the usage of two targets of one reply; the prompt counts once."""
    return events.Usage(
        prompt=before.prompt or max(new.prompt - before.completion, 0),
        completion=before.completion + new.completion,
        cached=before.cached,
        reasoning=before.reasoning + new.reasoning,
        estimated=before.estimated or new.estimated,
        discarded=before.discarded + new.discarded,
        impossible=before.impossible or new.impossible,
        written=before.written,
    )


_FIRST_PAUSE_SECONDS = 0.25
_BROKEN = frozenset(
    {errors.ErrorClass.CONNECTION, errors.ErrorClass.INVALID_REPLY}
)  # once a reply has begun


class ReplyObserver(Protocol):
    """Observer of a reply: ``see`` gets what is passed on; ``forget``: the reply starts anew."""

    def see(self, batch: events.Batch) -> None: ...
    def forget(self) -> None: ...


class Execution(TargetSelector, eq=False):
    """One request over its targets: ``begin``, then ``stream``; in any case ``end``, and leave the
    ``attempt`` that there is then.

    ``continued`` counts targets that continued the reply, ``whole``: it was passed on to its end,
    ``finish`` is the last finish reason, once it is over. One budget of attempts and time holds for
    the whole request.
    """

    watch: ReplyObserver | None = None
    whole: bool = False
    finish: events.FinishReason | None = None
    continued: int = 0
    _passed: Passed = field(default_factory=Passed)
    _earlier: events.Usage = NOTHING  # of those who broke off
    _usage: events.Usage | None = None
    _client_ready: Awaitable[object] | None = None  # ends when the client takes more

    def begin(self) -> Awaitable[Attempt]:
        """Return the attempt that answers, with its first content; raise like :meth:`find`."""
        return self.find(self.target_states())

    async def again(self, failure: errors.ServiceError) -> Attempt:
        """Start a reply, of which the client saw nothing, elsewhere; else raise ``failure``."""
        failed = {one.target for one in self.tried if one.failure}
        others = [state for state in self.target_states() if state.name not in failed]
        if self.spent() or not others:
            raise failure
        before, self._earlier = self._earlier, NOTHING  # which nobody pays for, if all is made anew
        try:
            attempt = await self.find(others)
        except errors.ServiceError as refused:
            self._earlier = before
            raise failure from refused
        self._passed = Passed()
        self.continued = 0
        if self.watch is not None:
            self.watch.forget()
        return attempt

    def end(self) -> events.Usage:
        """Return the usage, and keep it: who answers is gone afterwards."""
        if self._usage is None:
            self._usage = self.usage()
            self.finish = self._passed.finish
        return self._usage

    def calls(self) -> Sequence[tuple[str, str]]:
        return self._passed.calls() if self.whole else ()

    @property
    def delivered(self) -> bool:
        """Return true if the client has a piece of a stream, which cannot be taken back."""
        request = self.request
        return request.stream and self._passed.shows(reasoning=request.thinking.visible)

    def usage(self) -> events.Usage:
        if self._usage is not None:
            return self._usage
        if self.attempt is None:
            return self._earlier
        now = self.attempt.answer.usage()
        return now if self._earlier is NOTHING else added(self._earlier, now)

    async def stream(self, emit: events.BatchSink) -> None:
        """Emit the reply that has begun, continued elsewhere if needed; raise the last failure."""
        attempt = self.attempt
        assert attempt is not None
        pass_on: events.ArrivalSink | None = None
        batch: events.Batch = attempt.first
        upcoming: Callable[[], Awaitable[events.Batch]] | None = None
        while True:
            if batch:
                last = batch[-1]
                if last.__class__ is events.Usage and not self.whole:
                    batch = self._complete_attempt(attempt, batch, last)
                if not self._pass_on(emit, batch):
                    await self._wait_for_client()
                if self.whole:
                    return
            if (on_arrival := attempt.answer.on_arrival) is not None:
                pass_on = pass_on or partial(self._pass_on, emit)
                on_arrival(pass_on)
            upcoming = upcoming or attempt.upcoming()
            try:
                batch = await upcoming()
            except StopAsyncIteration:
                raise errors.InternalError("The reply ended without its usage.") from None
            except (errors.UpstreamFailed, errors.Overloaded) as failure:
                attempt = await self._recover_from(attempt, failure)
                errors.forget_frames(failure)  # the attempt that broke off keeps it
                batch, upcoming = attempt.first, None
            if self._client_ready is not None:
                await self._wait_for_client()

    def _pass_on(self, emit: events.BatchSink, batch: events.Batch) -> bool:
        ready = emit(batch)
        passed = self._passed
        batches = passed.batches
        batches.append(batch)  # what could not be emitted is none of them
        if len(batches) >= MANY or len(batch) > LONG:
            passed.put_together()
        if self.watch is not None:
            self.watch.see(batch)
        if ready is None:
            return True
        self._client_ready = ready
        return False

    async def _wait_for_client(self) -> None:
        full, self._client_ready = self._client_ready, None
        if full is not None:
            await full

    async def _recover_from(self, broken: Attempt, failure: errors.ServiceError) -> Attempt:
        if failure.error_class in _BROKEN:
            failure.caused_by(errors.ErrorClass.BROKEN_STREAM)
        passed, request, told = self._passed, self.request, self.usage()
        ending: list[events.Event] = []
        if passed.finished < request.n:
            limit = broken.request.max_tokens
            if request.n > 1 or limit is None or told.completion < limit:
                return await self._continued_attempt(broken, failure)
            broken.target_state.failed(failure)
            # Whoever went on would say more than was asked for.
            ending.append(events.Finished("length"))
        self._usage, self.whole = told, True
        self.finish = "length" if ending else passed.finish
        broken.first = [*ending, told]
        return broken

    def _complete_attempt(
        self, attempt: Attempt, batch: events.Batch, told: events.Usage
    ) -> events.Batch:
        target_state = attempt.target_state
        if not target_state.breaker.well:
            target_state.breaker.succeeded()
        if batch is not attempt.first:  # what comes at once tells nothing of speed
            now = self.context.clock()
            target_state.latency_stats.wrote(told.completion, now - attempt.began, now)
        if told.impossible:
            target_state.failures[IMPOSSIBLE_USAGE] += 1
        self.whole = True
        if self._earlier is not NOTHING:
            told = added(self._earlier, told)
            batch = [*batch[:-1], told]
        self._usage = told
        ending = batch[-2] if len(batch) > 1 else None
        self.finish = ending.reason if isinstance(ending, events.Finished) else self._passed.finish
        return batch

    async def _continued_attempt(self, broken: Attempt, failure: errors.ServiceError) -> Attempt:
        usage, trail, request = self.usage(), broken.answer.trail(), self.request
        broken.target_state.failed(failure)
        self.broke(broken, failure)
        self.attempt, self._earlier = None, usage
        await broken.leave()
        try:
            if request.n > 1 or broken.answer.verbatim:
                raise failure
            return await self._resume_reply(self._passed.partial(usage, trail), failure)
        except errors.ServiceError as last:
            said = self._passed.shows(reasoning=False) or self._passed.finished
            if not request.stream or request.thinking.visible or said:
                raise
            errors.forget_frames(last)
        return await self.again(failure)

    async def _resume_reply(self, partial: events.Partial, failure: errors.ServiceError) -> Attempt:
        waited, pause = 0.0, _FIRST_PAUSE_SECONDS
        while not self.spent() and (able := self._able_to_continue(partial)):
            try:
                attempt = await self.find(able, partial)
            except errors.ServiceError as refused:
                errors.forget_frames(refused)
                seconds = max(min(target_state.breaker.wait() for target_state in able), pause)
                waited, pause = waited + seconds, pause * 2
                if self.spent() or waited > self.context.budget.wait_seconds:
                    raise failure from refused
            else:
                self.continued += 1
                return attempt
            await self.wait(seconds)
        raise failure

    def _able_to_continue(self, partial: events.Partial) -> list[TargetState]:
        request = self.request
        failed = {attempt.target for attempt in self.tried}
        able = [one for one in self.target_states() if one.target.continues(request, partial)]
        return sorted(able, key=lambda one: one.name in failed)
