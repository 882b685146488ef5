"""Messages from each replica to all others, over a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex

from limitkit import key
from structlog.testing import capture_logs
from valkey.asyncio import Valkey
from valkeyserver import ValkeyServer
from waiting import eventually

from causerie.access.quota import Tokens
from causerie.distributed.broadcast import Broadcast
from causerie.distributed.counters import DistributedCounters
from causerie.distributed.leases import DistributedLease
from causerie.distributed.line import ConnectionOptions
from causerie.distributed.replica import DistributedOptions, Replica

QUICK = ConnectionOptions(reply_seconds=2.0, beat_seconds=0.1)


class Listener:
    """One replica, and what it has heard."""

    def __init__(self, url: str, prefix: str) -> None:
        self.replica = Replica(url, DistributedOptions(prefix=prefix, line=QUICK))
        self.counters = DistributedCounters(self.replica)
        self.broadcast = Broadcast(self.replica, url, QUICK)
        self.heard: list[bytes] = []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Listener]:
        async with self.replica.running():
            task = asyncio.create_task(self.broadcast.listen(self.heard.append))
            try:
                await self.replica.wait()
                yield self
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def tells(self, other: Listener, message: bytes) -> None:
        """Send it until the other has heard it, since nothing says when that one listens."""

        async def heard() -> bool:
            self.broadcast.send(message)
            return message in other.heard

        await eventually(heard)


async def test_the_others_hear_it_and_go_on_when_the_server_is_back(
    own_valkey: ValkeyServer,
) -> None:
    prefix = token_hex(8)
    one, other = Listener(own_valkey.url, prefix), Listener(own_valkey.url, prefix)
    async with one.listening(), other.listening():
        await one.tells(other, b"\0first")
        await other.tells(one, b"back")
        assert b"\0first" not in one.heard  # nobody hears himself
        own_valkey.kill()
        own_valkey.start()
        await one.tells(other, b"again")


async def test_who_may_not_use_the_channel_still_counts(own_valkey: ValkeyServer) -> None:
    async with Valkey.from_url(own_valkey.url) as client:
        words = ("on", ">word", "~*", "+@all", "resetchannels")
        await client.execute_command("ACL", "SETUSER", "counts", *words)
    url = f"valkey://counts:word@127.0.0.1:{own_valkey.port}/0"
    with capture_logs() as logs:
        async with Listener(url, token_hex(8)).listening() as alone:

            async def said() -> bool:
                return any(one["event"] == "replicas.not_heard" for one in logs)

            await eventually(said)
            alone.broadcast.send(b"not allowed")
            lease = await alone.counters.take([key(concurrent=1)], Tokens)
            assert isinstance(lease, DistributedLease)
    assert not [one for one in logs if one["event"] == "limits.store_away"]
