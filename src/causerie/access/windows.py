"""Counts of the last minute, in the memory of this process.

A sliding window, exact to a tenth of a second: for every tick in which
something was taken the sums are kept until the tick's last moment is a minute
ago. A bucket that refills (token bucket; GCRA, of which ITU-T I.371, annex A,
says the same in another form) costs one number instead of at most 601 small
records, but is wrong in one direction or the other: full, it lets nearly twice
the limit through within one minute; made small, it refuses while headroom is
left. The window does neither, and its memory is bounded by the ticks, not by
the requests.

What was foreseen counts from the moment it was taken. Once the truth is known,
what was not used is given back at that moment of the past, and what was not
foreseen counts from now on.

Nothing here waits, so all limits of a request are looked at and taken in one
step of the event loop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from causerie.access.quota import (
    UNLIMITED,
    Measure,
    Refusal,
    Refused,
    Scope,
    Standing,
    Standings,
    Tokens,
)

_TICK = 100_000_000  # nanoseconds
_MINUTE = 600  # ticks
_SOON = 1.0  # seconds until a place is tried again: nobody knows when a request ends
_FIRST_SWEEP = 1024


class _Tick:
    """What was taken within one tenth of a second."""

    __slots__ = ("at", "gone", "input", "output", "requests")

    def __init__(self, at: int) -> None:
        self.at = at
        self.requests = self.input = self.output = 0
        self.gone = False


class _Window:
    """The last minute of one scope: its ticks, their sums, and what runs now."""

    __slots__ = ("input", "output", "requests", "running", "ticks")

    def __init__(self) -> None:
        self.ticks: deque[_Tick] = deque()
        self.requests = self.input = self.output = self.running = 0

    def forget(self, now: int) -> None:
        """Leave out the ticks all of which are a minute ago."""
        ticks = self.ticks
        while ticks and now - ticks[0].at > _MINUTE:
            tick = ticks.popleft()
            tick.gone = True
            self.requests -= tick.requests
            self.input -= tick.input
            self.output -= tick.output

    def tick(self, now: int) -> _Tick:
        """The tick for what is taken now."""
        ticks = self.ticks
        if ticks and ticks[-1].at >= now:
            return ticks[-1]
        tick = _Tick(now)
        ticks.append(tick)
        return tick

    def add(self, tick: _Tick, input: int, output: int) -> None:
        """Count tokens in a tick, or give back with negative numbers."""
        if not tick.gone:
            tick.input += input
            tick.output += output
            self.input += input
            self.output += output


class MemoryHold:
    """What one request has taken from its windows."""

    __slots__ = ("_clock", "_input", "_parts")

    def __init__(
        self,
        clock: Callable[[], int],
        now: int,
        input: int,
        wanted: Sequence[tuple[Scope, _Window, int]],
    ) -> None:
        self._clock = clock
        self._input = input
        self._parts: list[tuple[Scope, _Window, _Tick, int]] = []
        for scope, window, output in wanted:
            ticks = window.ticks
            tick = ticks[-1] if ticks and ticks[-1].at >= now else window.tick(now)
            tick.requests += 1
            window.requests += 1
            window.running += 1
            if scope.counts_tokens:
                tick.input += input
                tick.output += output
                window.input += input
                window.output += output
            self._parts.append((scope, window, tick, output))

    def release(self, input: int, output: int) -> None:
        """The request has ended and has used this."""
        more_input = input - self._input
        for scope, window, tick, reserved in self._parts:
            window.running -= 1
            if scope.counts_tokens:
                more_output = output - reserved
                window.add(tick, min(more_input, 0), min(more_output, 0))
                if more_input > 0 or more_output > 0:
                    later = window.tick(self._clock() // _TICK)
                    window.add(later, max(more_input, 0), max(more_output, 0))

    def standings(self) -> Standings:
        """How the strictest limits stand now."""
        return _strictest(self._parts, self._clock())


class MemoryCounters:
    """The windows of all scopes. ``clock`` gives nanoseconds and never goes back."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._sweep_at = _FIRST_SWEEP

    def __len__(self) -> int:
        """Scopes that are remembered."""
        return len(self._windows)

    async def take(self, scopes: Sequence[Scope], need: Tokens) -> MemoryHold | Refused:
        """Take from all scopes, which differ, or from none; never waits.

        The input must fit into an empty window; output that would not is cut
        down to what does.
        """
        now = self._clock() // _TICK
        if len(self._windows) >= self._sweep_at:
            self._sweep(now)
        found = []
        fits = True
        input = need.input
        for scope in scopes:
            window = self._windows.get(scope.id)
            if window is None:
                window = self._windows[scope.id] = _Window()
            ticks = window.ticks
            if ticks and now - ticks[0].at > _MINUTE:
                window.forget(now)
            output = min(need.output, scope.output, scope.tokens - input)
            found.append((scope, window, output))
            if fits:
                fits = _fits(scope, window, input, output)
        if not fits:
            return _refused(found, input, self._clock())
        return MemoryHold(self._clock, now, input, found)

    def _sweep(self, now: int) -> None:
        """Forget who has done nothing for a minute, each time twice as many are remembered."""
        for id, window in list(self._windows.items()):
            window.forget(now)
            if not window.ticks and not window.running:
                del self._windows[id]
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._windows))


