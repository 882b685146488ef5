"""A signal stops the server gracefully; the process ends with 0 and leaves nothing running."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from edgekit import ASK, wire

TESTS = Path(__file__).parents[1]

SERVER = """
import asyncio
from edgekit import ScriptedPipeline, make_edge
from causerie.edge import server
from causerie.protocol.events import TextDelta

async def main():
    edge = make_edge(ScriptedPipeline(script={script}))
    listen = server.Listen(port=0, drain_seconds={drain})
    await server.serve(edge, listen, on_ready=lambda host, port: print(port, flush=True))

server._LAST_BYTES_SECONDS = 3600
asyncio.run(main())
"""
WAITING = '[TextDelta("Hel"), asyncio.Event()]'
LONG = '[TextDelta("Hel" * 100_000)] * 100'


@asynccontextmanager
async def running(
    script: str, drain: float
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """The server and its port."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVER.format(script=script, drain=drain),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(30):
            yield child, int(await child.stdout.readline())
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
async def test_a_signal_ends_streams_and_then_the_process(sent: signal.Signals) -> None:
    async with running(WAITING, drain=0.2) as (child, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wire(ASK | {"stream": True}))
        await reader.readuntil(b"Hel")
        child.send_signal(sent)
        rest = await reader.readuntil(b"data: [DONE]\n\n")
        assert b'"finish_reason":"error"' in rest
        writer.close()
        assert await child.wait() == 0


async def test_a_second_signal_waits_for_no_client_that_does_not_read() -> None:
    async with running(LONG, drain=3600) as (child, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=16)
        writer.write(wire(ASK | {"stream": True}))
        assert await reader.read(4) == b"HTTP"
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGINT)
        assert await child.wait() == 0
        writer.close()
