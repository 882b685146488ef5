"""Does a rolling restart under load lose a stream?

Replicas of a hosted service share a PostgreSQL and a Valkey (or Redis) server. A balancer asks each
for `/health/ready`, as Kubernetes does, and gives each connection to one that is ready. Clients
have streams of a paced provider, one after the other, each on a connection that it keeps. Each
replica is stopped (SIGTERM) and started again, one after the other, for some rounds.

Counted are streams that broke off or had a word missing, requests that were refused, requests that
were repeated because a kept connection led to a replica that stops, and the longest time between
two words of a stream. At the end the ledger is compared with what clients saw.

    make bench BENCH=bench/replicas.py
    make bench BENCH=bench/replicas.py ARGS="--delay 0 --rounds 1"    # without the announcement
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from hostedkit import Office, office
from market.curves import Line, Panel, curves_svg
from postgres import programs, server
from replicakit import (
    Balancer,
    Clients,
    Member,
    PacedProvider,
    Seen,
    configuration,
    members,
)
from valkeyserver import ValkeyServer
from waiting import eventually

_SAMPLE_SECONDS = 0.5
_PAUSE = 0.5  # seconds between two words
_FEWEST_WORDS = 10


@dataclass
class Curves:
    """Samples of the run: streams of each replica, and the longest gap, since it began."""

    streams: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    gaps: list[tuple[float, float]] = field(default_factory=list)

    async def sample(self, replicas: Sequence[Member], seen: Seen) -> None:
        """Take samples until cancelled."""
        began = time.monotonic()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while True:
                await asyncio.sleep(_SAMPLE_SECONDS)
                counts = await asyncio.gather(*(_in_flight(session, one) for one in replicas))
                now = time.monotonic() - began
                for number, count in enumerate(counts):
                    self.streams.setdefault(f"replica {number + 1}", []).append((now, count))
                self.streams.setdefault("all clients", []).append((now, seen.running))
                self.gaps.append((now, seen.longest_gap))
                seen.longest_gap = 0.0

    def panels(self) -> list[Panel]:
        """Return what is drawn."""
        lines: dict[str, Line] = dict(self.streams)
        return [
            Panel("Streams under way", lines),
            Panel("Longest time between two words, in seconds", {"gap": self.gaps}),
        ]


async def _in_flight(session: aiohttp.ClientSession, member: Member) -> int:
    """Return how many requests the replica has at the provider; 0 if it does not answer."""
    with suppress(aiohttp.ClientError, TimeoutError):
        async with session.get(f"{member.root}/health") as answer:
            document = await answer.json()
            return sum(target["in_flight"] for target in document["targets"])
    return 0


async def restarted(replicas: Sequence[Member], rounds: int, seen: Seen) -> None:
    """Restart each replica, one after the other, so many times."""
    for number in range(rounds):
        for place, one in enumerate(replicas):
            began = time.monotonic()
            status = await one.stop()
            stopped = time.monotonic()
            await one.start()
            print(
                f"round {number + 1}, replica {place + 1}: exit status {status} after "
                f"{stopped - began:.1f} s, ready again after {time.monotonic() - stopped:.1f} s; "
                f"{seen.running} streams run, {len(seen.ended)} have ended",
                flush=True,
            )


async def judged(opened: Office, seen: Seen, curves: Curves) -> bool:
    """Print the outcome; return true if nothing was lost."""
    kept = Counter([one.request_id async for one in opened.every_record()])
    missing = [one for one in seen.ended if one not in kept]
    twice = [one for one, count in kept.items() if count > 1]
    for line in (*seen.lost[:5], *seen.refused[:5]):
        print(f"  {line}")
    print(
        f"{len(seen.ended)} streams ended; lost {len(seen.lost)}, refused {len(seen.refused)}, "
        f"repeated after 503 on a kept connection {seen.repeated}; longest time between two words "
        f"{max(gap for _, gap in curves.gaps):.2f} s (paced at {_PAUSE} s); "
        f"missing in the ledger {len(missing)}, twice {len(twice)}"
    )
    return not (seen.lost or seen.refused or missing or twice)


async def run(asked: argparse.Namespace, folder: Path, url: str, shared: str) -> bool:
    """Run it all; return true if nothing was lost."""
    draw, curves = random.Random(asked.seed), Curves()
    async with office(folder, url=url) as opened, PacedProvider(_PAUSE).answering() as provider:
        credential = (await opened.key()).credential
        more = f"shutdown_delay_seconds = {asked.delay}"
        text = configuration(url, shared, provider.base_url, more)
        async with (
            members(folder, [text] * asked.replicas) as replicas,
            Balancer(replicas, asked.every).running() as balancer,
        ):
            clients = Clients(
                balancer.root, credential, lambda: draw.randint(_FEWEST_WORDS, asked.words)
            )
            async with clients.running(asked.streams) as seen:
                sampling = asyncio.ensure_future(curves.sample(replicas, seen))
                await eventually(lambda: clients.have_ended(asked.streams), 600)
                await restarted(replicas, asked.rounds, seen)
            sampling.cancel()
            with suppress(asyncio.CancelledError):
                await sampling
        asked.svg.write_text(curves_svg("A rolling restart", curves.panels()), encoding="utf-8")
        print(f"curves: {asked.svg}")
        return await judged(opened, seen, curves)


def main() -> int:
    """Run it; the exit status is 1 where anything was lost."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--replicas", type=int, default=3)
    options.add_argument("--streams", type=int, default=200)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--words", type=int, default=20, help="of the longest stream")
    options.add_argument("--delay", type=float, default=11.0, help="shutdown_delay_seconds")
    options.add_argument("--every", type=float, default=0.5, help="between questions for readiness")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--svg", type=Path, default=Path(tempfile.gettempdir()) / "replicas.svg")
    asked = options.parse_args()
    if (bin := programs()) is None:
        sys.exit("PostgreSQL is needed (`make postgres`)")
    valkey = ValkeyServer()
    try:
        valkey.start()
        with tempfile.TemporaryDirectory() as folder, server(bin) as database:
            url = f"postgresql://causerie@/postgres?host={database.folder}"
            met = asyncio.run(run(asked, Path(folder), url, valkey.url))
    finally:
        valkey.close()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
