"""Limits of callers: their terms, their refusals, and the lease of an admitted request."""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal, Protocol, Self

from msgspec import Meta, Struct

from causerie.errors import InvalidRequest, RateLimited, ServiceError, counted
from causerie.protocol.events import Usage
from causerie.protocol.request import UNNAMED_OUTPUT, ChatRequest, prompt_estimate
from causerie.protocol.targets import Candidate

UNLIMITED = sys.maxsize

ScopeKind = Literal["key", "user", "member", "project", "model", "door"]
Measure = Literal["requests", "tokens", "input_tokens", "output_tokens", "concurrent"]


PositiveInt = Annotated[int, Meta(ge=1, le=2**53 - 1)]


class Rates(Struct, frozen=True, kw_only=True):
    """Limits as they are configured; ``None`` is no limit."""

    requests_per_minute: PositiveInt | None = None
    tokens_per_minute: PositiveInt | None = None
    input_tokens_per_minute: PositiveInt | None = None
    output_tokens_per_minute: PositiveInt | None = None
    concurrent: PositiveInt | None = None


class RateScope:
    """A key, user, project, model or door with its limits; made once, not for every request.

    Counts belong to ``id``, so limits may change while requests are running.
    """

    def __init__(self, kind: ScopeKind, name: str, rates: Rates) -> None:
        """Raises :class:`ValueError` for a limit below 1."""
        self.kind, self.name, self.id = kind, name, f"{kind}:{name}"
        self.requests = _checked_limit(rates.requests_per_minute)
        self.tokens = _checked_limit(rates.tokens_per_minute)
        self.input = _checked_limit(rates.input_tokens_per_minute)
        self.output = _checked_limit(rates.output_tokens_per_minute)
        self.concurrent = _checked_limit(rates.concurrent)
        self.most_input = min(self.input, self.tokens)  # of one request
        self.most_output = min(self.output, self.tokens)
        self.splits = min(self.input, self.output) < UNLIMITED  # each has a limit of its own
        self.counts_tokens = self.splits or self.tokens < UNLIMITED


class Tokens(Struct, frozen=True, gc=False):
    """Tokens of a request, and the units of a rerank: foreseen, or used."""

    input: int = 0
    output: int = 0
    units: int = 0


SpentProviders = Mapping[str, datetime | None]
"""Providers whose budget is spent, and when it begins anew."""

LimitStatus = tuple[int, int, int]
"""A limit, what is left of it, and the tenths of a second (at most 600) until more is left."""

LimitStatuses = tuple[LimitStatus | None, LimitStatus | None]
"""The limits of requests and of tokens of which least is left, of all scopes of a request."""


class ExceededLimit(Struct, frozen=True):
    """A limit that a request does not fit into now; it would after ``wait`` seconds."""

    scope: RateScope
    measure: Measure
    limit: int
    used: int
    needed: int
    wait: float


class QuotaRefusal(Struct, frozen=True):
    """Nothing was taken: the limits that forbid it, and how the strictest stand."""

    refusals: tuple[ExceededLimit, ...]
    limit_statuses: LimitStatuses


def _checked_limit(given: int | None) -> int:
    if given is None:
        return UNLIMITED
    if given < 1:
        raise ValueError(f"a limit is at least 1, not {given}")
    return given


_MEASURES: tuple[Measure, ...] = ("requests", "tokens", "input_tokens", "output_tokens")
_SOON = 1.0  # seconds until a place is tried again: nobody knows when a request ends


def exceeded(
    scope: RateScope,
    used: Sequence[int],
    running: int,
    need: Tokens,
    wait: Callable[[int, int], float],
) -> Iterator[ExceededLimit]:
    """Yield the limits that refuse a request: of requests, tokens, input, output and places.

    ``used`` has the first four; ``wait`` returns the seconds until so much more is free of the
    measure of that number.
    """
    limits = (scope.requests, scope.tokens, scope.input, scope.output)
    needs = (1, need.input + need.output, need.input, need.output)
    for number, (measure, limit) in enumerate(zip(_MEASURES, limits, strict=True)):
        more = used[number] + needs[number] - limit
        if limit < UNLIMITED and more > 0:
            seconds = wait(number, more)
            yield ExceededLimit(scope, measure, limit, used[number], needs[number], seconds)
    if running >= scope.concurrent:
        yield concurrency(scope, running)


def concurrency(scope: RateScope, running: int) -> ExceededLimit:
    """Return the limit that a scope with so many running requests exceeds."""
    return ExceededLimit(scope, "concurrent", scope.concurrent, running, 1, _SOON)


_CODES = {"requests": "requests", "concurrent": "concurrency"}  # all others: tokens


def limited(refused: QuotaRefusal) -> RateLimited:
    """Return the error for the refusal that lasts longest."""
    refusal = max(refused.refusals, key=lambda each: each.wait)
    wait = max(math.ceil(refusal.wait), 1)
    headers = {"Retry-After": str(wait)}
    tell(refused.limit_statuses, headers)
    running = refusal.measure == "concurrent"
    noun = "request" if running else refusal.measure.removesuffix("s").replace("_", " ")
    used = "1 is" if refusal.used == 1 else f"{refusal.used} are"
    if running:
        status = f"{used} under way"
    elif refusal.measure == "requests":
        status = "none is left"
    else:
        status = f"{used} used or reserved, and this request may need {refusal.needed}"
    return RateLimited(
        f"{_scope_may_have(refusal.scope)} {counted(refusal.limit, noun)} "
        f"{'at the same time' if running else 'per minute'}; "
        f"{status}. Try again in {wait} s.",
        code=_CODES.get(refusal.measure, "tokens"),
        metadata={
            "limit": refusal.measure,
            "scope": {"kind": refusal.scope.kind, "name": refusal.scope.name},
            "allowed": refusal.limit,
            "used": refusal.used,
            "needed": refusal.needed,
        },
        headers=headers,
    )


