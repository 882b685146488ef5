"""Processor time of limits and budgets that replicas share, in the Valkey server and in the client.

A request takes from the limits of two scopes (requests, tokens, concurrent ones), holds a budget,
uses less than was foreseen, and settles. One process makes so many requests at once, over the
connections of so many replicas, by so many keys (ten of a project); the server has the other core.
The rate that one core of the server carries is a second divided by its time. Where keys are in
random order, hardly two requests that come together have anything in common. Where windows are
full, a clock of the benchmark's own makes so many requests a second, and a minute of them is there.

The server is the first ``valkey-server`` of the path, else its ``redis-server``.

    make bench BENCH=bench/shared.py
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import median

from valkeyserver import ValkeyServer

from causerie.access.limits import Rates, RateScope, Tokens
from causerie.distributed.connection import DistributedOptions, Replica
from causerie.distributed.limits import DistributedBudgets, DistributedCounters
from causerie.hosted.accounts.bounds import Budget
from causerie.hosted.accounts.budgets import Budgets, Claim
from causerie.hosted.accounts.usage import Spent

BAR = 12_000  # requests per second of one core of the server
_MANY = Rates(requests_per_minute=10**9, tokens_per_minute=10**12, concurrent=10**6)
_KEYS_OF_A_PROJECT = 10


@dataclass(frozen=True, slots=True)
class _Load:
    replicas: int
    clients: int
    keys: int
    random: bool = False
    rate: int = 0
    """Requests a second of the benchmark's own clock; 0 for the server's clock."""

    def __str__(self) -> str:
        kind = ", in random order" * self.random + ", full windows" * bool(self.rate)
        return f"{self.replicas} replicas, {self.keys:4} keys{kind}, {self.clients:3} at once"


_LOADS = (
    *(_Load(1, clients, 1) for clients in (1, 16, 64, 256)),
    *(_Load(8, clients, 1) for clients in (8, 64, 256)),
    *(_Load(8, clients, 1000) for clients in (8, 64, 256)),
    _Load(8, 256, 1000, random=True),
    _Load(8, 256, 100, random=True, rate=1200),
)
_BARRED = [load for load in _LOADS if load.clients == 256]


@dataclass(frozen=True, slots=True)
class _Owner:
    scopes: tuple[RateScope, ...]
    claims: tuple[Claim, ...]


def _owner(number: int) -> _Owner:
    key, project = f"ck_{number}", f"prj_{number // _KEYS_OF_A_PROJECT}"
    return _Owner(
        (RateScope("key", key, _MANY), RateScope("project", project, _MANY)),
        (Claim(f"project:{project}", (Budget(Decimal(10**6)),)),),
    )


@dataclass(frozen=True, slots=True)
class _Used:
    prompt: int = 90
    completion: int = 20
    discarded: int = 0


async def _nothing_spent(*_: object) -> Spent:
    return Spent()


@dataclass(frozen=True, slots=True)
class _Member:
    limits: DistributedCounters
    budgets: Budgets

    async def request(self, owner: _Owner) -> None:
        with await self.limits.take(owner.scopes, lambda: Tokens(100, 50)) as lease:
            reservation = await self.budgets.reserve(owner.claims, "small", 50_000, 150)
            lease.limit_statuses()
            lease.settle(_Used())
        await reservation.settle(40_000, 110)


class _Clock:
    def __init__(self, rate: int) -> None:
        self.step, self.now = 10**6 // rate, 10**15

    def __call__(self) -> int:
        return self.now


@asynccontextmanager
async def _members(
    server: ValkeyServer, count: int, clock: _Clock | None = None
) -> AsyncIterator[list[_Member]]:
    options = DistributedOptions(reply_seconds=30)
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            replica = Replica(server.url, options)
            await stack.enter_async_context(replica.running())
            await replica.wait()
            budgets = Budgets(_nothing_spent, time.time_ns, DistributedBudgets(replica))
            made.append(_Member(DistributedCounters(replica, now=clock), budgets))
        yield made


async def _measured(server: ValkeyServer, load: _Load, count: int, rounds: int) -> float:
    theirs: list[float] = []
    ours: list[float] = []
    owners = [_owner(number) for number in range(load.keys)]
    clock = _Clock(load.rate) if load.rate else None
    async with _members(server, load.replicas, clock) as members:
        left = 0

        async def client(member: _Member) -> None:
            nonlocal left
            while left > 0:
                left -= 1
                if clock is not None:
                    clock.now += clock.step
                owner = random.choice(owners) if load.random else owners[left % load.keys]
                await member.request(owner)

        for _ in range(rounds + 1):  # the first fills the windows
            left = max(count, 60 * load.rate) if not theirs else count
            before, used = _processor(server.pid), time.process_time()
            all_members = itertools.islice(itertools.cycle(members), load.clients)
            await asyncio.gather(*(client(member) for member in all_members))
            theirs.append((_processor(server.pid) - before) / count)
            ours.append((time.process_time() - used) / count)
    server_us, client_us = median(theirs[1:]) * 1e6, median(ours[1:]) * 1e6
    print(
        f"{load}: {server_us:5.1f} µs in the server ({1e6 / server_us:,.0f} a second of one core), "
        f"{client_us:5.1f} µs in the client",
        flush=True,
    )
    return 1e6 / server_us


def _processor(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def main() -> int:
    """Measure; the exit status is 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with closing(ValkeyServer()) as server:
        server.start()
        os.sched_setaffinity(server.pid, {cores[0]})
        os.sched_setaffinity(0, {cores[-1]})
        rates = {
            load: asyncio.run(_measured(server, load, options.count, options.rounds))
            for load in _LOADS
        }
    return 0 if all(rates[load] >= BAR for load in _BARRED) else 1


if __name__ == "__main__":
    sys.exit(main())
