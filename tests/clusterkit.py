"""Two replicas under load whose lines to database and shared server can be cut, each by itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from hostedkit import Office, office
from postgres import PostgresServer
from replicakit import (
    Balancer,
    Clients,
    Member,
    PacedProvider,
    Seen,
    configuration,
    members,
)
from tcpproxy import Streams, TcpProxy
from valkeyserver import ValkeyServer

from causerie.hosted.accounts.bounds import Limit, LimitsAndBudgets


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one replica."""

    database: TcpProxy
    shared: TcpProxy


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything that runs. ``seen`` is what the clients see."""

    replicas: Sequence[Member]
    lines: Sequence[Lines]
    provider: PacedProvider
    office: Office
    clients: Clients

    @property
    def seen(self) -> Seen:
        return self.clients.seen


@asynccontextmanager
async def cluster(
    folder: Path, database: PostgresServer, shared: ValkeyServer, *, concurrent: int
) -> AsyncIterator[Cluster]:
    """Two replicas; the clients' key may have so many requests at once."""
    url = f"postgresql://causerie@/postgres?host={database.folder}"
    prefix, lengths = token_hex(8), itertools.cycle([2, 7, 4, 9])
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(office(folder, url=url))
        bounds = LimitsAndBudgets(limits=(Limit(concurrent=concurrent),))
        key = await opened.key(bounds=bounds)
        provider = await stack.enter_async_context(PacedProvider(0.2).answering())
        lines = [await _lines(stack, database, shared) for _ in range(2)]
        texts = [_text(one, shared.through(one.shared.port), provider, prefix) for one in lines]
        replicas = await stack.enter_async_context(members(folder, texts))
        balancer = await stack.enter_async_context(Balancer(replicas, 0.1).running())
        clients = Clients(balancer.root, key.credential, lambda: next(lengths))
        yield Cluster(replicas, lines, provider, opened, clients)


async def _lines(stack: AsyncExitStack, database: PostgresServer, shared: ValkeyServer) -> Lines:
    async def to_database() -> Streams:
        return await asyncio.open_unix_connection(str(database.socket))

    async def to_shared() -> Streams:
        return await asyncio.open_connection("127.0.0.1", shared.port)

    made = Lines(TcpProxy(to_database), TcpProxy(to_shared))
    for one in (made.database, made.shared):
        await stack.enter_async_context(one.running())
    return made


def _text(lines: Lines, shared: str, provider: PacedProvider, prefix: str) -> str:
    return configuration(
        f"postgresql://causerie@127.0.0.1:{lines.database.port}/postgres",
        shared,
        provider.base_url,
        prefix=prefix,
    )
