"""Chooses the order of a request's targets, and asks them in turn within a retry budget."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b

from msgspec import Struct, field, structs

from causerie.errors import (
    ConstraintNotKept,
    ErrorClass,
    Overloaded,
    RateLimited,
    ServiceError,
    TemplateFailed,
    UpstreamFailed,
    forget_frames,
)
from causerie.protocol import events
from causerie.protocol.events import Partial
from causerie.protocol.request import ChatRequest, without_billing_line
from causerie.protocol.targets import UNBOUNDED_TOKENS, Candidate, TokenBounds
from causerie.routing.circuit_breaker import THRESHOLD
from causerie.routing.target import SILENCE, TargetReply
from causerie.routing.target_state import TargetState, cause_of, wait_of

_WORDS = (events.TextDelta, events.ReasoningDelta)
_CONTENT_EVENTS = (events.ToolCallStarted, events.Finished)


class Attempt(Struct, eq=False):
    """A request to one target: call ``begin``, then ``leave``.

    Times are in seconds of its clock.
    ``first`` has the events until it ``began``, :meth:`upcoming` gives those after it. The tokens
    of its ``answer`` are known after a failure too.
    """

    target_state: TargetState
    request: ChatRequest
    partial: events.Partial | None
    answer: TargetReply = SILENCE
    failure: str = ""  # why it did not do; empty where it did
    first: events.Batch = ()
    started: float = 0.0
    began: float = 0.0  # when the first content was there
    queued_seconds: float = 0.0
    upstream_seconds: float = 0.0
    _queue_context_manager: AbstractAsyncContextManager[float] | None = None
    _reply_context_manager: AbstractAsyncContextManager[TargetReply] | None = None
    _has_left_target: bool = False
    reached: bool = False  # whether the target had the request, where it failed
    resting: bool = False  # whether the target was to be left alone, after repeated failures
    _is_breaker_trial: bool = False  # whether this one finds out if the target is there again
    _has_answered: bool = False
    _is_reply_over: bool = False  # whether nothing follows what has come

    @property
    def target(self) -> str:
        return self.target_state.name

    def __str__(self) -> str:
        return f"{self.target}: {self.failure or 'answered'}"

    def changes(self, request: ChatRequest, made: Sequence[str]) -> Sequence[str]:
        sent = self.request
        if sent.min_tokens != request.min_tokens:
            made = (f"min_tokens lowered to {sent.min_tokens}", *made)
        if sent.max_tokens != request.max_tokens:
            made = (f"max_tokens lowered to {sent.max_tokens}", *made)
        return made

    async def begin(self) -> None:
        """Send the request and await the first content; leave the target and raise if it fails."""
        target_state = self.target_state
        breaker, latency_stats = target_state.breaker, target_state.latency_stats
        clock = breaker.clock
        target_state.in_flight += 1
        if not breaker.well:
            self.resting = breaker.failures >= THRESHOLD and not breaker.admits()
            self._is_breaker_trial = breaker.begin()
        self.started = asked = clock()
        before: list[events.Event] = []
        try:
            if target_state.admission_queue is not None:
                entry = target_state.admission_queue.enter(self.request.n)
                self.queued_seconds = await entry.__aenter__()
                self._queue_context_manager = entry
                asked = clock()
            latency_stats.waiting[self] = asked
            reply = target_state.target.generate(self.request, self.partial)
            answer = self.answer = await reply.__aenter__()
            self._reply_context_manager = reply
            upcoming = answer.events.__anext__
            while not _has_content_or_end(batch := await upcoming()):
                before += batch
            self.first = [*before, *batch] if before else batch
        except StopAsyncIteration:
            self.first, self._is_reply_over = before, True  # a reply that says nothing is one, too
        except BaseException as failure:
            await self._record_failure_and_leave(failure)
            raise
        self._has_answered = True
        self.began = began = clock()
        self.upstream_seconds = seconds = began - asked
        if not breaker.well:
            breaker.answers()
        target_state.answered += 1
        del latency_stats.waiting[self]
        latency_stats.answered(seconds, began)

    def upcoming(self) -> Callable[[], Awaitable[events.Batch]]:
        return (SILENCE if self._is_reply_over else self.answer).events.__anext__

    async def _record_failure_and_leave(self, failure: BaseException) -> None:
        self.target_state.latency_stats.waiting.pop(self, None)
        if isinstance(failure, ServiceError):
            failure.changes = failure.changes or self.answer.changes
            self.reached = "upstream_status" in failure.metadata or self.answer.usage().prompt > 0
            if not isinstance(failure, ConstraintNotKept):
                self.answer = SILENCE  # it costs nothing
            self.target_state.failed(failure)
        await self.leave()

    async def leave(self) -> None:
        if self._has_left_target:
            return
        self._has_left_target = True
        self.target_state.in_flight -= 1
        if self._is_breaker_trial and not self._has_answered:
            self.target_state.breaker.left()
        try:  # the reply first: its place is taken until it is over
            if self._reply_context_manager is not None:
                await self._reply_context_manager.__aexit__(None, None, None)
        finally:
            if self._queue_context_manager is not None:
                await self._queue_context_manager.__aexit__(None, None, None)


def _has_content_or_end(batch: events.Batch) -> bool:
    for event in batch:
        if isinstance(event, _WORDS):
            if event.text:
                return True
        elif isinstance(event, _CONTENT_EVENTS):
            return True
    return False


_MOST = 20_000  # conversations, of some 200 bytes each
_SECONDS = 600.0


class LastTargets(Struct, eq=False):
    """Remembers which target answered each recent conversation last, for its prompt cache."""

    most: int = _MOST
    _last_targets: OrderedDict[bytes, tuple[str, float]] = field(default_factory=OrderedDict)

    def note(self, conversation: str, target: str, now: float) -> None:
        key = _digest_conversation(conversation)
        self._last_targets[key] = target, now
        self._last_targets.move_to_end(key)
        if len(self._last_targets) > self.most:
            self._last_targets.popitem(last=False)

    def of(self, conversation: str, now: float) -> str:
        """Return the name of the target that lately answered a conversation, or an empty text."""
        target, noted = self._last_targets.get(_digest_conversation(conversation), ("", now))
        return target if now - noted <= _SECONDS else ""


def _digest_conversation(conversation_key: str) -> bytes:
    return blake2b(conversation_key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class RetryBudget(Struct, frozen=True):
    """Limits of attempts, of seconds without an answer, and of seconds to wait to continue."""

    attempts: int = 4
    seconds: float = 300.0
    wait_seconds: float = 30.0


class RoutingContext(Struct, frozen=True):
    """State that requests share: ``clock`` returns seconds, ``chance`` a number from 0 to 1."""

    target_states: Mapping[str, TargetState]
    budget: RetryBudget
    clock: Callable[[], float]
    chance: Callable[[], float]
    pause: Callable[[float], Awaitable[None]]
    last_targets: LastTargets

    def last_target(self, request: ChatRequest) -> str:
        """Return the name of the conversation's last target; empty if there is none or degraded."""
        last = self.last_targets.of(affinity_key(request), self.clock())
        target_state = self.target_states.get(last)
        return last if target_state is not None and target_state.weight == 1.0 else ""


