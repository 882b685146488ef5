"""Rate limits of callers: records, refusals, leases, and counts of the last minute in memory."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Annotated, Literal, Protocol, Self

from msgspec import Meta, Struct, field

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
        """Set the limits of a scope; raise :class:`ValueError` for one below 1."""
        self.kind, self.name, self.id = kind, name, f"{kind}:{name}"
        self.requests = _check_limit_or_get_unlimited(rates.requests_per_minute)
        self.tokens = _check_limit_or_get_unlimited(rates.tokens_per_minute)
        self.input = _check_limit_or_get_unlimited(rates.input_tokens_per_minute)
        self.output = _check_limit_or_get_unlimited(rates.output_tokens_per_minute)
        self.concurrent = _check_limit_or_get_unlimited(rates.concurrent)
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
    """A refused request: the limits that it exceeds, and the state of the strictest limits."""

    refusals: tuple[ExceededLimit, ...]
    limit_statuses: LimitStatuses


def _check_limit_or_get_unlimited(limit: int | None) -> int:
    if limit is None:
        return UNLIMITED
    if limit < 1:
        raise ValueError(f"a limit is at least 1, not {limit}")
    return limit


_MEASURES: tuple[Measure, ...] = ("requests", "tokens", "input_tokens", "output_tokens")
_SOON = 1.0  # seconds until a place is tried again: nobody knows when a request ends


def exceeded(
    scope: RateScope,
    used: Sequence[int],
    running: int,
    need: Tokens,
    wait: Callable[[int, int], float],
) -> Iterator[ExceededLimit]:
    """Yield each limit of ``scope`` that a request exceeds, with the seconds until it fits.

    ``used`` is by ``_MEASURES``; ``wait`` returns the seconds until so much more is free of the
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
    """Return the exceeded limit of concurrent requests of a scope that runs ``running``."""
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
        f"{_begin_sentence(refusal.scope)} {counted(refusal.limit, noun)} "
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


def _begin_sentence(scope: RateScope) -> str:
    return f"The {scope.kind} {scope.name} may have"


