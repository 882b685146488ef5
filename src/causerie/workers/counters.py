"""Counts of the last minute that several processes keep together, in shared memory.

The same sliding window as :mod:`causerie.access.windows`: exact to a tenth of a second, taken from
all scopes or from none. A window is a ring of the last 600 ticks, with sums alongside. Requests
under way are counted by process, so that those of a process that died can be taken off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from causerie.access.lease import CombinedLease, Lease
from causerie.access.limits import needed
from causerie.access.quota import (
    UNLIMITED,
    ExceededLimit,
    LimitStatus,
    LimitStatuses,
    Measure,
    QuotaRefusal,
    RateScope,
    Tokens,
)
from causerie.access.refusal import limited
from causerie.access.windows import MemoryCounters
from causerie.errors import StoreUnavailable
from causerie.workers.layout import MINUTE
from causerie.workers.shared_memory import MEMBERS, SharedMemory

_TICK = 100_000_000  # nanoseconds
_SOON = 1.0  # seconds until a place is tried again: nobody knows when a request ends

_FAR = UNLIMITED // 2  # so much is never left of a limit that is set

# Words of a window; the paths of every request name the first of them by number.
_NEWEST = 0  # tick
_REQUESTS, _INPUT, _OUTPUT = 1, 2, 3  # sums of the ring
_RUNNING = 4  # sum of the members
_OLDEST = 5  # no tick before it has anything
_MEMBERS = 8
_RING = _MEMBERS + MEMBERS
_MEASURES: tuple[Measure, ...] = ("requests", "tokens", "input_tokens", "output_tokens")

_Part = tuple[RateScope, int, int, int]  # a scope, its window, the tick, the output reserved


class SharedLease(Lease):
    """The use that one request has taken from its windows: the same input from each of them."""

    counters: SharedCounters
    input: int
    parts: Sequence[_Part]

    def release(self, input: int, output: int) -> None:
        """The request has ended and has used this."""
        self.counters.settle(self.parts, input - self.input, output, requests=0)

    def undo(self) -> None:
        """Nothing was taken after all."""
        self.counters.settle(self.parts, -self.input, 0, requests=-1)

    def limit_statuses(self) -> LimitStatuses:
        """Return the current state of the strictest limits."""
        return self.counters.limit_statuses([(scope, at) for scope, at, _, _ in self.parts])


class SharedCounters:
    """The windows of all scopes, as the process with the number ``member`` counts in them.

    ``places`` gives the first word of each scope's window by the scope's id. ``clock`` gives
    nanoseconds of a clock that all processes share.
    """

    def __init__(
        self,
        memory: SharedMemory,
        member: int,
        places: Mapping[str, int],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.places = places
        self._memory = memory
        self._numbers = memory.numbers
        self._column = _MEMBERS + member
        self._clock = clock
        self._unsettled: list[tuple[Sequence[_Part], int, int, int]] = []
        memory.repairs.append(self._repair)

    async def take(
        self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]
    ) -> SharedLease | Lease:
        """As :meth:`take_now`."""
        return self.take_now(scopes, estimate)

    def take_now(
        self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]
    ) -> SharedLease | Lease:
        """A lease on all scopes; see :meth:`causerie.access.limits.RateLimiter.take`.

        Output that would not fit into an empty window is cut down to what does.
        """
        if not scopes:
            return Lease()
        need = needed(scopes, estimate)
        input, wanted = need.input, need.output
        parts: list[_Part] = []
        with self._memory:
            if self._unsettled:
                self._settle_all()
            now = self._clock() // _TICK
            for scope in scopes:
                output = wanted
                if output > scope.most_output - input:
                    output = min(output, scope.output, scope.tokens - input)
                at = self.places[scope.id]
                parts.append((scope, at, now, output))
                if not self._fits(scope, at, now, input, output):
                    break
            else:
                for scope, at, _, output in parts:
                    self._take(at, now, *((input, output) if scope.counts_tokens else (0, 0)))
                return SharedLease(counters=self, input=input, parts=parts)
            refused = self._refused(scopes, need)
        raise limited(refused)

    def settle(
        self, parts: Sequence[_Part], more_input: int, output: int, *, requests: int
    ) -> None:
        """End a lease: correct what it reserved, and free its places.

        Never fails: while the memory cannot be had, what has ended is kept.
        """
        self._unsettled.append((parts, more_input, output, requests))
        with suppress(StoreUnavailable), self._memory:
            self._settle_all()

    def _settle_all(self) -> None:
        """Settle what has ended; the lock is held."""
        numbers, now = self._numbers, self._clock() // _TICK
        while self._unsettled:
            parts, more_input, output, requests = self._unsettled.pop()
            for scope, at, tick, reserved in parts:
                if numbers[at] != now:
                    self._turn(at, now)
                numbers[at + self._column] -= 1
                numbers[at + _RUNNING] -= 1
                if requests:
                    self._add(at, tick, requests, 0, 0)
                if scope.counts_tokens:
                    more = output - reserved
                    # Unused tokens are given back at their moment, those unforeseen count from now.
                    if more_input < 0 or more < 0:
                        self._add(at, tick, 0, min(more_input, 0), min(more, 0))
                    if more_input > 0 or more > 0:
                        self._add(at, now, 0, max(more_input, 0), max(more, 0))

    def limit_statuses(self, windows: Sequence[tuple[RateScope, int]]) -> LimitStatuses:
        """Return the current state of the strictest limits of these scopes."""
        with self._memory:
            now = self._clock() // _TICK
            for _, at in windows:
                if self._numbers[at] != now:
                    self._turn(at, now)
            return self._statuses(windows, now)

    def forget(self, member: int) -> None:
        """Count nothing as under way in this process, which has ended."""
        with self._memory:
            for at in self.places.values():
                column = at + _MEMBERS + member
                self._numbers[at + _RUNNING] -= self._numbers[column]
                self._numbers[column] = 0

    # One window; the lock is held.

    def _fits(self, scope: RateScope, at: int, now: int, input: int, output: int) -> bool:
        numbers = self._numbers
        if numbers[at] != now:
            self._turn(at, now)
        if numbers[at + 1] >= scope.requests or numbers[at + 4] >= scope.concurrent:
            return False
        if not scope.counts_tokens:
            return True
        inputs, outputs = numbers[at + 2] + input, numbers[at + 3] + output
        return (
            inputs + outputs <= scope.tokens and inputs <= scope.input and outputs <= scope.output
        )

    def _take(self, at: int, now: int, input: int, output: int) -> None:
        """Count one more request, which has started in the newest tick."""
        numbers, slot = self._numbers, at + _RING + now % MINUTE
        numbers[at + self._column] += 1
        numbers[at + 4] += 1
        numbers[slot] += 1
        numbers[at + 1] += 1
        if input or output:
            numbers[slot + MINUTE] += input
            numbers[at + 2] += input
            numbers[slot + 2 * MINUTE] += output
            numbers[at + 3] += output

    def _turn(self, at: int, now: int) -> None:
        """Leave out the ticks that began a minute ago; begin the tick ``now``."""
        numbers = self._numbers
        newest = numbers[at + _NEWEST]
        if now - newest >= MINUTE:
            self._memory.clear(at + _REQUESTS, at + _OUTPUT + 1)
            self._memory.clear(at + _RING, at + _RING + 3 * MINUTE)
            numbers[at + _OLDEST] = now
        else:
            for tick in range(newest + 1, now + 1):
                slot = at + _RING + tick % MINUTE
                if numbers[slot]:
                    numbers[at + _REQUESTS] -= numbers[slot]
                    numbers[slot] = 0
                for sum, part in ((_INPUT, slot + MINUTE), (_OUTPUT, slot + 2 * MINUTE)):
                    if numbers[part]:
                        numbers[at + sum] -= numbers[part]
                        numbers[part] = 0
        numbers[at + _NEWEST] = now

    def _add(self, at: int, tick: int, requests: int, input: int, output: int) -> None:
        numbers = self._numbers
        if numbers[at + _NEWEST] - tick >= MINUTE:
            return  # of a minute that is over
        slot = at + _RING + tick % MINUTE
        numbers[slot] += requests
        numbers[at + _REQUESTS] += requests
        if input:
            numbers[slot + MINUTE] += input
            numbers[at + _INPUT] += input
        if output:
            numbers[slot + 2 * MINUTE] += output
            numbers[at + _OUTPUT] += output

    def _repair(self) -> None:
        """Make the sums anew: a process died between a part and its sum."""
        numbers = self._numbers
        for at in self.places.values():
            for number, sum_at in enumerate((_REQUESTS, _INPUT, _OUTPUT)):
                start = at + _RING + number * MINUTE
                numbers[at + sum_at] = sum(numbers[start : start + MINUTE])
            numbers[at + _RUNNING] = sum(numbers[at + _MEMBERS : at + _MEMBERS + MEMBERS])

    # Words for clients; the lock is held.

    def _refused(self, scopes: Sequence[RateScope], need: Tokens) -> QuotaRefusal:
        now = self._clock()
        tick = now // _TICK
        refusals: list[ExceededLimit] = []
        windows = [(scope, self.places[scope.id]) for scope in scopes]
        for scope, at in windows:
            if self._numbers[at] != tick:
                self._turn(at, tick)
            output = min(need.output, scope.output, scope.tokens - need.input)
            refusals.extend(self._refusals(scope, at, need.input, output, now))
        return QuotaRefusal(tuple(refusals), self._statuses(windows, tick))

    def _refusals(
        self, scope: RateScope, at: int, input: int, output: int, now: int
    ) -> Iterator[ExceededLimit]:
        needs = (1, input + output, input, output)
        for number, measure in enumerate(_MEASURES):
            limit, needs_now, used = _limits(scope)[number], needs[number], self._used(at)[number]
            if limit < UNLIMITED and used + needs_now > limit:
                wait = self._until(at, number, used + needs_now - limit, now)
                yield ExceededLimit(scope, measure, limit, used, needs_now, wait)
        running = self._numbers[at + _RUNNING]
        if running >= scope.concurrent:
            yield ExceededLimit(scope, "concurrent", scope.concurrent, running, 1, _SOON)

    def _statuses(self, windows: Sequence[tuple[RateScope, int]], now: int) -> LimitStatuses:
        requests: LimitStatus | None = None
        tokens: LimitStatus | None = None
        numbers = self._numbers
        fewest = least = _FAR
        for scope, at in windows:
            left = scope.requests - numbers[at + 1]
            if left < fewest:
                fewest = left
                requests = scope.limits.requests, max(left, 0), self._reset(at, 0, now)
            if scope.counts_tokens:
                input, output = numbers[at + 2], numbers[at + 3]
                left, limit, number = scope.tokens - input - output, scope.limits.tokens, 1
                if scope.splits and scope.input - input < left:
                    left, limit, number = scope.input - input, scope.limits.input, 2
                if scope.splits and scope.output - output < left:
                    left, limit, number = scope.output - output, scope.limits.output, 3
                if left < least:
                    least = left
                    tokens = limit, max(left, 0), self._reset(at, number, now)
        return requests, tokens

    def _reset(self, at: int, number: int, now: int) -> int:
        """Ticks until more of a measure is free; 0 where none is taken."""
        for tick, _ in self._ticks(at, number):
            return tick + MINUTE - now
        return 0

    def _used(self, at: int) -> tuple[int, int, int, int]:
        """By measure."""
        numbers = self._numbers
        input, output = numbers[at + _INPUT], numbers[at + _OUTPUT]
        return numbers[at + _REQUESTS], input + output, input, output

    def _until(self, at: int, number: int, amount: int, now: int) -> float:
        """Seconds until so much is free that is taken; 0 where nothing is."""
        freed = last = 0
        for tick, part in self._ticks(at, number):
            freed, last = freed + part, tick
            if freed >= amount:
                break
        return ((last + MINUTE) * _TICK - now) / 1e9 if freed else 0.0

    def _ticks(self, at: int, number: int) -> Iterator[tuple[int, int]]:
        """Yield the ticks in which something of a measure was taken, the oldest first."""
        numbers, ring = self._numbers, at + _RING
        newest = numbers[at + _NEWEST]
        tick = max(numbers[at + _OLDEST], newest - MINUTE + 1)
        used = False  # a tick has had something
        while tick <= newest:
            slot = ring + tick % MINUTE
            requests, input = numbers[slot], numbers[slot + MINUTE]
            output = numbers[slot + 2 * MINUTE]
            if not used and not (used := bool(requests or input or output)):
                numbers[at + _OLDEST] = tick
            part = (requests, input + output, input, output)[number]
            if part:
                yield tick, part
            tick += 1


def _limits(scope: RateScope) -> tuple[int, int, int, int]:
    return scope.requests, scope.tokens, scope.input, scope.output


class ParentCounters:
    """The counters of the parent: those that it shares with its workers, and its own.

    What only the parent answers for, like keys of accounts, is counted in its memory.
    """

    def __init__(self, shared: SharedCounters) -> None:
        self.shared = shared
        self._own = MemoryCounters()

    async def take(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Lease:
        """As :meth:`take_now`."""
        return self.take_now(scopes, estimate)

    def take_now(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Lease:
        """A lease on all scopes; see :meth:`causerie.access.limits.RateLimiter.take`."""
        places = self.shared.places
        own = [scope for scope in scopes if scope.id not in places]
        if not own:
            return self.shared.take_now(scopes, estimate)
        lease = self._own.take_now(own, estimate)
        shared = [scope for scope in scopes if scope.id in places]
        if not shared:
            return lease
        try:
            return CombinedLease(first=lease, second=self.shared.take_now(shared, estimate))
        except BaseException:
            lease.undo()
            raise