def _fits(scope: Scope, window: _Window, input: int, output: int) -> bool:
    if window.requests >= scope.requests or window.running >= scope.concurrent:
        return False
    if not scope.counts_tokens:
        return True
    return (
        window.input + input <= scope.input
        and window.output + output <= scope.output
        and window.input + window.output + input + output <= scope.tokens
    )


def _requests(counts: _Window | _Tick) -> int:
    return counts.requests


def _tokens(counts: _Window | _Tick) -> int:
    return counts.input + counts.output


def _input(counts: _Window | _Tick) -> int:
    return counts.input


def _output(counts: _Window | _Tick) -> int:
    return counts.output


_Read = Callable[[_Window | _Tick], int]
_READS: tuple[tuple[Measure, _Read], ...] = (
    ("requests", _requests),
    ("tokens", _tokens),
    ("input_tokens", _input),
    ("output_tokens", _output),
)


def _refused(found: Sequence[tuple[Scope, _Window, int]], input: int, now: int) -> Refused:
    refusals: list[Refusal] = []
    for scope, window, output in found:
        refusals.extend(_refusals(scope, window, Tokens(input, output), now))
    return Refused(tuple(refusals), _strictest(found, now))


def _refusals(scope: Scope, window: _Window, need: Tokens, now: int) -> Iterator[Refusal]:
    limits = (scope.requests, scope.tokens, scope.input, scope.output)
    needs = (1, need.input + need.output, need.input, need.output)
    for (measure, read), limit, needed in zip(_READS, limits, needs, strict=True):
        used = read(window)
        if limit < UNLIMITED and used + needed > limit:
            wait = _until(window, read, used + needed - limit, now)
            yield Refusal(scope, measure, limit, used, needed, wait)
    if window.running >= scope.concurrent:
        yield Refusal(scope, "concurrent", scope.concurrent, window.running, 1, _SOON)


def _strictest(parts: Sequence[tuple[Scope, _Window, *tuple[object, ...]]], now: int) -> Standings:
    requests: Standing | None = None
    tokens: Standing | None = None
    fewest = least = UNLIMITED
    for part in parts:
        scope, window = part[0], part[1]
        ticks = window.ticks
        if ticks and now // _TICK - ticks[0].at > _MINUTE:
            window.forget(now // _TICK)
        left = scope.requests - window.requests
        if scope.requests < UNLIMITED and left < fewest:
            fewest = left
            requests = _standing(left, scope.requests, window, _requests, now)
        if scope.counts_tokens:
            left, limit, read = _least_tokens(scope, window)
            if left < least:
                least = left
                tokens = _standing(left, limit, window, read, now)
    return Standings(requests, tokens)


def _least_tokens(scope: Scope, window: _Window) -> tuple[int, int, _Read]:
    """Of the scope's limits on tokens the one of which least is left; how much, and which."""
    input, output = window.input, window.output
    least, limit, read = scope.tokens - input - output, scope.tokens, _tokens
    if scope.input - input < least:
        least, limit, read = scope.input - input, scope.input, _input
    if scope.output - output < least:
        least, limit, read = scope.output - output, scope.output, _output
    return least, limit, read


def _standing(left: int, limit: int, window: _Window, read: _Read, now: int) -> Standing:
    reset = 0.0
    for tick in window.ticks:
        if read(tick):
            reset = ((tick.at + _MINUTE + 1) * _TICK - now) / 1e9
            break
    return Standing(limit, left if left > 0 else 0, reset)


def _until(window: _Window, read: _Read, amount: int, now: int) -> float:
    """Seconds until so much is free that is taken; 0 where nothing is."""
    freed = last = 0
    for tick in window.ticks:
        part = read(tick)
        if part:
            freed += part
            last = tick.at
            if freed >= amount:
                break
    return ((last + _MINUTE + 1) * _TICK - now) / 1e9 if freed else 0.0