def too_large(scope: RateScope, needed: int) -> InvalidRequest:
    """Return the error for a prompt that alone exceeds a limit of tokens per minute."""
    most = scope.most_input
    return InvalidRequest(
        f"{_begin_sentence(scope)} {most} tokens of input per minute; the messages are estimated "
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
    """A request's place and tokens, released as its block ends; failures get limit headers.

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
        """Record the usage so far, and whether a target has received the request."""
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
    """Add the ``x-ratelimit-…`` headers for the limit statuses to ``headers``."""
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
    """Return the estimate, 0 if no tokens are limited; raise if the prompt can never fit."""
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
    _cached_token_estimate: Tokens | None = None

    def __call__(self) -> Tokens:
        if self._cached_token_estimate is None:
            self._cached_token_estimate = estimate(self._request, self._candidates)
        return self._cached_token_estimate


_TICK = 100_000_000  # nanoseconds
_MINUTE = 600  # ticks
_FIRST_SWEEP = 1024
_FAR = UNLIMITED // 2  # so much is never left of a limit that is set


class _Tick(Struct, eq=False):
    at: int
    requests: int = 0
    input: int = 0
    tokens: int = 0
    gone: bool = False


class _Window(Struct, eq=False):
    ticks: deque[_Tick] = field(default_factory=deque)
    newest: _Tick = field(default_factory=partial(_Tick, -1))  # long ago
    requests: int = 0
    input: int = 0
    tokens: int = 0
    running: int = 0

    def forget(self, now: int) -> None:
        """Remove ticks that began a minute ago or earlier, also from the sums."""
        ticks = self.ticks
        while ticks and now - ticks[0].at >= _MINUTE:
            tick = ticks.popleft()
            tick.gone = True
            self.requests -= tick.requests
            self.input -= tick.input
            self.tokens -= tick.tokens

    def turn(self, now: int) -> _Tick:
        """Start and return the tick ``now``; remove those that are a minute old."""
        self.forget(now)
        tick = self.newest = _Tick(now)
        self.ticks.append(tick)
        return tick

    def add(self, tick: _Tick, input: int, output: int) -> None:
        """Add tokens, or release negative ones, in a tick and in the sums of the window."""
        if not tick.gone:
            tokens = input + output
            tick.input += input
            tick.tokens += tokens
            self.input += input
            self.tokens += tokens


class _Windows(dict[str, _Window]):
    def __init__(self, clock: Callable[[], int]) -> None:
        self._nanosecond_clock = clock
        self._sweep_at_count = _FIRST_SWEEP

    def __missing__(self, id: str) -> _Window:
        if len(self) >= self._sweep_at_count:  # each time twice as many scopes are remembered
            now = self._nanosecond_clock() // _TICK
            for known, window in list(self.items()):
                window.forget(now)
                if not window.ticks and not window.running:
                    del self[known]
            self._sweep_at_count = max(_FIRST_SWEEP, 2 * len(self))
        window = self[id] = _Window()
        return window


_Part = tuple[RateScope, _Window, _Tick, int]
"""What was taken of one scope: at last, how much output."""


class MemoryLease(Lease):
    """A lease that counts one request in the window of each of its scopes."""

    clock: Callable[[], int]
    input: int
    parts: Sequence[_Part]

    def release(self, input: int, output: int) -> None:
        more_input = input - self.input
        for scope, window, tick, reserved in self.parts:
            window.running -= 1
            if scope.counts_tokens:
                more_output = output - reserved
                window.add(tick, min(more_input, 0), min(more_output, 0))
                if more_input > 0 or more_output > 0:  # which counts from now on
                    now = self.clock() // _TICK
                    later = window.newest if window.newest.at == now else window.turn(now)
                    window.add(later, max(more_input, 0), max(more_output, 0))

    def undo(self) -> None:
        self.release(0, 0)
        for _, window, tick, _ in self.parts:
            if not tick.gone:
                tick.requests -= 1
                window.requests -= 1

    def limit_statuses(self) -> LimitStatuses:
        now = self.clock() // _TICK
        requests: LimitStatus | None = None
        tokens: LimitStatus | None = None
        fewest = least = _FAR
        for scope, window, _, _ in self.parts:
            if window.newest.at != now:
                window.turn(now)
            oldest = window.ticks[0]
            reset = oldest.at + _MINUTE - now
            left = scope.requests - window.requests
            if left < fewest:
                fewest = left
                wait = reset if oldest.requests else _ticks_until_decrease(window, _requests, now)
                requests = scope.requests, left if left > 0 else 0, wait
            if scope.counts_tokens:
                left, limit, read = scope.tokens - window.tokens, scope.tokens, _tokens
                if scope.splits:
                    if scope.input - window.input < left:
                        left, limit, read = scope.input - window.input, scope.input, _input
                    if (output := scope.output - _compute_output_tokens(window)) < left:
                        left, limit, read = output, scope.output, _compute_output_tokens
                if left < least:
                    least = left
                    wait = reset if read(oldest) else _ticks_until_decrease(window, read, now)
                    tokens = limit, left if left > 0 else 0, wait
        return requests, tokens


class MemoryCounters:
    """Admits requests by counts of the last minute; ``clock`` returns monotonic nanoseconds.

    A window is exact to a tenth of a second: the sums of every tick with use are kept until its
    start is a minute ago. A token bucket would take less memory, but lets nearly twice the limit
    through in a minute, or refuses while there is room. An estimate counts from its reservation on;
    unused tokens are released at that moment, and further ones count from now on. Nothing waits, so
    all limits of a request are checked and taken in one step of the event loop.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._nanosecond_clock = clock
        self._windows_by_scope_id = _Windows(clock)

    async def take(
        self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]
    ) -> MemoryLease:
        return self.take_now(scopes, estimate)

    def take_now(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> MemoryLease:
        """Return a lease or raise at once, like :meth:`RateLimiter.take`."""
        now, windows = self._nanosecond_clock() // _TICK, self._windows_by_scope_id
        need: Tokens | None = None
        input = output = 0
        parts: list[_Part] = []
        for scope in scopes:
            window = windows[scope.id]
            tick = window.newest
            if tick.at != now:
                tick = window.turn(now)
            requests, running = window.requests + 1, window.running + 1
            if requests > scope.requests or running > scope.concurrent:
                break
            reserved = 0
            if scope.counts_tokens:
                if need is None:
                    need = estimate()
                    input, output = need.input, need.output
                reserved = output
                if output > scope.most_output - input:
                    reserved = min(output, scope.output, scope.tokens - input)
                    if reserved < 0:
                        break  # it will never fit
                more = input + reserved
                inputs, tokens = window.input + input, window.tokens + more
                if tokens > scope.tokens:
                    break
                if scope.splits and (inputs > scope.input or tokens - inputs > scope.output):
                    break
                window.input, window.tokens = inputs, tokens
                tick.input += input
                tick.tokens += more
            window.requests, window.running = requests, running
            tick.requests += 1
            parts.append((scope, window, tick, reserved))
        else:
            return MemoryLease(self._nanosecond_clock, input, parts)
        MemoryLease(self._nanosecond_clock, input, parts).undo()
        raise limited(self._build_refusal_record(scopes, needed(scopes, estimate)))

    def _build_refusal_record(self, scopes: Sequence[RateScope], need: Tokens) -> QuotaRefusal:
        now, parts = self._nanosecond_clock(), []
        refusals: list[ExceededLimit] = []
        for scope in scopes:
            window = self._windows_by_scope_id[scope.id]
            output = min(need.output, scope.output, scope.tokens - need.input)
            parts.append((scope, window, window.newest, output))
            used, asked = [read(window) for read in _READS], Tokens(need.input, output)
            refusals += exceeded(
                scope, used, window.running, asked, partial(_seconds_until_free, window, now)
            )
        return QuotaRefusal(
            tuple(refusals), MemoryLease(self._nanosecond_clock, need.input, parts).limit_statuses()
        )


_Read = Callable[[_Tick | _Window], int]
_requests: _Read = attrgetter("requests")
_tokens: _Read = attrgetter("tokens")
_input: _Read = attrgetter("input")


def _compute_output_tokens(tick_or_window: _Tick | _Window) -> int:
    return tick_or_window.tokens - tick_or_window.input


_READS = (_requests, _tokens, _input, _compute_output_tokens)


def _ticks_until_decrease(window: _Window, read_count: _Read, now_tick: int) -> int:
    return next((tick.at + _MINUTE - now_tick for tick in window.ticks if read_count(tick)), 0)


def _seconds_until_free(window: _Window, now_ns: int, measure_index: int, amount: int) -> float:
    read, freed, last = _READS[measure_index], 0, 0
    for tick in window.ticks:
        part = read(tick)
        if part:
            freed += part
            last = tick.at
            if freed >= amount:
                break
    return ((last + _MINUTE) * _TICK - now_ns) / 1e9 if freed else 0.0
