"""May this caller have this much now: limits on scopes, held as a lease.

A request is in several scopes (its key, the model, the door). It is let in where all of them have
room, and then takes from all of them: one place, one request, and the tokens that are foreseen. The
lease gives the place back and settles the tokens by the truth however the request ends. If one
scope has no room, nothing is taken anywhere, and the refusal names the limit, its owner and the
time.

The counts and their place are behind :class:`RateLimiter`: memory here, a shared store if replicas
share their limits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from causerie.access.lease import Lease
from causerie.access.quota import RateScope, Tokens
from causerie.access.refusal import too_large

_NO_TOKENS = Tokens()


class RateLimiter(Protocol):
    """Lets requests in, and counts what scopes have used."""

    def take_now(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Lease | None:
        """As :meth:`take`, or ``None`` where that would have to wait."""

    def take(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Awaitable[Lease]:
        """A lease on all scopes, which differ; it ends with its block.

        ``estimate`` is asked only where tokens are limited; output is reserved up
        to what fits into an empty window. Raises :class:`RateLimited`, and
        :class:`InvalidRequest` where the prompt alone is more than a scope may
        have in a minute; then, and where it is cancelled, nothing is taken.
        """


def needed(scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Tokens:
    """Return the tokens that a request needs; raise :class:`InvalidRequest` if a scope never has
    them.
    """
    need = _NO_TOKENS
    for scope in scopes:
        if scope.counts_tokens:
            if need is _NO_TOKENS:
                need = estimate()
            if need.input > scope.most_input:
                raise too_large(scope, need.input)
    return need
