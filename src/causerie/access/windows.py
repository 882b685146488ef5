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
from operator import attrgetter

from msgspec import Struct

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
_FAR = UNLIMITED // 2  # so much is never left of a limit that is set


class _Tick:
    """What was taken within one tenth of a second; ``leaves`` is when all is a minute ago."""

    __slots__ = ("at", "gone", "input", "leaves", "output", "requests")

    def __init__(self, at: int) -> None:
        self.at = at
        self.leaves = (at + _MINUTE + 1) * _TICK
        self.requests = self.input = self.output = 0
        self.gone = False


class _Window:
    """The last minute of one scope: its ticks, their sums, and what runs now."""

    __slots__ = ("input", "newest", "output", "requests", "running", "ticks")

    def __init__(self) -> None:
        self.ticks: deque[_Tick] = deque()
        self.newest = _Tick(-1)  # long ago
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

    def turn(self, now: int) -> _Tick:
        """Begin the tick ``now``, which is later than the newest; what it makes old is left out."""
        self.forget(now)
        tick = self.newest = _Tick(now)
        self.ticks.append(tick)
        return tick

    def add(self, tick: _Tick, input: int, output: int) -> None:
        """Count tokens in a tick, or give back with negative numbers."""
        if not tick.gone:
            tick.input += input
            tick.output += output
            self.input += input
            self.output += output


class _Windows(dict[str, _Window]):
    """Windows by the ids of their scopes, made when they are first asked for."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._sweep_at = _FIRST_SWEEP

    def __missing__(self, id: str) -> _Window:
        if len(self) >= self._sweep_at:
            self._sweep(self._clock() // _TICK)
        window = self[id] = _Window()
        return window

    def _sweep(self, now: int) -> None:
        """Forget who has done nothing for a minute, each time twice as many are remembered."""
        for id, window in list(self.items()):
            window.forget(now)
            if not window.ticks and not window.running:
                del self[id]
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self))


_Part = tuple[Scope, _Window, _Tick, int]  # what was taken of one scope, and how much output


class MemoryHold(Struct, frozen=True):
    """What one request has taken from its windows: the same input from each of them."""

    clock: Callable[[], int]
    input: int
    parts: Sequence[_Part]

    def release(self, input: int, output: int) -> None:
        """The request has ended and has used this."""
        more_input = input - self.input
        for scope, window, tick, reserved in self.parts:
            window.running -= 1
            if scope.counts_tokens:
                more_output = output - reserved
                if more_input <= 0 and more_output <= 0:
                    window.add(tick, more_input, more_output)
                else:
                    self._exceed(window, tick, more_input, more_output)

    def undo(self) -> None:
        """Nothing was taken after all."""
        self.release(0, 0)
        for _, window, tick, _ in self.parts:
            tick.requests -= 1
            window.requests -= 1

    def standings(self) -> Standings:
        """How the strictest limits stand now."""
        now = self.clock()
        at = now // _TICK
        requests: Standing | None = None
        tokens: Standing | None = None
        read: _Read
        fewest = least = _FAR
        for scope, window, _, _ in self.parts:
            if window.newest.at != at:
                window.turn(at)
            left = scope.requests - window.requests
            if left < fewest:
                fewest, requests = left, _standing(window, _requests, left, scope.requests, now)
            if scope.counts_tokens:
                input, output = window.input, window.output
                left, limit, read = scope.tokens - input - output, scope.tokens, _tokens
                if scope.splits and scope.input - input < left:
                    left, limit, read = scope.input - input, scope.input, _input
                if scope.splits and scope.output - output < left:
                    left, limit, read = scope.output - output, scope.output, _output
                if left < least:
                    least, tokens = left, _standing(window, read, left, limit, now)
        return Standings(requests, tokens)

    def _exceed(self, window: _Window, tick: _Tick, input: int, output: int) -> None:
        """More was used than foreseen, at least of one."""
        window.add(tick, min(input, 0), min(output, 0))
        now = self.clock() // _TICK
        later = window.newest if window.newest.at == now else window.turn(now)
        window.add(later, max(input, 0), max(output, 0))


class MemoryCounters:
    """The windows of all scopes. ``clock`` gives nanoseconds and never goes back."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._windows = _Windows(clock)

    def __len__(self) -> int:
        """Scopes that are remembered."""
        return len(self._windows)

    async def take(self, scopes: Sequence[Scope], need: Tokens) -> MemoryHold | Refused:
        """Take from all scopes, which differ, or from none; never waits.

        The input must fit into an empty window; output that would not is cut
        down to what does.
        """
        now = self._clock() // _TICK
        windows, input, output = self._windows, need.input, need.output
        parts: list[_Part] = []
        hold = MemoryHold(self._clock, input, parts)
        for scope in scopes:
            window = windows[scope.id]
            tick = window.newest
            if tick.at != now:
                tick = window.turn(now)
            requests, running = window.requests + 1, window.running + 1
            if requests > scope.requests or running > scope.concurrent:
                break
            if scope.counts_tokens:
                reserved = min(output, scope.output, scope.tokens - input)
                inputs, outputs = window.input + input, window.output + reserved
                if inputs + outputs > scope.tokens:
                    break
                if scope.splits and (inputs > scope.input or outputs > scope.output):
                    break
                window.input, window.output = inputs, outputs
                tick.input += input
                tick.output += reserved
            else:
                reserved = 0
            window.requests, window.running = requests, running
            tick.requests += 1
            parts.append((scope, window, tick, reserved))
        else:
            return hold
        hold.undo()
        return self._refused(scopes, need)

    def _refused(self, scopes: Sequence[Scope], need: Tokens) -> Refused:
        now, parts = self._clock(), []
        refusals: list[Refusal] = []
        for scope in scopes:
            window = self._windows[scope.id]
            output = min(need.output, scope.output, scope.tokens - need.input)
            parts.append((scope, window, window.newest, output))
            refusals.extend(_refusals(scope, window, Tokens(need.input, output), now))
        return Refused(tuple(refusals), MemoryHold(self._clock, need.input, parts).standings())


_Read = Callable[[_Tick | _Window], int]
_requests: _Read = attrgetter("requests")
_input: _Read = attrgetter("input")
_output: _Read = attrgetter("output")


def _tokens(counts: _Tick | _Window) -> int:
    return counts.input + counts.output


_READS: tuple[tuple[Measure, _Read], ...] = (
    ("requests", _requests),
    ("tokens", _tokens),
    ("input_tokens", _input),
    ("output_tokens", _output),
)


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


def _standing(window: _Window, read: _Read, left: int, limit: int, now: int) -> Standing:
    """More is left once the oldest tick in which any was taken is a minute ago."""
    oldest = window.ticks[0]
    leaves = oldest.leaves if read(oldest) else _first(window, read, now)
    return Standing(limit, left if left > 0 else 0, (leaves - now) / 1e9)


def _first(window: _Window, read: _Read, now: int) -> int:
    """When the first tick leaves in which any was taken; ``now`` where there is none."""
    return next((tick.leaves for tick in window.ticks if read(tick)), now)


def _until(window: _Window, read: _Read, amount: int, now: int) -> float:
    """Seconds until so much is free that is taken; 0 where nothing is."""
    freed = leaves = 0
    for tick in window.ticks:
        part = read(tick)
        if part:
            freed += part
            leaves = tick.leaves
            if freed >= amount:
                break
    return (leaves - now) / 1e9 if freed else 0.0
