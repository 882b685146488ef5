"""The lease of one request: a slot and tokens, until its block ends.

The base class has no limits. A component that counts use by scope subclasses it to report the
reservation, return it, and give the state of the limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from msgspec import Struct

from causerie.access.quota import LimitStatus, LimitStatuses
from causerie.errors import ServiceError
from causerie.protocol.events import Usage

_NOTHING = Usage(0, 0)
_NO_LIMITS: LimitStatuses = (None, None)
_TENTHS = [f"{tenths // 10}.{tenths % 10}s" for tenths in range(601)]  # of a minute


class Lease(Struct, kw_only=True):
    """Failures that leave its block say how limits stand, too.

    A refusal before the request has ``reached`` a target releases everything, the request too.
    ``spared`` tells whether a later failure releases it as well, because it counts elsewhere.
    """

    used: Usage = _NOTHING
    reached: bool = False
    spared: Callable[[ServiceError], bool] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._release_used()
            return
        failure = error if isinstance(error, ServiceError) else None
        if failure is not None and (not self.reached or self._is_spared(failure)):
            self.undo()
        else:
            self._release_used()
        if failure is not None:
            headers: dict[str, str] = {}
            tell(self.limit_statuses(), headers)
            failure.headers = headers | failure.headers

    def _release_used(self) -> None:
        """Count generated tokens, including discarded ones, which take the engine as long."""
        used = self.used
        self.release(used.prompt, used.completion + used.discarded)

    def _is_spared(self, failure: ServiceError) -> bool:
        return self.spared is not None and self.spared(failure)

    def settle(self, used: Usage, *, reached: bool = True) -> None:
        """Record what was used until now, and whether a target has had the request."""
        self.used, self.reached = used, reached

    def release(self, input: int, output: int) -> None:
        """Give the places back and count these tokens instead of the foreseen ones.

        Called once, also while the request is being cancelled, so it neither
        waits nor fails; a shared store is told in the background. There a lease
        ends by itself when its process is gone.
        """

    def undo(self) -> None:
        """As :meth:`release`, but as if nothing had been taken."""

    def limit_statuses(self) -> LimitStatuses:
        """Return the state of the strictest limits of its scopes, as far as this process knows.

        After :meth:`release` too.
        """
        return _NO_LIMITS


class CombinedLease(Lease):
    """Leases on scopes that are counted in two places."""

    first: Lease
    second: Lease

    def release(self, input: int, output: int) -> None:
        """The request has ended and has used this."""
        self.first.release(input, output)
        self.second.release(input, output)

    def undo(self) -> None:
        """Nothing was taken after all."""
        self.first.undo()
        self.second.undo()

    def limit_statuses(self) -> LimitStatuses:
        """Return the current state of the strictest limits."""
        requests, tokens = self.first.limit_statuses()
        others, more = self.second.limit_statuses()
        return _stricter(requests, others), _stricter(tokens, more)


def _stricter(one: LimitStatus | None, other: LimitStatus | None) -> LimitStatus | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda status: status[1])


def tell(limit_statuses: LimitStatuses, headers: dict[str, str]) -> None:
    """Add ``x-ratelimit-…`` for these."""
    requests, tokens = limit_statuses
    if requests is not None:
        headers["x-ratelimit-limit-requests"], left, reset = requests
        headers["x-ratelimit-remaining-requests"] = str(left)
        headers["x-ratelimit-reset-requests"] = _TENTHS[reset]
    if tokens is not None:
        headers["x-ratelimit-limit-tokens"], left, reset = tokens
        headers["x-ratelimit-remaining-tokens"] = str(left)
        headers["x-ratelimit-reset-tokens"] = _TENTHS[reset]
