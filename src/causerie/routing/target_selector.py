"""Finding a target that answers: one after the other, within one budget a request.

Knows nothing of what becomes of the reply once it has started.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from causerie.errors import (
    ConstraintNotKept,
    Overloaded,
    RateLimited,
    ServiceError,
    TemplateFailed,
    UpstreamFailed,
    forget_frames,
)
from causerie.protocol.candidate import Candidate
from causerie.protocol.partial import Partial
from causerie.protocol.request import ChatRequest
from causerie.routing.attempt import Attempt
from causerie.routing.context import RoutingContext
from causerie.routing.order import affinity_key, order
from causerie.routing.target_state import TargetState, cause_of, wait_of

_ABANDONED = "left"
_NAMED = 4
_NEXT_STEP = (
    "if it goes on, the operator finds the cause in the service's log and at `/health`, and can "
    "test the server with `causerie probe`."
)
_OPERATOR = (
    "The operator finds the cause in the service's log and at `/health`, and can test the server "
    "with `causerie probe`."
)
_OF_THE_TARGET = frozenset({"unsupported_parameter", "context_length_exceeded"})


class TargetSelector(Struct, eq=False):
    """Sends one request to ``candidates``, one after the other, until one answers."""

    context: RoutingContext
    request: ChatRequest
    candidates: Sequence[Candidate]
    attempt: Attempt | None = None  # the one that answers now
    served_by: str = ""  # the target that answered last; before any did, the one asked last
    tried: list[Attempt] = []
    queued_seconds: float = 0.0  # until a place was free, of the targets that answered
    upstream_seconds: float = 0.0  # until the first content, of the targets that answered
    uncounted: int = 0  # how many of ``tried`` cost nothing of the budget
    _seconds: float = 0.0  # without an answer

    def routed_seconds(self) -> float:
        """Return the time that attempts at other targets took before the one that answers."""
        if self.attempt is None or len(self.tried) == 1:
            return 0.0
        return self.attempt.started - min(one.started for one in self.tried)

    def spent(self) -> bool:
        budget, counted = self.context.budget, len(self.tried) - self.uncounted
        return counted >= budget.attempts or self._seconds >= budget.seconds

    @property
    def reached(self) -> bool:
        """Return true if a target has had the request."""
        return self.attempt is not None or any(one.reached for one in self.tried)

    def waited(self, seconds: float) -> None:
        """Time went by in which nobody was asked."""
        self._seconds += seconds

    def broke(self, attempt: Attempt, failure: ServiceError) -> None:
        """Record that the target which answered has broken off."""
        self._seconds += attempt.began - attempt.started
        attempt.reached = True
        attempt.failure = cause_of(failure)

    def target_states(self) -> Sequence[TargetState]:
        """Return the targets that may be asked now, in order."""
        context, request = self.context, self.request
        if len(self.candidates) == 1:
            return (context.target_states[self.candidates[0].name],)
        last = context.last_targets.of(affinity_key(request), context.clock())
        return order(self.candidates, context.target_states, request, context.chance, last)

    async def find(
        self, target_states: Sequence[TargetState], partial: Partial | None = None
    ) -> Attempt:
        """Return the attempt that answers, now ``attempt``, with its first content-bearing event.

        Raises at once a failure that no other target could avoid, else the most informative one
        when all have failed.
        """
        hopeless = False
        failures: list[ServiceError] = []
        for target_state in target_states:
            if failures and self._is_short(target_state, failures):
                continue
            attempt = Attempt(target_state, self._request(target_state), partial)
            try:
                await attempt.begin()
            except ServiceError as refused:
                self._record_failure(attempt, refused)
                failures.append(refused)
                forget_frames(refused)
            except BaseException:
                self._record_abandoned(attempt)
                raise
            else:
                self.attempt = attempt
                self._record_served(attempt.target)
                self.tried.append(attempt)
                self.queued_seconds += attempt.queued_seconds
                self.upstream_seconds += attempt.upstream_seconds
                return attempt
            self._seconds += self.context.clock() - attempt.started
            if partial is None and not _may_succeed_elsewhere(failures[-1]):
                raise failures[-1]
            hopeless = hopeless or (target_state is target_states[0] and attempt.resting)
            if self.spent():
                break
        raise self._exhausted(target_states, failures, hopeless=hopeless)

    def _record_served(self, target: str) -> None:
        self.served_by = target
        if len(self.candidates) > 1:
            context = self.context
            context.last_targets.note(affinity_key(self.request), target, context.clock())

    def _request(self, target_state: TargetState) -> ChatRequest:
        for one in self.candidates:
            if one.name == target_state.name:
                return self.request.within(one.bounds)
        return self.request

    def _is_short(self, target_state: TargetState, failures: Sequence[ServiceError]) -> bool:
        """Return true if its context is known to be no longer than one that was too short."""
        reported = [
            failure.metadata.get("context_length")
            for failure in failures
            if failure.code == "context_length_exceeded"
        ]
        short = max((length for length in reported if isinstance(length, int)), default=0)
        lengths = [
            one.bounds.context_length for one in self.candidates if one.name == target_state.name
        ]
        return any(length is not None and length <= short for length in lengths)

    def _record_abandoned(self, attempt: Attempt) -> None:
        # A target that has processed tokens counts as the one that served: they are charged.
        used = attempt.answer.usage()
        if used.prompt + used.completion:
            attempt.failure = _ABANDONED
            self.tried.append(attempt)
            self.attempt, self.served_by = attempt, attempt.target
            self.queued_seconds += attempt.queued_seconds

    def _record_failure(self, attempt: Attempt, failure: ServiceError) -> None:
        attempt.failure = cause_of(failure)
        failure.changes = attempt.changes(self.request, failure.changes)
        self.tried.append(attempt)
        if isinstance(failure, ConstraintNotKept):
            self.attempt = attempt  # its work is charged
        if isinstance(failure, Overloaded) and "upstream_status" not in failure.metadata:
            self.uncounted += 1  # it was never sent
        if attempt.partial is None:
            self.served_by = attempt.target  # nobody has answered yet

    def _exhausted(
        self,
        target_states: Sequence[TargetState],
        failures: Sequence[ServiceError],
        *,
        hopeless: bool,
    ) -> ServiceError:
        """Return the error for the client when no target answers."""
        telling = [one for one in failures if not _unable(one)]
        passing = [one for one in telling if one.retryable] or telling
        failure = passing[-1] if passing else next(iter(failures), None)
        rests = {
            one.name: self.context.target_states[one.name].breaker.wait() for one in self.candidates
        }
        if failure is None or (hopeless and isinstance(failure, UpstreamFailed)):
            wait = max(1, math.ceil(min(rests.values(), default=1.0)))
            why = f" {_last(failure)}" if isinstance(failure, UpstreamFailed) else ""
            exhausted = Overloaded(
                f"No target of this model answers now ({_listed(self.candidates)}).{why} "
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
        if isinstance(failure, UpstreamFailed):
            next_step = f"Try again later; {_NEXT_STEP}" if failure.retryable else _OPERATOR
            failure.message = (
                f"No target of this model answered ({_listed(self.candidates)}). {_last(failure)} "
                f"{next_step}"
            )
        if len(self.tried) > 1:
            failure.metadata["attempts"] = len(self.tried)
        return failure


def _listed(candidates: Sequence[Candidate]) -> str:
    """Return the names of the targets; of many, the first ones and the number of the others."""
    names = [one.name for one in candidates[:_NAMED]]
    others = len(candidates) - len(names)
    return ", ".join([*names, f"and {others} more"] if others else names)


def _last(failure: UpstreamFailed) -> str:
    """Return the failure's own words, with the target they are about."""
    target = failure.metadata.get("target")
    return f"{target}: {failure!s}" if target else str(failure)


def _may_succeed_elsewhere(failure: ServiceError) -> bool:
    of_the_target = (Overloaded, RateLimited, TemplateFailed, UpstreamFailed)
    return isinstance(failure, of_the_target) or _unable(failure)


def _unable(failure: ServiceError) -> bool:
    """Return true if a target only lacks a parameter or the context, which another may have."""
    return failure.code in _OF_THE_TARGET