_SHARE = 1.25
_AFFINITY_KEY_CHARACTERS = 4096  # of a message; more would only cost time


def order(
    candidates: Sequence[Candidate],
    target_states: Mapping[str, TargetState],
    request: ChatRequest,
    chance: Callable[[], float],
    last: str = "",
) -> list[TargetState]:
    """Return the targets in the order in which they are tried.

    Lower priority numbers come first. Within a group the conversation's own target is the first,
    unless it has more than 1.25 of its share of requests; that is the one that answered it
    ``last``, or one by rendezvous hashing with weights and bounded loads. The others follow by
    load. A degraded target has a tenth of its weight. Of unavailable targets only the one that is
    back first is tried, and one that rejects.
    """
    groups = available(candidates, target_states)
    admitted = {one.name for group in groups.values() for one in group}
    resting = [target_states[one.name] for one in candidates if one.name not in admitted]
    resting.sort(key=lambda target_state: target_state.breaker.wait())
    rejecting = [one for one in resting if one.breaker.state() == "rejecting"]
    down = [one for one in resting if one not in rejecting]
    ordered: list[TargetState] = []
    for _, group in sorted(groups.items()):
        if len(group) > 1:
            first = affinity_target(group, target_states, affinity_key(request), last)
            ranks = {one: (one != first, load(one, target_states), chance()) for one in group}
            group = sorted(group, key=ranks.__getitem__)
        ordered += [target_states[candidate.name] for candidate in group]
    return ordered + down[:1] + rejecting[:1]


