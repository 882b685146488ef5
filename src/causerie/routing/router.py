"""Runs a request over targets, continues a broken reply at another, and explains the order."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal, Protocol

import structlog
from msgspec import Struct, field, structs

from causerie import errors
from causerie.errors import InvalidRequest, ServiceError
from causerie.protocol import events
from causerie.protocol.request import ChatRequest
from causerie.protocol.targets import CallClass, Candidate, TargetStats
from causerie.routing import target_selector as selector
from causerie.routing.circuit_breaker import CircuitBreaker
from causerie.routing.target import NOTHING, AdmissionQueue, Target
from causerie.routing.target_selector import Attempt, TargetSelector
from causerie.routing.target_state import IMPOSSIBLE_USAGE, TargetState, TargetStatus

_At = tuple[int, int]  # choice, and index of a call there
MANY = 256  # batches that are kept as they are; more are put together, to be small
LONG = 16  # events of a batch; a longer one is put together with the others at once


class SentPrefix(Struct):
    """The part of a reply that was sent to the client, joined into few pieces now and then."""

    batches: list[events.Batch] = []
    _reasoning_pieces: list[str] = []
    _text_pieces: list[str] = []
    _started_calls: dict[_At, events.ToolCallStarted] = {}
    _argument_pieces: dict[_At, list[str]] = {}
    _complete_choices: set[int] = set()  # choices that ended by themselves
    _last_finish_reason: events.FinishReason | None = None
    _finished_choice_count: int = 0

    @property
    def finished(self) -> int:
        self.put_together()
        return self._finished_choice_count

    @property
    def finish(self) -> events.FinishReason | None:
        for batch in reversed(self.batches):
            for event in reversed(batch):
                if type(event) is events.Finished:
                    return event.reason
        return self._last_finish_reason

    def shows(self, *, reasoning: bool) -> bool:
        """Return true if text or a call was sent; with ``reasoning`` also if reasoning was sent."""
        self.put_together()
        said = any(self._text_pieces) or bool(self._started_calls)
        return said or (reasoning and any(self._reasoning_pieces))

    def partial(self, usage: events.Usage, trail: events.Trail | None) -> events.Partial:
        """Return the sent part of a reply with one choice, with the token counts of ``usage``."""
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
        """Return the name and arguments of each tool call in choices that are complete."""
        self.put_together()
        return [
            (call.name, "".join(self._argument_pieces[at]))
            for at, call in sorted(self._started_calls.items())
            if at[0] in self._complete_choices
        ]

    def put_together(self) -> None:
        """Join the texts, calls and ends in ``batches`` into few pieces, and empty ``batches``."""
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
                        self._last_finish_reason = event.reason
                        self._finished_choice_count += 1
                        if event.reason in ("stop", "tool_calls"):
                            self._complete_choices.add(event.choice)
        self.batches.clear()
        self._reasoning_pieces.append("".join(reasoning))
        self._text_pieces.append("".join(text))
        for at, pieces in arguments.items():
            self._argument_pieces.setdefault(at, []).append("".join(pieces))


def added(before: events.Usage, new: events.Usage) -> events.Usage:
    """Add up the usage of two targets that made one reply; the prompt counts once."""
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
    """Observer of a reply: ``see`` gets each sent batch; ``forget``: the reply starts anew."""

    def see(self, batch: events.Batch) -> None: ...
    def forget(self) -> None: ...


class Execution(TargetSelector, eq=False):
    """One request over its targets: call ``begin``, then ``stream``, and in any case ``end``.

    Then leave the ``attempt`` that there is.
    ``continued`` counts targets that continued the reply, ``whole``: it was passed on to its end,
    ``finish`` is the last finish reason, once it is over. One budget of attempts and time holds for
    the whole request.
    """

    watch: ReplyObserver | None = None
    whole: bool = False
    finish: events.FinishReason | None = None
    continued: int = 0
    _sent_prefix: SentPrefix = field(default_factory=SentPrefix)
    _earlier_usage: events.Usage = NOTHING  # of those who broke off
    _final_usage: events.Usage | None = None
    _client_ready_future: Awaitable[object] | None = None  # ends when the client takes more

    def begin(self) -> Awaitable[Attempt]:
        """Ask the targets in order; return the attempt that answers, with its first content."""
        return self.find(self.target_states())

    async def again(self, failure: errors.ServiceError) -> Attempt:
        """Start the reply anew at another target; raise ``failure`` if none can answer it."""
        failed = {one.target for one in self.tried if one.failure}
        others = [state for state in self.target_states() if state.name not in failed]
        if self.spent() or not others:
            raise failure
        before = self._earlier_usage
        self._earlier_usage = NOTHING  # which nobody pays for, if all is made anew
        try:
            attempt = await self.find(others)
        except errors.ServiceError as refused:
            self._earlier_usage = before
            raise failure from refused
        self._sent_prefix = SentPrefix()
        self.continued = 0
        if self.watch is not None:
            self.watch.forget()
        return attempt

    def end(self) -> events.Usage:
        """Record the final usage of the request at the first call, and return it."""
        if self._final_usage is None:
            self._final_usage = self.usage()
            self.finish = self._sent_prefix.finish
        return self._final_usage

    def calls(self) -> Sequence[tuple[str, str]]:
        return self._sent_prefix.calls() if self.whole else ()

    @property
    def delivered(self) -> bool:
        """Return true if the client was sent streamed content, which cannot be taken back."""
        request = self.request
        return request.stream and self._sent_prefix.shows(reasoning=request.thinking.visible)

    def usage(self) -> events.Usage:
        if self._final_usage is not None:
            return self._final_usage
        if self.attempt is None:
            return self._earlier_usage
        now = self.attempt.answer.usage()
        return now if self._earlier_usage is NOTHING else added(self._earlier_usage, now)

    async def stream(self, emit: events.BatchSink) -> None:
        """Emit the begun reply, continued at other targets if needed; raise the last failure."""
        attempt = self.attempt
        assert attempt is not None
        pass_on: events.ArrivalSink | None = None
        batch: events.Batch = attempt.first
        upcoming: Callable[[], Awaitable[events.Batch]] | None = None
        while True:
            if batch:
                last = batch[-1]
                if last.__class__ is events.Usage and not self.whole:
                    batch = self._record_completion_and_sum_up_usage(attempt, batch, last)
                if not self._emit_batch(emit, batch):
                    await self._wait_for_client()
                if self.whole:
                    return
            if (on_arrival := attempt.answer.on_arrival) is not None:
                pass_on = pass_on or partial(self._emit_batch, emit)
                on_arrival(pass_on)
            upcoming = upcoming or attempt.upcoming()
            try:
                batch = await upcoming()
            except StopAsyncIteration:
                raise errors.InternalError("The reply ended without its usage.") from None
            except (errors.UpstreamFailed, errors.Overloaded) as failure:
                attempt = await self._finish_or_continue(attempt, failure)
                errors.forget_frames(failure)  # the attempt that broke off keeps it
                batch, upcoming = attempt.first, None
            if self._client_ready_future is not None:
                await self._wait_for_client()

    def _emit_batch(self, emit: events.BatchSink, batch: events.Batch) -> bool:
        ready = emit(batch)
        passed = self._sent_prefix
        batches = passed.batches
        batches.append(batch)  # what could not be emitted is none of them
        if len(batches) >= MANY or len(batch) > LONG:
            passed.put_together()
        if self.watch is not None:
            self.watch.see(batch)
        if ready is None:
            return True
        self._client_ready_future = ready
        return False

    async def _wait_for_client(self) -> None:
        full, self._client_ready_future = self._client_ready_future, None
        if full is not None:
            await full

    async def _finish_or_continue(self, attempt: Attempt, failure: errors.ServiceError) -> Attempt:
        if failure.error_class in _BROKEN:
            failure.caused_by(errors.ErrorClass.BROKEN_STREAM)
        passed, request, told = self._sent_prefix, self.request, self.usage()
        ending: list[events.Event] = []
        if passed.finished < request.n:
            limit = attempt.request.max_tokens
            if request.n > 1 or limit is None or told.completion < limit:
                return await self._continue_elsewhere(attempt, failure)
            attempt.target_state.failed(failure)
            # Whoever went on would say more than was asked for.
            ending.append(events.Finished("length"))
        self._final_usage, self.whole = told, True
        self.finish = "length" if ending else passed.finish
        attempt.first = [*ending, told]
        return attempt

    def _record_completion_and_sum_up_usage(
        self, attempt: Attempt, last_batch: events.Batch, usage: events.Usage
    ) -> events.Batch:
        target_state = attempt.target_state
        if not target_state.breaker.well:
            target_state.breaker.succeeded()
        if last_batch is not attempt.first:  # what comes at once tells nothing of speed
            now = self.context.clock()
            target_state.latency_stats.wrote(usage.completion, now - attempt.began, now)
        if usage.impossible:
            target_state.failures[IMPOSSIBLE_USAGE] += 1
        self.whole = True
        if self._earlier_usage is not NOTHING:
            usage = added(self._earlier_usage, usage)
            last_batch = [*last_batch[:-1], usage]
        self._final_usage = usage
        ending = last_batch[-2] if len(last_batch) > 1 else None
        self.finish = (
            ending.reason if isinstance(ending, events.Finished) else self._sent_prefix.finish
        )
        return last_batch

    async def _continue_elsewhere(self, attempt: Attempt, failure: errors.ServiceError) -> Attempt:
        usage, trail, request = self.usage(), attempt.answer.trail(), self.request
        attempt.target_state.failed(failure)
        self.broke(attempt, failure)
        self.attempt, self._earlier_usage = None, usage
        await attempt.leave()
        try:
            if request.n > 1 or attempt.answer.verbatim:
                raise failure
            return await self._begin_continuation(self._sent_prefix.partial(usage, trail), failure)
        except errors.ServiceError as last:
            said = self._sent_prefix.shows(reasoning=False) or self._sent_prefix.finished
            if not request.stream or request.thinking.visible or said:
                raise
            errors.forget_frames(last)
        return await self.again(failure)

    async def _begin_continuation(
        self, partial: events.Partial, failure: errors.ServiceError
    ) -> Attempt:
        waited, pause = 0.0, _FIRST_PAUSE_SECONDS
        while not self.spent() and (able := self._list_continuing_targets(partial)):
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

    def _list_continuing_targets(self, partial: events.Partial) -> list[TargetState]:
        request = self.request
        failed = {attempt.target for attempt in self.tried}
        able = [one for one in self.target_states() if one.target.continues(request, partial)]
        return sorted(able, key=lambda one: one.name in failed)


log = structlog.get_logger(__name__)

Decided = Literal["alone", "home", "overflow", "load", "last"]
"""Reason of a target's place.

