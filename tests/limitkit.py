"""Limits under a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass

from causerie.access.limits import Lease, Limits
from causerie.access.quota import Rates, Scope, Tokens
from causerie.access.windows import MemoryCounters

MILLISECOND = 1_000_000


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


class House:
    """Limits of one process, and the clock on its wall."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.counters = MemoryCounters(self.clock)
        self.limits = Limits(self.counters)

    def admit(self, *scopes: Scope, input: int = 0, output: int = 0) -> Lease:
        return self.limits.admit(scopes, lambda: Tokens(input, output))

    async def pass_through(self, *scopes: Scope, input: int = 0, output: int = 0) -> None:
        """A request that uses exactly what was foreseen and ends at once."""
        async with self.admit(*scopes, input=input, output=output) as lease:
            lease.settle(Used(input, output))


def key(name: str = "ck_a", **rates: int) -> Scope:
    return Scope("key", name, Rates(**rates))


def model(name: str = "m", **rates: int) -> Scope:
    return Scope("model", name, Rates(**rates))