def available(
    candidates: Sequence[Candidate], target_states: Mapping[str, TargetState]
) -> Mapping[int, Sequence[Candidate]]:
    groups: dict[int, list[Candidate]] = {}
    for one in candidates:
        target_state = target_states[one.name]
        if target_state.breaker.admits():
            if (weight := target_state.weight) != 1.0:
                one = structs.replace(one, weight=one.weight * weight)
            groups.setdefault(one.priority, []).append(one)
    return groups


def load(one: Candidate, target_states: Mapping[str, TargetState]) -> float:
    return (target_states[one.name].in_flight + 1) / one.weight


def affinity_target(
    group: Sequence[Candidate],
    target_states: Mapping[str, TargetState],
    conversation: str,
    last: str = "",
) -> Candidate | None:
    """Return the first target in a conversation's order of preference that is below its share."""
    total = sum(target_states[one.name].in_flight for one in group) + 1
    weights = sum(one.weight for one in group)
    for candidate in preferred(group, conversation, last):
        share = math.ceil(_SHARE * total * candidate.weight / weights)
        if target_states[candidate.name].in_flight < share:
            return candidate
    return None


def preferred(group: Sequence[Candidate], conversation: str, last: str = "") -> list[Candidate]:
    key = blake2b(conversation.encode("utf-8", "surrogatepass"), digest_size=32).digest()

    def distance(one: Candidate) -> tuple[bool, float]:
        # Exponential with the weight as its rate: the smallest distance wins by weight.
        drawn = blake2b(one.name.encode(), key=key, digest_size=8).digest()
        return one.name != last, -math.log((int.from_bytes(drawn, "big") + 1) / 2**64) / one.weight

    return sorted(group, key=distance)


def affinity_key(request: ChatRequest) -> str:
    """Return the key of a conversation within its cache scope: an id, or its first messages."""
    scope = request.cache_scope
    if request.session_id is not None:
        return scope + request.session_id
    if request.cache_key is not None:
        return scope + request.cache_key
    texts = [scope] if scope else []
    for message in without_billing_line(request.messages):
        texts.append(message.text[:_AFFINITY_KEY_CHARACTERS])
        if message.role == "user":
            break
    return "\0".join(texts)


_NAMED = 4
_OPERATOR = (
    "The operator finds the cause in the service's log and at `/health`, and can test the server "
    "with `causerie probe`."
)
_NEXT_STEP = f"if it goes on, {_OPERATOR.replace('The', 'the', 1)}"
_RETRY_SECONDS = 0.1  # doubled before each
_PASSING = frozenset({ErrorClass.SERVER_ERROR, ErrorClass.CONNECTION, ErrorClass.INVALID_REPLY})
_OF_THE_TARGET = frozenset(
    {"unsupported_parameter", "unsupported_operation", "context_length_exceeded"}
)


