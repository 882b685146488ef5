"""Circuit breaker: keeps requests from a target, or a pool member, that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

THRESHOLD = 3
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0
LONGEST_FULL_SECONDS = 300.0
_TRIAL_SECONDS = 120.0  # a trial that has not ended by then no longer keeps others away

State = Literal["up", "degraded", "full", "down", "rejecting", "trying", "half_open"]


@dataclass(eq=False)
class CircuitBreaker:
    """Decides by the failures and rejections of one target whether it gets requests.

    ``clock`` returns seconds, ``chance`` a number from 0 to 1.
    ``well``: no failure, rejection or fullness is remembered. ``open``: it failed and has not
    answered since.

    Failed connections, time-outs and 5xx count; errors of a client do not, and a full target is not
    broken. After ``THRESHOLD`` failures in a row, or one of a target that has answered nothing
    lately, it gets no requests for a while, longer each time, with jitter; then one request tries
    it. Only a complete reply resets the failures. While an active check fails, no request tries it.
    After ``THRESHOLD`` rejections (of its key, model or account) one request a minute tries it
    until a reply starts.
    """

    clock: Callable[[], float]
    _chance: Callable[[], float]
    _longest_seconds: float = LONGEST_WAIT_SECONDS  # that one failure keeps requests away
    failures: int = 0  # in a row
    open: bool = False
    _has_last_check_failed: bool = False  # the last active check failed
    _wait_doublings: int = 0
    _down_until: float = 0.0
    _overloaded_until: float = 0.0
    _trial_deadline: float = 0.0
    rejections: int = 0  # in a row
    _rejection_pause_end: float = 0.0
    reason: str = ""
    well: bool = True

    @property
    def rejecting(self) -> bool:
        return self.rejections >= THRESHOLD

    def state(self) -> State:
        """Return the state; ``half_open``: the next request is a trial; ``trying``: one runs."""
        if self.well:
            return "up"
        now = self.clock()
        if self.open:
            if self._has_last_check_failed or now < self._down_until:
                return "down"
            if now < self._trial_deadline:
                return "trying"
        if now < self._overloaded_until:
            return "full"
        if self.open or not self.rejecting:
            return "half_open" if self.open else "up"
        if now < self._rejection_pause_end:
            return "rejecting"
        return "trying" if now < self._trial_deadline else "half_open"

    def admits(self) -> bool:
        return self.well or self.state() in ("up", "half_open")

    def wait(self) -> float:
        until = {
            "down": self._down_until,
            "trying": self._trial_deadline,
            "full": self._overloaded_until,
            "rejecting": self._rejection_pause_end,
        }.get(self.state(), 0.0)
        return max(until - self.clock(), 0.0)

    def begin(self) -> bool:
        """Record that a request is sent; return true if it is the trial of a failing target."""
        if self.state() != "half_open":
            return False
        self._trial_deadline = self.clock() + _TRIAL_SECONDS
        return True

    def left(self) -> None:
        """Record that the trial ended without a result, so that the next request is a trial."""
        self._trial_deadline = 0.0

    def answers(self) -> None:
        self.rejections = 0
        self._rejection_pause_end = 0.0
        self.refuses()

    def refuses(self) -> None:
        """Record that the target refused a request for its content, and so is reachable."""
        self.failures = min(self.failures, THRESHOLD - 1)
        self.open = self._has_last_check_failed = False
        self._down_until = self._overloaded_until = self._trial_deadline = 0.0
        self.well = not self.failures and not self.rejections

    def rejects(self, reason: str) -> None:
        """Record that the target refused a request because of our key, the model or our account."""
        self.refuses()
        self.rejections += 1
        self.well = False
        self.reason = reason
        now = self.clock()
        if self.rejecting and now >= self._rejection_pause_end:
            self._rejection_pause_end = now + LONGEST_WAIT_SECONDS * (0.5 + 0.5 * self._chance())

    def succeeded(self) -> None:
        if not self.well:
            self.failures = self._wait_doublings = 0
            self.reason = ""
            self.answers()

    def back(self) -> None:
        """Record that an active health check succeeded, so that the next request may be a trial."""
        self._has_last_check_failed = False
        self._down_until = 0.0

    def absent(self, reason: str, *, proven: bool = True) -> None:
        self._has_last_check_failed = True
        self.failed(reason, proven=proven)

    def failed(self, reason: str, *, proven: bool = True) -> None:
        """Record a failed request; ``proven``: the target has answered another one lately."""
        self.failures += 1
        self.open = self.open or self.failures >= THRESHOLD or not proven
        self.well = False
        self.reason = reason
        now = self.clock()
        if not self.open or now < self._down_until:
            return  # simultaneous failures have one cause
        self._trial_deadline = 0.0
        longest = min(FIRST_WAIT_SECONDS * 2**self._wait_doublings, self._longest_seconds)
        self._wait_doublings = min(self._wait_doublings + 1, 16)
        self._down_until = now + longest * (0.5 + 0.5 * self._chance())

    def full(self, seconds: float, reason: str) -> None:
        self._trial_deadline = 0.0
        self.well = False
        self.reason = reason
        self._overloaded_until = self.clock() + min(max(seconds, 0.1), LONGEST_FULL_SECONDS)
