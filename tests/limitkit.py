"""Limits under a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Literal

from valkeyserver import ValkeyServer

from causerie.access.limits import (
    Lease,
    MemoryCounters,
    RateLimiter,
    Rates,
    RateScope,
    Tokens,
    tell,
)
from causerie.distributed.connection import DistributedOptions, Replica
from causerie.distributed.limits import DistributedCounters

MILLISECOND = 1_000_000
MINUTE = 60_000  # milliseconds, as all times of a book
TENTH = 100
PATIENT = {"reply_seconds": 30.0, "connect_seconds": 30.0}  # a slow machine is not away


class Clock:
    """Nanoseconds, as ``time.monotonic_ns`` gives them."""

    def __init__(self) -> None:
        self.now = 7 * 3600 * 1000 * MILLISECOND + 123_456_789

    def __call__(self) -> int:
        return self.now

    def pass_ms(self, milliseconds: int) -> None:
        self.now += milliseconds * MILLISECOND

    def pass_seconds(self, seconds: float) -> None:
        self.pass_ms(round(seconds * 1000))


@dataclass(frozen=True)
class Used:
    prompt: int = 0
    completion: int = 0
    discarded: int = 0


class ServiceView:
    """Limits of one process, and the clock on its wall."""

    def __init__(self, clock: Clock, limits: RateLimiter) -> None:
        self.clock = clock
        self.limits = limits

    async def admit(self, *scopes: RateScope, input: int = 0, output: int = 0) -> Lease:
        def need() -> Tokens:
            return Tokens(input, output)

        return self.limits.take_now(scopes, need) or await self.limits.take(scopes, need)

    async def pass_through(self, *scopes: RateScope, input: int = 0, output: int = 0) -> None:
        """A request that uses exactly what was foreseen and ends at once."""
        with await self.admit(*scopes, input=input, output=output) as lease:
            lease.settle(Used(input, output))


def told(lease: Lease) -> dict[str, str]:
    """The headers about its limits."""
    headers: dict[str, str] = {}
    tell(lease.limit_statuses(), headers)
    return headers


def key(name: str = "ck_a", **rates: int) -> RateScope:
    return RateScope("key", name, Rates(**rates))


def model(name: str = "m", **rates: int) -> RateScope:
    return RateScope("model", name, Rates(**rates))


def memory_service_view() -> ServiceView:
    clock = Clock()
    return ServiceView(clock, MemoryCounters(clock))


CountedIn = ValkeyServer | Literal["memory"]


@asynccontextmanager
async def open_service_view(server: CountedIn) -> AsyncIterator[ServiceView]:
    """A service that counts in memory, or in a server of its own."""
    if server == "memory":
        yield memory_service_view()
        return
    clock = Clock()
    async with replica(server) as one:
        yield ServiceView(clock, DistributedCounters(one, now=lambda: clock() // 1000))


@asynccontextmanager
async def replica(
    server: ValkeyServer,
    *,
    prefix: str | None = None,
    away: Literal["memory", "refuse"] = "memory",
    life_seconds: float = 60.0,
    **options: float,
) -> AsyncIterator[Replica]:
    """One more replica, joined."""
    prefix, options = prefix or token_hex(8), PATIENT | options
    how = DistributedOptions(away=away, life_seconds=life_seconds, prefix=prefix, **options)
    made = Replica(server.url, how)
    async with made.running():
        await made.wait()
        yield made


@asynccontextmanager
async def shared_counters(server: ValkeyServer, **how: Any) -> AsyncIterator[DistributedCounters]:
    """Counters of one more replica, joined; see :func:`replica`."""
    async with replica(server, **how) as one:
        yield DistributedCounters(one)


Part = Callable[[Tokens], int]
PARTS: dict[str, Part] = {
    "requests": lambda _: 1,
    "tokens": lambda tokens: tokens.input + tokens.output,
    "input": lambda tokens: tokens.input,
    "output": lambda tokens: tokens.output,
}


@dataclass(eq=False)
class Seen:
    """A request that was let in: when (in ms), what it counts as, and whether it runs."""

    at: int
    scopes: tuple[RateScope, ...]
    reserved: Tokens
    counts: list[tuple[int, Tokens]] = field(default_factory=list)
    running: bool = True


@dataclass
class Book:
    """All that was let in, kept the slow and obvious way."""

    seen: list[Seen] = field(default_factory=list)

    def used(self, scope: RateScope, part: str, now: int, back: int) -> int:
        """In the last ``back`` milliseconds, this one included."""
        if part == "requests":
            return sum(now - each.at < back for each in self.seen if scope in each.scopes)
        return sum(
            PARTS[part](tokens)
            for each in self.seen
            if scope in each.scopes
            for at, tokens in each.counts
            if now - at < back
        )

    def running(self, scope: RateScope) -> int:
        return sum(each.running for each in self.seen if scope in each.scopes)

    def fits(self, scopes: tuple[RateScope, ...], need: Tokens, now: int, back: int) -> bool:
        return all(
            self.running(scope) < scope.concurrent
            and all(
                self.used(scope, part, now, back) + PARTS[part](need) <= getattr(scope, part)
                for part in PARTS
            )
            for scope in scopes
        )
