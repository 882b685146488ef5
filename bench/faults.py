"""Nine infrastructure faults under load: is anything lost, charged twice, or over its bound?

Two replicas share a PostgreSQL and a Valkey (or Redis) server, behind a balancer that asks each for
`/health/ready`. Clients have plain and streamed requests of a provider that counts what it sends:
some by a key with a bound of requests at once, some by one with a budget, some by one with a limit
of requests a minute, all in one project with a budget and a bound of its own. Each fault lasts
some seconds. After it the ledger is compared with what clients received and the provider sent.

    make faults
    make faults ARGS="--only kill frozen-database --seconds 20"
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import aiohttp
from hostedkit import SECRET, Office, office
from outages.clients import Kind, Load, ask
from outages.provider import CountingProvider
from outages.verdict import Bounds, Counted, Verdict, judged
from postgres import PostgresServer, programs, server
from replicakit import Balancer, Member
from upgradekit import migrate, next_version
from valkey.asyncio import Valkey
from valkeyserver import ValkeyServer, program
from waiting import eventually

from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets
from causerie.hosted.accounts.people import SYSTEM
from causerie.metering.ledger import UsageRecord

CONFIG = """
[server]
drain_seconds = 20
shutdown_delay_seconds = 1
workers = {workers}
[store]
url = "{database}"
folder = "data"
secret_keys = [{{ command = ["echo", "{secret}"] }}]
[shared]
url = "{shared}"
reply_seconds = 2
away = "{away}"
[[doors]]
name = "hosted"
kind = "hosted"
[[providers]]
name = "up"
base_url = "{provider}"
dialect = "vllm"
key = {{ file = "{key}" }}
health = {{ path = "" }}
[[aliases]]
id = "counted"
targets = [{{ provider = "up", model = "counted" }}]
price = {{ prompt = "0", completion = "1000000" }}
"""
ERRORS = """
[[aliases]]
id = "added"
targets = [{ provider = "up", model = "added", wieght = 2 }]
[[aliases]]
id = "lost"
targets = [{ provider = "down", model = "lost" }]
"""
MANY, PROJECT = 8, 12  # requests at once of the first key, and of the project
PAID = 150  # words that the budget of the second key pays
RATED = 25  # requests a minute of the third key
LENGTHS = (3, 12, 6, 9)
WARM, AFTER = 60, 20  # replies that end before a fault (each replica has seen each key) and after
JOURNAL_KB = 192
PAUSE = 0.04  # of the provider, between two words
_LATEST = 30  # seconds until everything has to be in its place


@dataclass
class World:
    """Everything that runs. A fault changes ``members`` where it replaces replicas."""

    folder: Path
    database: PostgresServer
    shared: ValkeyServer
    provider: CountingProvider
    office: Office
    key_file: Path
    members: list[Member]
    root: str
    seconds: float
    away: str
    noted: str = ""

    def config(self, workers: int = 1) -> str:
        return CONFIG.format(
            workers=workers,
            database=_url(self.database),
            secret=SECRET,
            shared=self.shared.url,
            away=self.away,
            provider=self.provider.base_url,
            key=self.key_file,
        )

    async def lasts(self) -> None:
        """Wait for as long as a fault lasts."""
        await asyncio.sleep(self.seconds)

    async def restart(self, *members: Member, program: Sequence[str] | None = None) -> None:
        for one in members:
            one.ready = False
            await one.stop()
            one.program = program
            await one.start()


def _url(database: PostgresServer) -> str:
    return f"postgresql://causerie@/postgres?host={database.folder}"


async def killed_replica(world: World, _: Load) -> None:
    victim = world.members[0]
    await victim.stop(signal.SIGKILL)
    await world.lasts()
    await victim.start()


async def killed_shared(world: World, _: Load) -> None:
    world.shared.kill()
    await world.lasts()
    await asyncio.to_thread(world.shared.start)


async def frozen_shared(world: World, _: Load) -> None:
    world.shared.pause()
    await world.lasts()
    world.shared.go_on()


async def stopped_database(world: World, _: Load) -> None:
    await asyncio.to_thread(world.database.stop)
    await world.lasts()
    await asyncio.to_thread(world.database.start)


async def frozen_database(world: World, _: Load) -> None:
    world.database.pause()
    await world.lasts()
    world.database.go_on()


async def full_journal(world: World, load: Load) -> None:
    """The replicas' journals are on small disks, which are full soon after the database is away."""
    await asyncio.to_thread(world.database.stop)

    async def refused() -> bool:
        return not any(one.ready for one in world.members)

    await eventually(refused)
    last = len(load.seen)
    await world.lasts()
    refused_then = sum(not one.whole for one in load.seen[last:])  # what ran may still end
    assert refused_then > len(load.seen[last:]) / 2
    world.noted = f"{refused_then} refused meanwhile"
    await asyncio.to_thread(world.database.start)


