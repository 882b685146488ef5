"""Tokens that providers processed against those in the ledger, over requests whose clients leave.

A service with accounts stands before a provider that counts its tokens. Clients ask in three
ways (a stream; a plain request that is streamed from the provider; one that is not) and most
leave after a random time. Printed for each way: the tokens that the provider counted, those in
the ledger, and the most that the ledger lacks of one request. Then the price of streaming: the
service's processor time for a plain request, streamed from the provider and not.

    make bench BENCH=bench/charged.py
    make bench BENCH=bench/charged.py ARGS="--requests 9000"
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from chargekit import Bill, CountingProvider, providing
from hostedkit import Office, office
from service import AS_USERS, Service, serving
from starter import PROGRAM

from causerie.metering.ledger import UsageRecord

CONFIG = """
[store]
folder = "{folder}"
[[doors]]
name = "hosted"
kind = "hosted"
"""
PROVIDER = """
[[providers]]
name = "{name}"
base_url = "{url}"
always_stream = {always}
[[aliases]]
id = "{name}"
price = {{ prompt = "1000", completion = "2000" }}
[[aliases.targets]]
provider = "{name}"
model = "m"
"""
WAYS = ("stream", "plain, streamed", "plain, as asked")
STEP = 0.002
LONGEST = 0.08  # seconds until a client leaves
AT_ONCE = 24


@dataclass
class Bench:
    """A service and who counts behind it; ``asked`` has the way of each request by its name."""

    provider: CountingProvider
    service: Service
    office: Office
    session: aiohttp.ClientSession
    headers: dict[str, str]
    chance: random.Random
    asked: dict[str, str] = field(default_factory=dict)

    async def ask(self, number: int, way: str) -> None:
        """One request; nine of ten clients leave."""
        name = f"r{number}"
        self.asked[name] = way
        whole = self.chance.randint(1, 30)
        words = "word " * self.chance.randint(1, 400)
        body = {
            "model": "asked" if way == "plain, as asked" else "streamed",
            "messages": [{"role": "user", "content": f"{name}/{whole} {words}"}],
            "max_tokens": 30,
            "stream": way == "stream",
        }
        patience = self.chance.uniform(0, LONGEST) if self.chance.random() < 0.9 else None
        headers = {**self.headers, "x-request-id": name}
        where = f"{self.service.root}/hosted/v1/chat/completions"
        try:
            async with asyncio.timeout(patience):
                async with self.session.post(where, json=body, headers=headers) as response:
                    await response.read()
        except TimeoutError:
            pass  # it has left

    async def everybody(self, requests: int) -> None:
        """All requests, some at a time."""
        numbers = iter(range(requests))

        async def client() -> None:
            for number in numbers:
                await self.ask(number, WAYS[number % len(WAYS)])

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(client())

    async def records(self) -> dict[str, UsageRecord]:
        """Return the ledger's records, once nothing is added any more."""
        found: dict[str, UsageRecord] = {}
        while True:
            kept = {one.request_id: one async for one in self.office.every_record()}
            if kept and len(kept) == len(found):
                return kept
            found = kept
            await asyncio.sleep(1.0)


async def pacing(provider: CountingProvider) -> None:
    """Let the provider go on with every request that it has, at its speed."""
    known: set[str] = set()
    async with asyncio.TaskGroup() as group:
        while True:
            await provider.arrived.acquire()
            for name in provider.bills.keys() - known:
                known.add(name)
                group.create_task(_paced(provider.bills[name]))


async def _paced(bill: Bill) -> None:
    while not bill.over:
        bill.go.release()
        await asyncio.sleep(STEP)


@asynccontextmanager
async def bench(folder: Path, seed: int) -> AsyncIterator[Bench]:
    """A provider here, a service in a process of its own."""
    async with providing() as provider:
        text = CONFIG.format(folder=folder / "data")
        for name, always in (("streamed", "true"), ("asked", "false")):
            text += PROVIDER.format(name=name, url=provider.base_url, always=always)
        held = serving(folder, text, environment=AS_USERS, program=PROGRAM)
        service = await asyncio.to_thread(held.__enter__)
        try:
            connector = aiohttp.TCPConnector(limit=0)
            async with (
                office(folder / "data") as opened,
                aiohttp.ClientSession(connector=connector) as session,
            ):
                key = (await opened.key()).credential
                headers = {"authorization": f"Bearer {key}"}
                yield Bench(provider, service, opened, session, headers, random.Random(seed))
        finally:
            await asyncio.to_thread(held.__exit__, None, None, None)


def compared(found: Bench, records: dict[str, UsageRecord]) -> int:
    """Print the difference by way; gives the most tokens of one request that the ledger lacks."""
    worst = 0
    for way in WAYS:
        names = [name for name, asked in found.asked.items() if asked == way]
        billed = [found.provider.billed(name) for name in names]
        kept = [records[name] for name in names if name in records]
        lacks = [
            (max(prompt - one.prompt, 0), max(made - one.completion, 0))
            for name, (prompt, made) in zip(names, billed, strict=True)
            if (one := records.get(name, _NOTHING)) is not None
        ]
        most = max(sum(each) for each in lacks)
        worst = max(worst, most)
        print(
            f"{way:16} {len(names):5} requests, {sum(one.status == 499 for one in kept):5} left: "
            f"provider {sum(one for one, _ in billed):8} + {sum(one for _, one in billed):6}, "
            f"ledger {sum(one.prompt for one in kept):8} + "
            f"{sum(one.completion for one in kept):6}; lacking {sum(map(sum, lacks)):5}, "
            f"at most {most} of one request"
        )
    return worst


_NOTHING = UsageRecord(id="", request_id="", at=0)


async def cost_of_streaming(found: Bench, requests: int = 1500) -> None:
    """Print the service's processor time for a whole plain request, both ways."""
    pid = found.service.process.pid
    for model in ("asked", "streamed", "asked", "streamed"):
        before = _processor(pid)
        numbers = iter(range(requests))

        async def client(model: str = model, numbers: object = numbers) -> None:
            where = f"{found.service.root}/hosted/v1/chat/completions"
            for number in numbers:  # type: ignore[attr-defined]  # an iterator
                text = f"{model}{number}x/20 Hi"
                body = {"model": model, "messages": [{"role": "user", "content": text}]}
                async with found.session.post(where, json=body, headers=found.headers) as response:
                    await response.read()

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(client())
        spent = (_processor(pid) - before) / requests * 1e6
        print(f"a plain request of 20 tokens, {model:8}: {spent:5.0f} µs of processor time")


def _processor(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measured(options: argparse.Namespace, folder: Path) -> int:
    """Everything; the exit status is 1 where the ledger lacks more than was on its way."""
    async with bench(folder, options.seed) as found:
        latency_stats = asyncio.create_task(pacing(found.provider))
        await found.everybody(options.requests)
        worst = compared(found, await found.records())
        await cost_of_streaming(found)
        latency_stats.cancel()
    return 0 if worst <= options.bound else 1


def main() -> int:
    """See the top."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bound", type=int, default=40, help="tokens on their way, of one request")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measured(options, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