class TargetSelector(Struct, eq=False):
    """Sends one request to the candidates, one after the other, until one answers."""

    context: RoutingContext
    request: ChatRequest
    candidates: Sequence[Candidate]
    attempt: Attempt | None = None  # the one that answers now
    served_by: str = ""  # the target that answered last; before any did, the one asked last
    answered_by: str = ""  # with the provider's name of the model in place of a ``*``
    tried: list[Attempt] = []
    queued_seconds: float = 0.0  # until a place was free, of the targets that answered
    upstream_seconds: float = 0.0  # until the first content, of the targets that answered
    uncounted: int = 0  # how many of ``tried`` cost nothing of the budget
    _retry_budget_seconds_spent: float = 0.0  # without an answer

    def routed_seconds(self, attempt: Attempt) -> float:
        """Return the seconds from the start of the first attempt to the start of ``attempt``."""
        return attempt.started - min(one.started for one in self.tried)

    def spent(self) -> bool:
        budget, counted = self.context.budget, len(self.tried) - self.uncounted
        return counted >= budget.attempts or self._retry_budget_seconds_spent >= budget.seconds

    def reached(self) -> bool:
        return self.attempt is not None or any(one.reached for one in self.tried)

    async def wait(self, seconds: float) -> None:
        await self.context.pause(seconds)
        self._retry_budget_seconds_spent += seconds

    def broke(self, attempt: Attempt, failure: ServiceError) -> None:
        self._retry_budget_seconds_spent += attempt.began - attempt.started
        attempt.reached = True
        attempt.failure = cause_of(failure)

    def target_states(self) -> Sequence[TargetState]:
        context, request = self.context, self.request
        if len(self.candidates) == 1:
            return (context.target_states[self.candidates[0].name],)
        last = context.last_target(request)
        return order(self.candidates, context.target_states, request, context.chance, last)

    async def find(
        self, target_states: Sequence[TargetState], partial: Partial | None = None
    ) -> Attempt:
        """Ask the targets in order; return the attempt that answers, with its first content.

        Raises a failure that no other target could avoid at once, else the most informative one.
        """
        hopeless = False
        failures: list[ServiceError] = []
        asked = list(target_states)
        for place, target_state in enumerate(asked):
            if failures and self._is_context_too_short(target_state, failures):
                continue
            if failures and place >= len(target_states):
                await self._pause_before_retry(target_state)
            request = self.request.within(self._find_context_and_output_limits(target_state.name))
            attempt = Attempt(target_state, request, partial)
            try:
                await attempt.begin()
            except ServiceError as refused:
                self._append_failed_attempt_to_tried(attempt, refused)
                failures.append(refused)
                forget_frames(refused)
            except BaseException:
                self._append_abandoned_to_tried_if_charged(attempt)
                raise
            else:
                self._append_answering_attempt_to_tried(attempt)
                return attempt
            self._retry_budget_seconds_spent += self.context.clock() - attempt.started
            if partial is None and not _may_succeed_elsewhere(failures[-1]):
                raise failures[-1]
            hopeless = hopeless or (target_state is target_states[0] and attempt.resting)
            if self.spent():
                break
            if partial is None and self._may_retry(target_state, failures[-1]):
                asked.append(target_state)
        raise self._build_exhausted_error(target_states, failures, hopeless=hopeless)

    async def _pause_before_retry(self, target_state: TargetState) -> None:
        jitter = 0.5 + 0.5 * self.context.chance()
        await self.wait(_RETRY_SECONDS * 2 ** self._count_attempts_at(target_state) * jitter)

    def _may_retry(self, target_state: TargetState, failure: ServiceError) -> bool:
        return (
            self._count_attempts_at(target_state) <= target_state.target.retries
            and failure.error_class in _PASSING
            and not self.request.fallbacks  # which are asked at once
            and target_state.breaker.failures < THRESHOLD
        )

    def _count_attempts_at(self, target_state: TargetState) -> int:
        return sum(one.target == target_state.name for one in self.tried)

    def _append_answering_attempt_to_tried(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.tried.append(attempt)
        self._set_served_by(attempt.target_state.name)
        self.queued_seconds += attempt.queued_seconds
        self.upstream_seconds += attempt.upstream_seconds
        if len(self.candidates) > 1:
            context, target = self.context, attempt.target
            context.last_targets.note(affinity_key(self.request), target, context.clock())

    def _set_served_by(self, target_name: str) -> None:
        self.served_by = target_name
        rest = self.request.wildcard
        self.answered_by = target_name.replace("*", rest, 1) if rest else target_name

    def _find_context_and_output_limits(self, target_name: str) -> TokenBounds:
        for one in self.candidates:
            if one.name == target_name:
                return one.bounds
        return UNBOUNDED_TOKENS

    def _is_context_too_short(
        self, target_state: TargetState, failures: Sequence[ServiceError]
    ) -> bool:
        exceeded = [each for each in failures if each.code == "context_length_exceeded"]
        reported = (each.metadata.get("context_length") for each in exceeded)
        short = max((length for length in reported if isinstance(length, int)), default=0)
        length = self._find_context_and_output_limits(target_state.name).context_length
        return length is not None and length <= short

    def _append_abandoned_to_tried_if_charged(self, attempt: Attempt) -> None:
        # A target that has processed tokens counts as the one that served: they are charged.
        used = attempt.answer.usage()
        if used.prompt + used.completion:
            attempt.failure = "left"
            self.tried.append(attempt)
            self.attempt = attempt
            self._set_served_by(attempt.target)
            self.queued_seconds += attempt.queued_seconds

    def _append_failed_attempt_to_tried(self, attempt: Attempt, failure: ServiceError) -> None:
        attempt.failure = cause_of(failure)
        failure.changes = attempt.changes(self.request, failure.changes)
        self.tried.append(attempt)
        if isinstance(failure, ConstraintNotKept):
            self.attempt = attempt  # its work is charged
        if isinstance(failure, Overloaded) and "upstream_status" not in failure.metadata:
            self.uncounted += 1  # it was never sent
        if attempt.partial is None:
            self._set_served_by(attempt.target)  # nobody has answered yet

    def _build_exhausted_error(
        self,
        target_states: Sequence[TargetState],
        failures: Sequence[ServiceError],
        *,
        hopeless: bool,
    ) -> ServiceError:
        telling = [one for one in failures if one.code not in _OF_THE_TARGET]
        passing = [one for one in telling if one.retryable] or telling
        failure = passing[-1] if passing else next(iter(failures), None)
        states = self.context.target_states
        rests = {one.name: states[one.name].breaker.wait() for one in self.candidates}
        if failure is None or (hopeless and isinstance(failure, UpstreamFailed)):
            wait = max(1, math.ceil(min(rests.values(), default=1.0)))
            why = f" {_format_failure(failure)}" if isinstance(failure, UpstreamFailed) else ""
            exhausted = Overloaded(
                f"No target of this model answers now ({_join_names(self.candidates)}).{why} "
                f"Try again in {wait} s; {_NEXT_STEP}",
                code="no_endpoint",
                retry_after=wait,
            )
            return exhausted if failure is None else exhausted.caused_by(failure.error_class)
        if isinstance(failure, Overloaded):  # of those that are full, who has room first
            failure = min((one for one in telling if isinstance(one, Overloaded)), key=wait_of)
            for target_state in target_states:
                rests.pop(target_state.name, None)
            sooner = max(1, math.ceil(min(rests.values(), default=wait_of(failure))))
            if sooner < wait_of(failure):  # of those that rest only one was asked
                failure.headers["Retry-After"] = str(sooner)
            if all(one.error_class is ErrorClass.RATE_LIMITED for one in telling):
                failure.status, failure.type = 429, RateLimited.type
                failure.code = "upstream_rate_limited"
                failure.message = (
                    "The provider's own rate limit is reached; try again after the time in "
                    "`Retry-After`."
                )
        if isinstance(failure, UpstreamFailed):
            next_step = f"Try again later; {_NEXT_STEP}" if failure.retryable else _OPERATOR
            failure.message = (
                f"No target of this model answered ({_join_names(self.candidates)}). "
                f"{_format_failure(failure)} {next_step}"
            )
        if len(self.tried) > 1:
            failure.metadata["attempts"] = len(self.tried)
        return failure


def _join_names(candidates: Sequence[Candidate]) -> str:
    names = [one.name for one in candidates[:_NAMED]]
    others = len(candidates) - len(names)
    return ", ".join([*names, f"and {others} more"] if others else names)


def _format_failure(failure: UpstreamFailed) -> str:
    target = failure.metadata.get("target")
    return f"{target}: {failure!s}" if target else str(failure)


def _may_succeed_elsewhere(failure: ServiceError) -> bool:
    of_the_target = (Overloaded, RateLimited, TemplateFailed, UpstreamFailed)
    return isinstance(failure, of_the_target) or failure.code in _OF_THE_TARGET