``alone``: no other has this priority; ``home``: the conversation belongs there; ``overflow``: the
next one if that is full; ``load``: by its running requests; ``last``: it is not available.
"""


class RankedTarget(Struct, frozen=True):
    """A target's place in the order for one request, and the reason for it.

    ``share`` is its share of conversations among targets of its priority; ``tied`` are targets
    with an equal place, among which the order is random.
    """

    candidate: Candidate
    status: TargetStatus
    decided: Decided
    share: float
    tied: tuple[str, ...] = ()


def _to_ranked_target(
    candidate: Candidate,
    group: Sequence[Candidate],
    target_states: Mapping[str, TargetState],
    conversation: str,
    last_target: str,
) -> RankedTarget:
    status = target_states[candidate.name].status()
    if candidate not in group:
        return RankedTarget(candidate, status, "last", 0.0)
    if len(group) == 1:
        return RankedTarget(candidate, status, "alone", 1.0)
    share = candidate.weight / sum(each.weight for each in group)
    at_affinity_target = selector.affinity_target(group, target_states, conversation, last_target)
    if at_affinity_target == candidate:
        first = selector.preferred(group, conversation, last_target)[0] == candidate
        return RankedTarget(candidate, status, "home" if first else "overflow", share)
    tied = tuple(
        each.name
        for each in group
        if each not in (candidate, at_affinity_target)
        and selector.load(each, target_states) == selector.load(candidate, target_states)
    )
    return RankedTarget(candidate, status, "load", share, tied)


_BUDGET = selector.RetryBudget()


class Router:
    """Runs requests over all targets; a target that :meth:`replace` gets again keeps its state."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        admission_queues: Mapping[str, AdmissionQueue] | None = None,
        *,
        budget: selector.RetryBudget = _BUDGET,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._shared_state = selector.RoutingContext(
            {}, budget, clock, chance or random.Random().random, pause, selector.LastTargets()
        )
        self.replace(targets, admission_queues or {})

    def replace(
        self, targets: Mapping[str, Target], admission_queues: Mapping[str, AdmissionQueue]
    ) -> None:
        """Use these targets from now on; running requests keep theirs."""
        context = self._shared_state
        target_states: dict[str, TargetState] = {}
        for name, target in targets.items():
            state, queue = context.target_states.get(name), admission_queues.get(name)
            if state is None or state.target is not target or state.admission_queue is not queue:
                breaker = CircuitBreaker(context.clock, context.chance)
                state = TargetState(name, target, queue, breaker)
            target_states[name] = state
        self._shared_state = structs.replace(context, target_states=target_states)

    def renewed(
        self, targets: Mapping[str, Target], admission_queues: Mapping[str, AdmissionQueue]
    ) -> Router:
        """Return a new router over ``targets``; targets that this one has too keep their state."""
        other = Router({})
        other._shared_state = self._shared_state
        other.replace(targets, admission_queues)
        return other

    def generate(
        self,
        candidates: Sequence[Candidate],
        request: ChatRequest,
        watch: ReplyObserver | None = None,
        tried: list[Attempt] | None = None,
    ) -> Execution:
        """Return the execution of a request over the candidates, which has not begun yet.

        ``watch`` sees everything that is passed on. ``tried`` has earlier attempts with budgets of
        their own, and gets the new ones.
        """
        tried = [] if tried is None else tried
        return Execution(
            self._shared_state, request, candidates, tried=tried, uncounted=len(tried), watch=watch
        )

    async def count_tokens(
        self, candidates: Sequence[Candidate], request: ChatRequest
    ) -> int | None:
        """Return the first able target's count of prompt tokens; ``None`` if it cannot count."""
        context = self._shared_state
        last = context.last_target(request)
        refused: list[InvalidRequest] = []
        for one in selector.order(candidates, context.target_states, request, context.chance, last):
            try:
                return await one.target.count_tokens(request)
            except InvalidRequest as failure:
                if failure.code != "unsupported_parameter":
                    raise
                refused.append(failure)
            except ServiceError as failure:
                log.info("tokens not counted", target=one.name, reason=str(failure))
                return None
        raise refused[0]

    def explain(
        self, candidates: Sequence[Candidate], request: ChatRequest
    ) -> Sequence[RankedTarget]:
        """Return the targets in the order in which a request would ask them now, with reasons."""
        context, conversation = self._shared_state, selector.affinity_key(request)
        target_states = context.target_states
        last = context.last_target(request)
        groups = selector.available(candidates, target_states)
        weighted = (one for group in groups.values() for one in group)
        by_name = {one.name: one for one in (*candidates, *weighted)}
        # Ties are in the configured order.
        ordered = selector.order(candidates, target_states, request, lambda: 0.0, last)
        return [
            _to_ranked_target(one, groups.get(one.priority, ()), target_states, conversation, last)
            for one in (by_name[target_state.name] for target_state in ordered)
        ]

    def target_states(self) -> Sequence[TargetState]:
        return list(self._shared_state.target_states.values())

    def target_state(self, name: str) -> TargetState | None:
        return self._shared_state.target_states.get(name)

    def target_stats(self, name: str) -> TargetStats | None:
        state = self.target_state(name)
        return None if state is None else state.target_stats()

    def count_calls(self, name: str, classes: Sequence[CallClass]) -> None:
        if (state := self.target_state(name)) is not None:
            state.call_stats.add(classes)

    def status(self) -> list[TargetStatus]:
        return [target_state.status() for target_state in self._shared_state.target_states.values()]
