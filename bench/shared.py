"""Processor time of limits and budgets that replicas share, in the Valkey server and in the client.

A request takes from the limits of two scopes (requests, tokens, concurrent ones), holds a budget,
uses less than was foreseen, and settles. One process makes requests, so many at once; the server
has the other core. The rate that one core of the server carries is a second divided by its time.

    make bench BENCH=bench/shared.py
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import median

from valkeyserver import ValkeyServer

from causerie.access.limits import Rates, RateScope, Tokens
from causerie.distributed.connection import ConnectionOptions, DistributedOptions, Replica
from causerie.distributed.limits import DistributedBudgets, DistributedCounters
from causerie.hosted.accounts.bounds import Budget
from causerie.hosted.accounts.budgets import Budgets, Claim
from causerie.hosted.accounts.usage import Spent

BAR = 12_000  # requests per second of one core of the server
_MANY = Rates(requests_per_minute=10**9, tokens_per_minute=10**12, concurrent=10**6)
_SCOPES = (RateScope("key", "ck_a", _MANY), RateScope("project", "prj_a", _MANY))
_CLAIMS = (Claim("project:prj_a", (Budget(Decimal(10**6)),)),)


@dataclass(frozen=True, slots=True)
class _Used:
    prompt: int = 90
    completion: int = 20
    discarded: int = 0


class _NothingSpent:
    async def spent(self, *_: object) -> Spent:
        return Spent()


async def _request(limits: DistributedCounters, budgets: Budgets) -> None:
    with await limits.take(_SCOPES, lambda: Tokens(100, 50)) as lease:
        reservation = await budgets.reserve(_CLAIMS, "small", 50_000, 150)
        lease.limit_statuses()
        lease.settle(_Used())
    await reservation.settle(40_000, 110)


async def _measured(server: ValkeyServer, clients: int, count: int, rounds: int) -> float:
    options = DistributedOptions(line=ConnectionOptions(reply_seconds=30))
    replica = Replica(server.url, options)
    theirs, ours = [], []
    async with replica.running():
        await replica.wait()
        limits = DistributedCounters(replica)
        budgets = Budgets(_NothingSpent(), time.time_ns, None, DistributedBudgets(replica))
        left = 0

        async def client() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await _request(limits, budgets)

        for _ in range(rounds + 1):  # the first fills the window
            left, before, used = count, _processor(server.pid), time.process_time()
            await asyncio.gather(*(client() for _ in range(clients)))
            theirs.append((_processor(server.pid) - before) / count)
            ours.append((time.process_time() - used) / count)
    server_us, client_us = median(theirs[1:]) * 1e6, median(ours[1:]) * 1e6
    print(
        f"{clients:4} at once: {server_us:5.1f} µs in the server ({1e6 / server_us:,.0f} a second "
        f"of one core), {client_us:5.1f} µs in the client"
    )
    return 1e6 / server_us


def _processor(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def main() -> int:
    """Measure; the exit status is 1 where the bar is missed at the largest load."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with closing(ValkeyServer()) as server:
        server.start()
        os.sched_setaffinity(server.pid, {cores[0]})
        os.sched_setaffinity(0, {cores[-1]})
        rates = [
            asyncio.run(_measured(server, clients, options.count, options.rounds))
            for clients in (1, 16, 64, 256)
        ]
    return 0 if rates[-1] >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
