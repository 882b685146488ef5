"""Counts of the last minute that several processes keep together, in shared memory.

The same sliding window as :mod:`causerie.access.windows`: exact to a tenth of a second, taken from
all scopes or from none. A window is a ring of the last 600 ticks, with sums alongside. Requests
under way are counted by process, so that those of a process that died can be taken off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from causerie.access.lease import Lease
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
from causerie.workers.layout import MINUTE
from causerie.workers.shared_memory import MEMBERS, SharedMemory

_TICK = 100_000_000  # nanoseconds
_SOON = 1.0  # seconds until a place is tried again: nobody knows when a request ends

# Words of a window.
_NEWEST = 0  # tick
_REQUESTS, _INPUT, _OUTPUT = 1, 2, 3  # sums of the ring
_RUNNING = 4  # sum of the members
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
        self._member = member
        self._clock = clock
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
        input = need.input
        parts: list[_Part] = []
        with self._memory:
            now = self._clock() // _TICK
            for scope in scopes:
                output = min(need.output, scope.output, scope.tokens - input)
                parts.append((scope, self.places[scope.id], now, output))
            if not all(self._fits(scope, at, now, input, output) for scope, at, _, output in parts):
                refused = self._refused(parts, input)
            else:
                for scope, at, _, output in parts:
                    self._add_running(at, 1)
                    self._add(at, now, 1, *_counted(scope, input, output))
                return SharedLease(counters=self, input=input, parts=parts)
        raise limited(refused)

    def settle(
        self, parts: Sequence[_Part], more_input: int, output: int, *, requests: int
    ) -> None:
        """End a lease: correct what it reserved, and free its places."""
        with self._memory:
            now = self._clock() // _TICK
            for scope, at, tick, reserved in parts:
                self._turn(at, now)
                self._add_running(at, -1)
                input, rest = _counted(scope, more_input, output - reserved)
                # Unused tokens are given back at that moment, those unforeseen count from now on.
                self._add(at, tick, requests, min(input, 0), min(rest, 0))
                self._add(at, now, 0, max(input, 0), max(rest, 0))

    def limit_statuses(self, windows: Sequence[tuple[RateScope, int]]) -> LimitStatuses:
        """Return the current state of the strictest limits of these scopes."""
        with self._memory:
            now = self._clock() // _TICK
            for _, at in windows:
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
        self._turn(at, now)
        numbers = self._numbers
        inputs, outputs = numbers[at + _INPUT] + input, numbers[at + _OUTPUT] + output
        return (
            numbers[at + _REQUESTS] < scope.requests
            and numbers[at + _RUNNING] < scope.concurrent
            and (
                not scope.counts_tokens
                or (
                    inputs <= scope.input
                    and outputs <= scope.output
                    and inputs + outputs <= scope.tokens
                )
            )
        )

    def _turn(self, at: int, now: int) -> None:
        """Leave out the ticks that began a minute ago; begin the tick ``now``."""
        numbers = self._numbers
        newest = numbers[at + _NEWEST]
        if newest == now:
            return
        if now - newest >= MINUTE:
            self._memory.clear(at + _REQUESTS, at + _OUTPUT + 1)
            self._memory.clear(at + _RING, at + _RING + 3 * MINUTE)
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

    def _add_running(self, at: int, more: int) -> None:
        self._numbers[at + _MEMBERS + self._member] += more
        self._numbers[at + _RUNNING] += more

    def _repair(self) -> None:
        """Make the sums anew: a process died between a part and its sum."""
        numbers = self._numbers
        for at in self.places.values():
            for number, sum_at in enumerate((_REQUESTS, _INPUT, _OUTPUT)):
                start = at + _RING + number * MINUTE
                numbers[at + sum_at] = sum(numbers[start : start + MINUTE])
            numbers[at + _RUNNING] = sum(numbers[at + _MEMBERS : at + _MEMBERS + MEMBERS])

    # Words for clients; the lock is held.

    def _refused(self, parts: Sequence[_Part], input: int) -> QuotaRefusal:
        now = self._clock()
        refusals: list[ExceededLimit] = []
        for scope, at, _, output in parts:
            self._turn(at, now // _TICK)
            refusals.extend(self._refusals(scope, at, input, output, now))
        windows = [(scope, at) for scope, at, _, _ in parts]
        return QuotaRefusal(tuple(refusals), self._statuses(windows, now // _TICK))

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
        requests: tuple[int, int, int, int] | None = None  # what is left, limit, window, measure
        tokens: tuple[int, int, int, int] | None = None
        for scope, at in windows:
            limits, used = _limits(scope), self._used(at)
            if limits[0] < UNLIMITED:
                requests = _less(requests, (limits[0] - used[0], limits[0], at, 0))
            for number in (1, 2, 3):
                if limits[number] < UNLIMITED:
                    left = limits[number] - used[number]
                    tokens = _less(tokens, (left, limits[number], at, number))
        return self._status(requests, now), self._status(tokens, now)

    def _status(self, strictest: tuple[int, int, int, int] | None, now: int) -> LimitStatus | None:
        if strictest is None:
            return None
        left, limit, at, number = strictest
        first = next((tick for tick, _ in self._ticks(at, number)), now - MINUTE)
        return str(limit), max(left, 0), first + MINUTE - now

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
        newest, ring = self._numbers[at + _NEWEST], at + _RING
        requests = self._numbers[ring : ring + MINUTE]
        input = self._numbers[ring + MINUTE : ring + 2 * MINUTE]
        output = self._numbers[ring + 2 * MINUTE : ring + 3 * MINUTE]
        for tick in range(newest - MINUTE + 1, newest + 1):
            slot = tick % MINUTE
            if number == 0:
                part = requests[slot]
            else:
                part = (input[slot] if number != 3 else 0) + (output[slot] if number != 2 else 0)
            if part:
                yield tick, part


def _counted(scope: RateScope, input: int, output: int) -> tuple[int, int]:
    """Tokens count only where they are limited."""
    return (input, output) if scope.counts_tokens else (0, 0)


def _limits(scope: RateScope) -> tuple[int, int, int, int]:
    return scope.requests, scope.tokens, scope.input, scope.output


def _less(
    one: tuple[int, int, int, int] | None, other: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    return other if one is None or other[0] < one[0] else one


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
            return CombinedLease(own=lease, shared=self.shared.take_now(shared, estimate))
        except BaseException:
            lease.undo()
            raise


class CombinedLease(Lease):
    """A lease on scopes of the parent alone, and one on scopes that it shares."""

    own: Lease
    shared: Lease

    def release(self, input: int, output: int) -> None:
        """The request has ended and has used this."""
        self.own.release(input, output)
        self.shared.release(input, output)

    def undo(self) -> None:
        """Nothing was taken after all."""
        self.own.undo()
        self.shared.undo()

    def limit_statuses(self) -> LimitStatuses:
        """Return the current state of the strictest limits."""
        (requests, tokens), (others, more) = self.own.limit_statuses(), self.shared.limit_statuses()
        return _stricter(requests, others), _stricter(tokens, more)


def _stricter(one: LimitStatus | None, other: LimitStatus | None) -> LimitStatus | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda status: status[1])