def _scope_may_have(scope: RateScope) -> str:
    return f"The {scope.kind} {scope.name} may have"


def too_large(scope: RateScope, needed: int) -> InvalidRequest:
    """Return the error for a prompt that exceeds a limit of one minute alone."""
    most = scope.most_input
    return InvalidRequest(
        f"{_scope_may_have(scope)} {most} tokens of input per minute; the messages are estimated "
        f"at {needed}, so this request can never be let in. Shorten it, or have the limit raised.",
        param="messages",
        metadata={
            "limit": "input_tokens" if scope.input == most else "tokens",
            "scope": {"kind": scope.kind, "name": scope.name},
            "allowed": most,
            "needed": needed,
        },
    )


_NOTHING = Usage(0, 0)
NO_LIMITS: LimitStatuses = (None, None)
_TENTHS = [f"{tenths // 10}.{tenths % 10}s" for tenths in range(601)]  # of a minute


class Lease(Struct, kw_only=True):
    """A place and tokens of one request, released by its block; failures report the limits.

    A failure before the request has ``reached`` a target does not count, nor one that ``spared``
    says counts elsewhere. This base class has no limits.
    """

    used: Usage = _NOTHING
    reached: bool = False
    spared: Callable[[ServiceError], bool] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        failure, used = error if isinstance(error, ServiceError) else None, self.used
        if failure is None or (self.reached and not (self.spared and self.spared(failure))):
            self.release(used.prompt, used.completion + used.discarded)
        else:
            self.undo()
        if failure is not None:
            headers: dict[str, str] = {}
            tell(self.limit_statuses(), headers)
            failure.headers = headers | failure.headers

    def settle(self, used: Usage, *, reached: bool = True) -> None:
        """Record the usage so far, and whether a target has had the request."""
        self.used, self.reached = used, reached

    def release(self, input: int, output: int) -> None:
        """Free the places, and count these tokens in place of the estimate.

        Called once, also while the request is being cancelled, so it neither waits nor fails.
        """

    def undo(self) -> None:
        """Release everything, so that the request does not count."""

    def limit_statuses(self) -> LimitStatuses:
        """Return the state of the strictest limits of its scopes, after :meth:`release` too."""
        return NO_LIMITS


def tell(limit_statuses: LimitStatuses, headers: dict[str, str]) -> None:
    """Add the headers ``x-ratelimit-…``."""
    requests, tokens = limit_statuses
    if requests is not None:
        limit, left, reset = requests
        headers["x-ratelimit-limit-requests"] = str(limit)
        headers["x-ratelimit-remaining-requests"] = str(left)
        headers["x-ratelimit-reset-requests"] = _TENTHS[reset]
    if tokens is not None:
        limit, left, reset = tokens
        headers["x-ratelimit-limit-tokens"] = str(limit)
        headers["x-ratelimit-remaining-tokens"] = str(left)
        headers["x-ratelimit-reset-tokens"] = _TENTHS[reset]


_NO_TOKENS = Tokens()


class RateLimiter(Protocol):
    """Admits requests, and counts the use of scopes."""

    def take_now(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Lease | None:
        """Reserve as :meth:`take` does; return ``None`` if that would have to wait."""

    def take(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Awaitable[Lease]:
        """Return a lease on all scopes; ``estimate`` is called only if tokens are limited.

        Output is reserved up to what fits into an empty window. Raises :class:`RateLimited`, and
        :class:`InvalidRequest` if the prompt alone exceeds a limit of one minute; nothing is taken
        then.
        """


def needed(scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Tokens:
    """Return the needed tokens; raise :class:`InvalidRequest` if a scope can never have them."""
    need = _NO_TOKENS
    for scope in scopes:
        if scope.counts_tokens:
            if need is _NO_TOKENS:
                need = estimate()
            if need.input > scope.most_input:
                raise too_large(scope, need.input)
    return need


def estimate(request: ChatRequest, candidates: Sequence[Candidate] = ()) -> Tokens:
    """Estimate the prompt by its size and the output by its limit and those of ``candidates``."""
    output = request.max_tokens if request.max_tokens is not None else UNNAMED_OUTPUT
    bounds = [one.bounds.max_output_tokens for one in candidates]
    granted = max((output if most is None else min(most, output) for most in bounds), default=0)
    units = 0 if request.passed is None else request.passed.units
    return Tokens(prompt_estimate(request), (granted or output) * request.n, units)


class Estimate(Struct, eq=False):
    """The estimate of one request, computed once and only on demand."""

    _request: ChatRequest
    _candidates: Sequence[Candidate]
    _tokens: Tokens | None = None

    def __call__(self) -> Tokens:
        if self._tokens is None:
            self._tokens = estimate(self._request, self._candidates)
        return self._tokens
