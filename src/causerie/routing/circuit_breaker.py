"""Circuit breaker of a target, or of a member of a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

THRESHOLD = 3
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0
LONGEST_FULL_SECONDS = 300.0
_TRIAL_SECONDS = 120.0  # a trial that has not ended by then no longer keeps others away

State = Literal["up", "full", "down", "rejecting", "trying", "half_open"]


class CircuitBreaker:
    """The breaker of one target. ``clock`` gives seconds; ``chance`` a number from 0 to 1.

    ``well``: nothing is held against it, no failure and no fullness. ``open``: it failed, and
    has not answered since.
    """

    __slots__ = (
        "_absent", "_chance", "_down_until", "_failures", "_full_until", "_longest_seconds",
        "_rejected_until", "_rejections", "_trial_until", "_waits", "clock", "open", "reason",
        "well",
    )  # fmt: skip

    def __init__(
        self,
        clock: Callable[[], float],
        chance: Callable[[], float],
        longest_seconds: float = LONGEST_WAIT_SECONDS,
    ) -> None:
        self.clock = clock
        self._longest_seconds = longest_seconds  # that one failure keeps requests away
        self._chance = chance
        self._failures = 0
        self.open = False
        self._absent = False  # the last active check failed
        self._waits = 0
        self._down_until = 0.0
        self._full_until = 0.0
        self._trial_until = 0.0
        self._rejections = 0
        self._rejected_until = 0.0
        self.reason = ""
        self.well = True

    @property
    def failures(self) -> int:
        """Failures in a row."""
        return self._failures

    @property
    def rejections(self) -> int:
        """Number of rejections in a row."""
        return self._rejections

    @property
    def rejecting(self) -> bool:
        """Return true after enough rejections, until a reply starts."""
        return self._rejections >= THRESHOLD

    def state(self) -> State:
        """Return the state now.

        ``half_open``: the wait is over and the next request tries the target; ``trying``: one
        request is doing so.
        """
        if self.well:
            return "up"
        now = self.clock()
        if self.open:
            if self._absent or now < self._down_until:
                return "down"
            if now < self._trial_until:
                return "trying"
        if now < self._full_until:
            return "full"
        if self.open or not self.rejecting:
            return "half_open" if self.open else "up"
        if now < self._rejected_until:
            return "rejecting"
        return "trying" if now < self._trial_until else "half_open"

    def admits(self) -> bool:
        """Return true if a request may be sent to it now."""
        return self.well or self.state() in ("up", "half_open")

    def wait(self) -> float:
        """Seconds until it may be asked; 0 where it may be asked now."""
        until = {
            "down": self._down_until,
            "trying": self._trial_until,
            "full": self._full_until,
            "rejecting": self._rejected_until,
        }.get(self.state(), 0.0)
        return max(until - self.clock(), 0.0)

    def begin(self) -> bool:
        """A request is sent to it; whether that one finds out for all."""
        if self.state() != "half_open":
            return False
        self._trial_until = self.clock() + _TRIAL_SECONDS
        return True

    def left(self) -> None:
        """The request that was to find out ended before it did."""
        self._trial_until = 0.0

    def answers(self) -> None:
        """Record that a reply has started."""
        if not self.well:
            self._rejections = 0
            self._rejected_until = 0.0
            self._is_there()

    def refuses(self) -> None:
        """Record that it refused one request for its content, so that it is reachable."""
        if not self.well:
            self._is_there()

    def _is_there(self) -> None:
        self._failures = min(self._failures, THRESHOLD - 1)
        self.open = self._absent = False
        self._down_until = self._full_until = self._trial_until = 0.0
        self.well = not self._failures and not self._rejections

    def rejects(self, reason: str) -> None:
        """Record that it refused a request because of our key, the model or our account."""
        self._is_there()
        self._rejections += 1
        self.well = False
        self.reason = reason
        now = self.clock()
        if self.rejecting and now >= self._rejected_until:
            self._rejected_until = now + LONGEST_WAIT_SECONDS * (0.5 + 0.5 * self._chance())

    def succeeded(self) -> None:
        """A whole reply has come."""
        if not self.well:
            self.well = True
            self.open = self._absent = False
            self._failures = self._waits = self._rejections = 0
            self._down_until = self._full_until = self._trial_until = self._rejected_until = 0.0
            self.reason = ""

    def back(self) -> None:
        """It is there again, though it has not answered a request yet: one may try now."""
        self._absent = False
        self._down_until = 0.0

    def absent(self, reason: str, *, proven: bool = True) -> None:
        """Record that an active check failed."""
        self._absent = True
        self.failed(reason, proven=proven)

    def failed(self, reason: str, *, proven: bool = True) -> None:
        """It could not be reached, did not answer in time, or failed.

        ``proven``: it has answered a request lately, so that one failure says little.
        """
        self._failures += 1
        self.open = self.open or self._failures >= THRESHOLD or not proven
        self.well = False
        self.reason = reason
        now = self.clock()
        if not self.open or now < self._down_until:
            return  # what fails together fails of one cause, and lengthens nothing
        self._trial_until = 0.0
        longest = min(FIRST_WAIT_SECONDS * 2**self._waits, self._longest_seconds)
        self._waits = min(self._waits + 1, 16)
        self._down_until = now + longest * (0.5 + 0.5 * self._chance())

    def full(self, seconds: float, reason: str) -> None:
        """It takes no more for ``seconds``."""
        self._trial_until = 0.0
        self.well = False
        self.reason = reason
        self._full_until = self.clock() + min(max(seconds, 0.1), LONGEST_FULL_SECONDS)
