"""The server's reply on a scope, and its consequences: state of limits, and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from causerie.access.quota import (
    UNLIMITED,
    ExceededLimit,
    LimitStatus,
    LimitStatuses,
    Measure,
    QuotaRefusal,
    RateScope,
)

TICK = 100_000  # microseconds
_MINUTE = 600  # ticks
_SOON = 1.0  # seconds until a place is tried again: nobody knows when a request ends
_WIDTH = 13  # numbers of a reply for each scope
_MEASURES: tuple[Measure, ...] = ("requests", "tokens", "input_tokens", "output_tokens")


class ScopeWindow(Struct):
    """The window of a scope at one moment.

    ``first`` and ``freed`` are of each measure the tick after which one more is
    free, or as much as was wanted; 0 where nothing is taken.
    """

    scope: RateScope
    tick: int
    requests: int
    input: int
    output: int
    running: int
    first: Sequence[int]
    freed: Sequence[int]

    @property
    def used(self) -> tuple[int, int, int, int]:
        return self.requests, self.input + self.output, self.input, self.output


def read(scopes: Sequence[RateScope], reply: Sequence[int]) -> list[ScopeWindow]:
    """The part of a reply of ``take.lua`` that is about scopes."""
    found = []
    for scope, at in zip(scopes, range(2, len(reply), _WIDTH), strict=True):
        tick, requests, input, output, running = reply[at : at + 5]
        first, freed = reply[at + 5 : at + 9], reply[at + 9 : at + 13]
        found.append(ScopeWindow(scope, tick, requests, input, output, running, first, freed))
    return found


def refused(
    found: Sequence[ScopeWindow], input: int, outputs: Sequence[int], now: int
) -> QuotaRefusal:
    """Return the limits that refuse the request, at ``now`` microseconds."""
    refusals: list[ExceededLimit] = []
    for each, output in zip(found, outputs, strict=True):
        refusals.extend(_refusals(each, input, output, now))
    return QuotaRefusal(tuple(refusals), limit_statuses(found, now))


def limit_statuses(found: Sequence[ScopeWindow], now: int) -> LimitStatuses:
    """Return the state of the strictest limits at ``now`` microseconds."""
    requests: tuple[int, int, int] | None = None
    tokens: tuple[int, int, int] | None = None
    for each in found:
        limits = _limits(each.scope)
        if limits[0] < UNLIMITED:
            requests = _less(requests, (limits[0] - each.requests, limits[0], each.first[0]))
        if each.scope.counts_tokens:
            for measure in (1, 2, 3):
                left = limits[measure] - each.used[measure]
                tokens = _less(tokens, (left, limits[measure], each.first[measure]))
    return (
        None if requests is None else _limit_status(*requests, now),
        None if tokens is None else _limit_status(*tokens, now),
    )


def _less(
    one: tuple[int, int, int] | None, other: tuple[int, int, int]
) -> tuple[int, int, int] | None:
    return other if one is None or other[0] < one[0] else one


def _refusals(counted: ScopeWindow, input: int, output: int, now: int) -> Iterator[ExceededLimit]:
    scope = counted.scope
    needs = (1, input + output, input, output)
    for number, (measure, limit) in enumerate(zip(_MEASURES, _limits(scope), strict=True)):
        used, needed = counted.used[number], needs[number]
        if limit < UNLIMITED and used + needed > limit:
            wait = _until(counted.freed[number], now)
            yield ExceededLimit(scope, measure, limit, used, needed, wait)
    if counted.running >= scope.concurrent:
        yield concurrency(scope, counted.running)


def concurrency(scope: RateScope, running: int) -> ExceededLimit:
    """Return the limit that a scope with so many running requests exceeds."""
    return ExceededLimit(scope, "concurrent", scope.concurrent, running, 1, _SOON)


def _limits(scope: RateScope) -> tuple[int, int, int, int]:
    return scope.requests, scope.tokens, scope.input, scope.output


def _limit_status(left: int, limit: int, tick: int, now: int) -> LimitStatus:
    reset = min(max(tick + _MINUTE - now // TICK, 0), _MINUTE) if tick else 0
    return str(limit), max(left, 0), reset


def _until(tick: int, now: int) -> float:
    """Seconds until a tick has started a minute ago; 0 where there is none."""
    return max((tick + _MINUTE) * TICK - now, 0) / 1e6 if tick else 0.0
