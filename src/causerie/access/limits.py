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

import math
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from msgspec import Struct

from causerie.access.quota import Refusal, Refused, Scope, Standings, Tokens
from causerie.errors import InvalidRequest, RateLimited, ServiceError
from causerie.protocol.events import Usage

_NO_TOKENS = Tokens()
_NOTHING = Usage(0, 0)
_CODES = {"requests": "requests", "concurrent": "concurrency"}  # all others: tokens
_WORDS = {
    "requests": "{limit} requests a minute",
    "tokens": "{limit} tokens a minute",
    "input_tokens": "{limit} input tokens a minute",
    "output_tokens": "{limit} output tokens a minute",
    "concurrent": "{limit} requests at the same time",
}


class Hold(Protocol):
    """What one request has taken from all its scopes."""

    def release(self, input: int, output: int) -> None:
        """Give the places back and count these tokens instead of the foreseen ones.

        Called once, also while the request is being cancelled, so it neither
        waits nor fails; a shared store is told in the background. There a hold
        ends by itself when its process is gone.
        """
        ...

    def standings(self) -> Standings:
        """How the strictest limits of its scopes stand, as far as is known here.

        After :meth:`release` too.
        """
        ...


class Counters(Protocol):
    """Where is counted what scopes have used."""

    async def take(self, scopes: Sequence[Scope], need: Tokens) -> Hold | Refused:
        """Take from all scopes, which differ, at once, or from none.

        Output is reserved up to what fits into an empty window. Cancelled while
        it waits, it holds nothing.
        """
        ...


class Used(Protocol):
    """The tokens that a request has used; ``completion`` includes reasoning."""

    @property
    def prompt(self) -> int: ...
    @property
    def completion(self) -> int: ...


class Limits:
    """Lets requests in."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    async def admit(self, scopes: Sequence[Scope], estimate: Callable[[], Tokens]) -> Lease:
        """A lease on all scopes, which ends with its block.

        ``estimate`` is asked only where tokens are limited. Raises
        :class:`RateLimited`, and :class:`InvalidRequest` where the prompt alone
        is more than a scope may have in a minute.
        """
        if not scopes:
            return Lease(None)
        need = _NO_TOKENS
        for scope in scopes:
            if scope.counts_tokens:
                if need is _NO_TOKENS:
                    need = estimate()
                if need.input > scope.most_input:
                    raise _too_large(scope, need.input)
        taken = await self._counters.take(scopes, need)
        if isinstance(taken, Refused):
            raise _limited(taken)
        return Lease(taken)


class Lease(Struct):
    """What one request may have. Failures that leave its block get :attr:`headers` too."""

    hold: Hold | None  # none where nothing is limited
    used: Used = _NOTHING

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        hold = self.hold
        if hold is not None:
            hold.release(self.used.prompt, self.used.completion)
            if isinstance(error, ServiceError):
                error.headers = {**_headers(hold.standings()), **error.headers}

    @property
    def headers(self) -> dict[str, str]:
        """``x-ratelimit-…``: the strictest limit of requests and of tokens, as they stand now."""
        return {} if self.hold is None else _headers(self.hold.standings())

    def settle(self, used: Used) -> None:
        """This is what was used until now; nothing where it is never said."""
        self.used = used


def _limited(refused: Refused) -> RateLimited:
    """The refusal that lasts longest, in words; after its time no other stands in the way."""
    refusal = max(refused.refusals, key=lambda each: each.wait)
    wait = max(math.ceil(refusal.wait), 1)
    return RateLimited(
        f"{_may(refusal.scope)} {_WORDS[refusal.measure].format(limit=refusal.limit)}; "
        f"{_standing(refusal)}. Try again in {wait} s.",
        code=_CODES.get(refusal.measure, "tokens"),
        metadata={
            "limit": refusal.measure,
            "scope": {"kind": refusal.scope.kind, "name": refusal.scope.name},
            "allowed": refusal.limit,
            "used": refusal.used,
            "needed": refusal.needed,
        },
        headers={"Retry-After": str(wait), **_headers(refused.standings)},
    )


def _may(scope: Scope) -> str:
    return f"The {scope.kind} {scope.name} may have"


def _standing(refusal: Refusal) -> str:
    if refusal.measure == "concurrent":
        return f"{refusal.used} are under way"
    if refusal.measure == "requests":
        return "all were made"
    return f"{refusal.used} are used or reserved, and this request may need {refusal.needed}"


def _too_large(scope: Scope, needed: int) -> InvalidRequest:
    most = scope.most_input
    return InvalidRequest(
        f"{_may(scope)} {most} tokens of input a minute; the messages are estimated at {needed}, "
        "so this request can never be let in. Shorten it, or have the limit raised.",
        param="messages",
        metadata={
            "limit": "input_tokens" if scope.input == most else "tokens",
            "scope": {"kind": scope.kind, "name": scope.name},
            "allowed": most,
            "needed": needed,
        },
    )


def _headers(standings: Standings) -> dict[str, str]:
    requests, tokens = standings.requests, standings.tokens
    headers: dict[str, str] = {}
    if requests is not None:
        headers = {
            "x-ratelimit-limit-requests": f"{requests.limit}",
            "x-ratelimit-remaining-requests": f"{requests.remaining}",
            "x-ratelimit-reset-requests": f"{requests.reset:.1f}s",
        }
    if tokens is not None:
        headers |= {
            "x-ratelimit-limit-tokens": f"{tokens.limit}",
            "x-ratelimit-remaining-tokens": f"{tokens.remaining}",
            "x-ratelimit-reset-tokens": f"{tokens.reset:.1f}s",
        }
    return headers