@asynccontextmanager
async def small_journals(world: World) -> AsyncIterator[None]:
    """Replicas whose journal is a `tmpfs`; mounting needs root."""
    places = [str(one.folder / "data" / "journal") for one in world.members]
    await asyncio.gather(*(one.stop() for one in world.members))
    size = f"size={JOURNAL_KB}k,mode=700"
    for place in places:
        await _run("mount", "-t", "tmpfs", "-o", size, "tmpfs", place)
    try:
        await asyncio.gather(*(one.start() for one in world.members))
        yield
    finally:
        await asyncio.gather(*(one.stop() for one in world.members))
        for place in places:
            await _run("umount", place)
    await asyncio.gather(*(one.start() for one in world.members))


async def _run(*command: str) -> None:
    await asyncio.to_thread(subprocess.run, command, check=True)


async def rotated_key(world: World, load: Load) -> None:
    """A new key by file and reload, the old one revoked; then a reload with two errors."""
    world.provider.keys.add("new")
    world.key_file.write_text("new")
    for one in world.members:
        one.send(signal.SIGHUP)
    before = world.provider.used["new"]
    await eventually(lambda: _more(world.provider.used, "new", before))
    world.provider.keys.discard("old")
    await load.have_ended(AFTER)
    world.key_file.write_text("newest")  # nobody reloads: a request answered by 401 reads it again
    world.provider.keys = {"newest"}
    await load.have_ended(AFTER)
    for one in world.members:
        file = one.folder / "causerie.toml"
        right = file.read_text()
        file.write_text(right + ERRORS)
        command = [sys.executable, "-m", "causerie", "reload", "--config", str(file)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        said = done.stdout + done.stderr
        assert (done.returncode, "wieght" in said, '"down"' in said) == (3, True, True), said
        one.send(signal.SIGHUP)
        file.write_text(right)
    await load.have_ended(AFTER)


async def _more(counts: Counter[str], name: str, before: int) -> bool:
    return counts[name] > before + 10


async def rolling(world: World, load: Load) -> None:
    """The tables become those of a newer version; it serves beside this one, which comes back."""
    newer = await asyncio.to_thread(next_version, world.folder)
    first, second = world.members
    await asyncio.to_thread(migrate, newer, first.folder)
    await load.have_ended(WARM)
    await world.restart(first, program=newer)
    await load.have_ended(AFTER)
    await world.restart(second)
    assert "the tables are those of a newer version" in second.log()
    await load.have_ended(AFTER)
    await world.restart(first)


async def killed_worker(world: World, _: Load) -> None:
    """One of the two worker processes of one service."""
    [service] = world.members
    workers = await asyncio.to_thread(service.children)
    os.kill(workers[0], signal.SIGKILL)
    await eventually(lambda: _workers_began(service, 3))
    await world.lasts()


async def _workers_began(service: Member, count: int) -> bool:
    return service.log().count("worker process ready") == count


@asynccontextmanager
async def two_workers(world: World) -> AsyncIterator[None]:
    """One service of two worker processes in place of the replicas."""
    replicas = list(world.members)
    await asyncio.gather(*(one.stop() for one in replicas))
    world.members[:] = [Member(world.folder / "workers", world.config(workers=2))]
    try:
        await world.members[0].start()
        await eventually(lambda: _workers_began(world.members[0], 2))
        yield
    finally:
        await world.members[0].stop()
        world.members[:] = replicas
    await asyncio.gather(*(one.start() for one in replicas))


@asynccontextmanager
async def as_it_is(_: World) -> AsyncIterator[None]:
    yield


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them.

    ``alone``: replicas count for themselves meanwhile, as is documented, unless ``shared.away``
    refuses. ``emptied``: the shared server has forgotten what it admitted within the minute.
    """

    name: str
    title: str
    act: Callable[[World, Load], Awaitable[None]]
    alone: bool = False
    emptied: bool = False
    failures: int | None = 0
    setting: Callable[[World], AbstractAsyncContextManager[None]] = as_it_is

    def bounds(self, away: str) -> Bounds:
        """Return what is promised with this setting of ``shared.away``."""
        alone = self.alone and away == "memory"
        times = 2 if alone else 1
        at_once = {"many": MANY * times, "": PROJECT * times}
        windows = 1 + (2 if alone else 0) + self.emptied  # each begins at zero
        requests = {"rated": RATED * windows}
        failures = None if self.alone and away == "refuse" else self.failures
        return Bounds(at_once, requests, {"paid": PAID * times}, failures)


FAULTS = (
    Fault("kill", "`kill -9` of a replica, and its restart", killed_replica, failures=2 * PROJECT),
    Fault("killed-shared", "Redis killed, back empty", killed_shared, alone=True, emptied=True),
    Fault("frozen-shared", "Redis frozen", frozen_shared, alone=True),
    Fault("stopped-database", "PostgreSQL stopped", stopped_database),
    Fault("frozen-database", "PostgreSQL frozen", frozen_database),
    Fault(
        "full-journal", f"PostgreSQL stopped, journals full ({JOURNAL_KB} KB)", full_journal,
        failures=None, setting=small_journals,
    ),
    Fault("rotated-key", "provider's key rotated and revoked; wrong reload", rotated_key),
    Fault("rolling", "two versions of the tables and the program, and back", rolling),
    Fault(
        "workers", "`kill -9` of a worker (`--workers 2`)", killed_worker,
        failures=2 * PROJECT, setting=two_workers,
    ),
)  # fmt: skip


async def under(world: World, fault: Fault) -> Verdict:
    """Have the fault under load, and compare what was counted."""
    provider, name = world.provider, fault.name.replace("-", "_")
    async with fault.setting(world):
        await eventually(lambda: _all_ready(world))
        provider.clear()
        load = Load(world.root, name)
        async with load.running(await _kinds(world.office)):
            await load.have_ended(WARM)
            await fault.act(world, load)
            await load.have_ended(AFTER)
        most = dict(provider.most)
        in_a_minute = {kind: provider.in_a_minute(kind) for kind in provider.times}
        await eventually(lambda: _all_ready(world))
        rows = await _rows(world, load)
        sums = await _sums(world, load)
        rows = await _rows(world, load)
        counted = Counted(provider.asked, provider.sent, most, in_a_minute, *sums)
        return judged(load.seen, rows, counted, fault.bounds(world.away))


async def _kinds(opened: Office) -> Sequence[Kind]:
    """Three kinds of clients, each with a key of its own."""
    budget = Budget(Decimal(PAID), BudgetPeriod.NEVER)
    bounds = {
        "many": (10, LENGTHS, LimitsAndBudgets((Limit(concurrent=MANY),))),
        "paid": (3, (5,), LimitsAndBudgets(budgets=(budget,))),
        "rated": (3, LENGTHS, LimitsAndBudgets((Limit(requests_per_minute=RATED),))),
    }
    return [
        Kind(name, clients, (await opened.key(bounds=of_kind)).credential, lengths)
        for name, (clients, lengths, of_kind) in bounds.items()
    ]


async def _all_ready(world: World) -> bool:
    return all(one.ready for one in world.members)


async def _rows(world: World, load: Load) -> Sequence[UsageRecord]:
    """Return the rows of the fault, once every request that has to leave one has."""
    wanted = {one.name for one in load.seen if one.whole} | set(world.provider.asked)
    deadline = time.monotonic() + _LATEST
    while True:
        every = [one async for one in world.office.every_record()]
        rows = [one for one in every if one.request_id.startswith(f"{load.fault}-")]
        if time.monotonic() > deadline or wanted <= {row.request_id for row in rows}:
            return rows
        await asyncio.sleep(0.5)


async def _sums(world: World, load: Load) -> tuple[int, int, int]:
    """Return what the project has spent: in sums, in the shared server, and by all rows.

    Each replica gets requests until all agree: one that was alone counts its own at first.
    """
    project, since = f"project:{world.office.project}", datetime(1970, 1, 1, tzinfo=UTC)
    key, deadline = (await world.office.key()).credential, time.monotonic() + _LATEST
    async with Valkey.from_url(world.shared.url) as valkey:
        while True:
            for one in world.members:
                name = f"{load.fault}-later-{len(load.seen)}"
                async with aiohttp.ClientSession(one.root) as session:
                    load.seen.append(await ask(session, key, name, 1, stream=False))
            await asyncio.sleep(1)
            cost = sum([one.cost async for one in world.office.every_record()])
            database = (await world.office.reader.spent(project, "", since)).cost
            places = [each async for each in valkey.scan_iter(f"*:budget:{project}:*")]
            spent = [struct.unpack_from("<?dd", await valkey.get(each)) for each in places]
            shared = sum(int(high) * 10**9 + int(low) for _, high, low in spent)
            if shared == database == cost or time.monotonic() > deadline:
                return database, shared, cost


@asynccontextmanager
async def open_world(
    folder: Path, database: PostgresServer, shared: ValkeyServer, asked: argparse.Namespace
) -> AsyncIterator[World]:
    """Two replicas, a provider and a balancer."""
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(office(folder, url=_url(database)))
        bounds = LimitsAndBudgets((Limit(concurrent=PROJECT),), (Budget(Decimal(10**6)),))
        await opened.accounts.projects.set_bounds(SYSTEM, opened.project, bounds)
        provider = CountingProvider(PAUSE, {"old"})
        await stack.enter_async_context(provider.answering())
        key_file = folder / "key"
        key_file.write_text("old")
        members: list[Member] = []
        balancer = Balancer(members, 0.1)
        world = World(
            folder,
            database,
            shared,
            provider,
            opened,
            key_file,
            members,
            "",
            asked.seconds,
            asked.away,
        )
        members += [Member(folder / str(number), world.config()) for number in range(2)]
        stack.push_async_callback(_stopped, members)
        await asyncio.gather(*(one.start() for one in members))
        await stack.enter_async_context(balancer.running())
        world.root = balancer.root
        yield world


async def _stopped(members: Sequence[Member]) -> None:
    await asyncio.gather(*(one.stop() for one in members))


def shown(fault: Fault, seconds: float, found: Verdict, noted: str) -> str:
    """Return a row of the table."""
    received, kept, sent = found.words
    cells = (
        f"{fault.title}{f' ({noted})' if noted else ''}", f"{seconds:.0f}", found.ok, found.full,
        found.failed, found.rows, found.missing, found.twice, f"{received}, {kept}, {sent}",
        *(f"{highest} of {bound}" for highest, bound in found.highest),
        "broken" if found.broken else "kept",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


HEAD = """
| fault | s | ok | 402, 429 | failed | rows | missing | twice | tokens | at once | minute | paid | |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


async def run(asked: argparse.Namespace, folder: Path, bin: Path) -> int:
    """Have all faults; return the number of broken promises."""
    shared = ValkeyServer()
    lines, broken = [HEAD], 0
    try:
        shared.start()
        with server(bin) as database:
            async with open_world(folder, database, shared, asked) as world:
                for fault in FAULTS:
                    if asked.only and fault.name not in asked.only:
                        continue
                    began, world.noted = time.monotonic(), ""
                    found = await under(world, fault)
                    lines.append(shown(fault, time.monotonic() - began, found, world.noted))
                    print(lines[-1], *found.broken, sep="\n  ", flush=True)
                    broken += len(found.broken)
    finally:
        shared.close()
    print(*lines, sep="\n")
    return broken


def main() -> int:
    """Run them; the exit status is 1 where a promise is broken."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", choices=[one.name for one in FAULTS])
    options.add_argument("--seconds", type=float, default=5, help="of each fault")
    options.add_argument("--away", choices=["memory", "refuse"], default="memory")
    asked = options.parse_args()
    if (bin := programs()) is None or program() is None:
        sys.exit("PostgreSQL and Valkey or Redis are needed (`make postgres valkey`)")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder  # where `causerie reload` finds the replicas
        return 1 if asyncio.run(run(asked, Path(folder), bin)) else 0


if __name__ == "__main__":
    sys.exit(main())
