"""Count the use of the last minute, in the memory of this process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter

from msgspec import Struct, field

from causerie.access import limits

_TICK = 100_000_000  # nanoseconds
_MINUTE = 600  # ticks
_FIRST_SWEEP = 1024
_FAR = limits.UNLIMITED // 2  # so much is never left of a limit that is set


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
        """Remove ticks that began a minute ago."""
        ticks = self.ticks
        while ticks and now - ticks[0].at >= _MINUTE:
            tick = ticks.popleft()
            tick.gone = True
            self.requests -= tick.requests
            self.input -= tick.input
            self.tokens -= tick.tokens

    def turn(self, now: int) -> _Tick:
        """Start the tick ``now``, and remove old ones."""
        self.forget(now)
        tick = self.newest = _Tick(now)
        self.ticks.append(tick)
        return tick

    def add(self, tick: _Tick, input: int, output: int) -> None:
        """Count tokens in a tick; negative numbers release them."""
        if not tick.gone:
            tokens = input + output
            tick.input += input
            tick.tokens += tokens
            self.input += input
            self.tokens += tokens


class _Windows(dict[str, _Window]):
    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._sweep_at = _FIRST_SWEEP

    def __missing__(self, id: str) -> _Window:
        if len(self) >= self._sweep_at:  # each time twice as many scopes are remembered
            now = self._clock() // _TICK
            for known, window in list(self.items()):
                window.forget(now)
                if not window.ticks and not window.running:
                    del self[known]
            self._sweep_at = max(_FIRST_SWEEP, 2 * len(self))
        window = self[id] = _Window()
        return window


_Part = tuple[limits.RateScope, _Window, _Tick, int]
"""What was taken of one scope: at last, how much output."""


class MemoryLease(limits.Lease):
    """The use of one request in its windows, with the same input in each."""

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

    def limit_statuses(self) -> limits.LimitStatuses:
        now = self.clock() // _TICK
        requests: limits.LimitStatus | None = None
        tokens: limits.LimitStatus | None = None
        fewest = least = _FAR
        for scope, window, _, _ in self.parts:
            if window.newest.at != now:
                window.turn(now)
            oldest = window.ticks[0]
            reset = oldest.at + _MINUTE - now
            left = scope.requests - window.requests
            if left < fewest:
                fewest = left
                wait = reset if oldest.requests else _ticks_until_expiry(window, _requests, now)
                requests = scope.requests, left if left > 0 else 0, wait
            if scope.counts_tokens:
                left, limit, read = scope.tokens - window.tokens, scope.tokens, _tokens
                if scope.splits:
                    if scope.input - window.input < left:
                        left, limit, read = scope.input - window.input, scope.input, _input
                    if (output := scope.output - _output_tokens(window)) < left:
                        left, limit, read = output, scope.output, _output_tokens
                if left < least:
                    least = left
                    wait = reset if read(oldest) else _ticks_until_expiry(window, read, now)
                    tokens = limit, left if left > 0 else 0, wait
        return requests, tokens


class MemoryCounters:
    """Counts the last minute of all scopes; ``clock`` returns monotonic nanoseconds.

    A window is exact to a tenth of a second: the sums of every tick with use are kept until its
    start is a minute ago. A token bucket would take less memory, but lets nearly twice the limit
    through in a minute, or refuses while there is room. An estimate counts from its reservation on;
    unused tokens are released at that moment, and further ones count from now on. Nothing waits, so
    all limits of a request are checked and taken in one step of the event loop.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._windows = _Windows(clock)

    async def take(
        self, scopes: Sequence[limits.RateScope], estimate: Callable[[], limits.Tokens]
    ) -> MemoryLease:
        return self.take_now(scopes, estimate)

    def take_now(
        self, scopes: Sequence[limits.RateScope], estimate: Callable[[], limits.Tokens]
    ) -> MemoryLease:
        """Take a lease; see :meth:`causerie.access.limits.RateLimiter.take`."""
        now, windows = self._clock() // _TICK, self._windows
        need: limits.Tokens | None = None
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
            return MemoryLease(self._clock, input, parts)
        MemoryLease(self._clock, input, parts).undo()
        raise limits.limited(self._quota_refusal(scopes, limits.needed(scopes, estimate)))

    def _quota_refusal(
        self, scopes: Sequence[limits.RateScope], need: limits.Tokens
    ) -> limits.QuotaRefusal:
        now, parts = self._clock(), []
        refusals: list[limits.ExceededLimit] = []
        for scope in scopes:
            window = self._windows[scope.id]
            output = min(need.output, scope.output, scope.tokens - need.input)
            parts.append((scope, window, window.newest, output))
            used, asked = [read(window) for read in _READS], limits.Tokens(need.input, output)
            refusals += limits.exceeded(
                scope, used, window.running, asked, partial(_seconds_until, window, now)
            )
        return limits.QuotaRefusal(
            tuple(refusals), MemoryLease(self._clock, need.input, parts).limit_statuses()
        )


_Read = Callable[[_Tick | _Window], int]
_requests: _Read = attrgetter("requests")
_tokens: _Read = attrgetter("tokens")
_input: _Read = attrgetter("input")


def _output_tokens(counts: _Tick | _Window) -> int:
    return counts.tokens - counts.input


_READS = (_requests, _tokens, _input, _output_tokens)


def _ticks_until_expiry(window: _Window, read: _Read, now: int) -> int:
    return next((tick.at + _MINUTE - now for tick in window.ticks if read(tick)), 0)


def _seconds_until(window: _Window, now: int, number: int, amount: int) -> float:
    read, freed, last = _READS[number], 0, 0
    for tick in window.ticks:
        part = read(tick)
        if part:
            freed += part
            last = tick.at
            if freed >= amount:
                break
    return ((last + _MINUTE) * _TICK - now) / 1e9 if freed else 0.0
