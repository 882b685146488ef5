"""Each part of two replicas is killed, paused and cut off, under load.

Whatever happens: what a client saw end is in the ledger, once; no row is there twice or has more
words than the provider wrote; nothing hangs; and a limit is passed as far as is documented.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from clusterkit import Cluster, cluster
from postgres import PostgresServer
from valkeyserver import ValkeyServer
from waiting import eventually

from causerie.metering.ledger import INTERRUPTED

CLIENTS, CONCURRENT = 12, 6
SECONDS = 0.5  # each fault lasts


@asynccontextmanager
async def fault(at: Cluster) -> AsyncIterator[None]:
    """The block is a fault. After it streams end again, and soon the limit is exact again.

    Meanwhile a replica may be alone, so the limit holds for each.
    """
    at.provider.most = at.provider.running
    yield
    before = len(at.seen.ended)
    await eventually(lambda: at.clients.have_ended(before + CONCURRENT))
    assert at.provider.most <= len(at.replicas) * CONCURRENT
    await eventually(lambda: settled(at))


async def settled(at: Cluster) -> bool:
    """Return true if no more run than may, and all replicas are ready."""
    return at.provider.running <= CONCURRENT and all(one.ready for one in at.replicas)


async def shared_server_faults(at: Cluster, valkey: ValkeyServer) -> None:
    """Each replica counts for itself meanwhile."""
    async with fault(at):
        valkey.pause()
        await asyncio.sleep(SECONDS)
        valkey.go_on()
    async with fault(at):
        valkey.kill()
        await asyncio.sleep(SECONDS)
        valkey.start()
    async with fault(at):
        for line in at.lines:
            line.shared.cut()
        await asyncio.sleep(SECONDS)
        for line in at.lines:
            line.shared.mend()


async def database_faults(at: Cluster, postgres: PostgresServer) -> None:
    """Usage waits in the journal meanwhile."""
    async with fault(at):
        postgres.pause()
        await asyncio.sleep(SECONDS)
        postgres.go_on()
    async with fault(at):
        postgres.stop()
        await asyncio.sleep(SECONDS)
        await asyncio.to_thread(postgres.start)
    async with fault(at):
        for line in at.lines:
            line.database.cut()
        await asyncio.sleep(SECONDS)
        for line in at.lines:
            line.database.mend()


async def replica_faults(at: Cluster) -> None:
    """Streams of a paused replica go on with it; only a killed one loses its own."""
    one = at.replicas[0]
    async with fault(at):
        one.send(signal.SIGSTOP)
        await asyncio.sleep(SECONDS)
        one.send(signal.SIGCONT)
    async with fault(at):
        for line in (at.lines[0].database, at.lines[0].shared):
            line.cut()
        await asyncio.sleep(SECONDS)
        for line in (at.lines[0].database, at.lines[0].shared):
            line.mend()
    assert (at.seen.lost, at.seen.refused) == ([], [])
    async with fault(at):
        await one.stop(signal.SIGKILL)
        before = len(at.seen.ended)
        await eventually(lambda: at.clients.have_ended(before + 1))
        await one.start()
    assert len(at.seen.lost) + len(at.seen.refused) <= CLIENTS


@pytest.mark.full
async def test_no_fault_of_a_part_loses_usage_or_bills_it_twice(
    own_valkey: ValkeyServer, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    async with cluster(tmp_path, own_postgres, own_valkey, concurrent=CONCURRENT) as at:
        async with at.clients.running(CLIENTS):
            await eventually(lambda: at.clients.have_ended(CLIENTS))
            await shared_server_faults(at, own_valkey)
            await database_faults(at, own_postgres)
            await replica_faults(at)
        assert at.seen.limited
        await asyncio.gather(*(one.stop() for one in at.replicas))
        every = [one async for one in at.office.every_record()]
        kept = [one for one in every if one.status == 200]
        rows = Counter(one.request_id for one in kept)
        assert set(at.seen.ended) <= set(rows)
        assert set(rows.values()) == {1}
        interrupted = {one.request_id for one in every if one.code == INTERRUPTED}
        assert len(at.seen.lost) <= len(interrupted | set(rows) - set(at.seen.ended))
        assert interrupted.isdisjoint(rows)
        assert sum(one.completion for one in kept) <= at.provider.sent.total()
