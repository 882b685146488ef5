"""May this caller have this much now: limits on scopes, held as a lease.

A request is in several scopes (its key, the model, the door). It is let in
where all of them have room, and then takes from all of them: one place, one
request, and the tokens that are foreseen. The lease gives the place back and
settles the tokens by the truth however the request ends. Where one scope has no
room, nothing is taken anywhere, and the refusal says which limit, whose and when.

What counts, and where, is behind :class:`Counters`: memory here, a shared store
where replicas share their limits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from causerie.access.lease import Lease
from causerie.access.quota import Scope, Tokens
from causerie.access.refusal import too_large

_NO_TOKENS = Tokens()


class Counters(Protocol):
    """Where is counted what scopes have used."""

    @property
    def take_now(self) -> Callable[[Sequence[Scope], Tokens], Lease] | None:
        """As :meth:`take`, where the counts are at hand; ``None`` where they never are."""
        ...

    def take(self, scopes: Sequence[Scope], need: Tokens) -> Awaitable[Lease]:
        """Take from all scopes, which differ, at once, or from none; raises :class:`RateLimited`.

        Output is reserved up to what fits into an empty window. Cancelled while
        it waits, it holds nothing.
        """
        ...


class Limits:
    """Lets requests in."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def admit_now(self, scopes: Sequence[Scope], estimate: Callable[[], Tokens]) -> Lease | None:
        """As :meth:`admit`, or ``None`` where that would have to wait."""
        if not scopes:
            return Lease()
        take_now = self._counters.take_now
        return take_now(scopes, _need(scopes, estimate)) if take_now is not None else None

    async def admit(self, scopes: Sequence[Scope], estimate: Callable[[], Tokens]) -> Lease:
        """A lease on all scopes, which ends with its block.

        ``estimate`` is asked only where tokens are limited. Raises
        :class:`RateLimited`, and :class:`InvalidRequest` where the prompt alone
        is more than a scope may have in a minute.
        """
        lease = self.admit_now(scopes, estimate)
        return lease or await self._counters.take(scopes, _need(scopes, estimate))


def _need(scopes: Sequence[Scope], estimate: Callable[[], Tokens]) -> Tokens:
    """What a request needs of these; raises :class:`InvalidRequest` where none may have that."""
    need = _NO_TOKENS
    for scope in scopes:
        if scope.counts_tokens:
            if need is _NO_TOKENS:
                need = estimate()
            if need.input > scope.most_input:
                raise too_large(scope, need.input)
    return need
