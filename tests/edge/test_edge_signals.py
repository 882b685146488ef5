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
from edgekit import ASK, Response, read_response, wire

TESTS = Path(__file__).parents[1]

SERVER = """
import asyncio
from edgekit import HELLO, ScriptedPipeline, make_edge
from causerie.http import server
from causerie.protocol.events import TextDelta

async def main():
    edge = make_edge(ScriptedPipeline(script={script}))
    listen = server.Listen(port=0, drain_seconds={drain}, shutdown_delay_seconds={delay})
    await server.serve(edge, listen, on_ready=lambda host, port: print(port, flush=True))

server._LAST_BYTES_SECONDS = 3600
asyncio.run(main())
"""
READY = b"GET /health/ready HTTP/1.1\r\nhost: localhost\r\n\r\n"
WAITING = '[TextDelta("Hel"), asyncio.Event()]'
LONG = '[TextDelta("Hel" * 100_000)] * 100'


@asynccontextmanager
async def running(
    script: str, drain: float, delay: float = 0
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """The server and its port."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVER.format(script=script, drain=drain, delay=delay),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60):
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


async def test_a_stop_that_is_announced_still_answers() -> None:
    """Readiness says it first; connections end with an answer that says so, kept ones too."""
    async with running("HELLO", drain=3600, delay=3600) as (child, port):
        kept = await asyncio.open_connection("127.0.0.1", port)
        assert (await asked(kept, READY)).status == 200
        child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            while (other := await ready_on_another(port)).status == 200:
                assert "connection" not in other.headers
        assert other.status == 503
        assert b'"status":"stopping"' in other.body
        answer = await asked(kept, wire(ASK))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await kept[0].read() == b""
        kept[1].close()
        child.send_signal(signal.SIGTERM)
        assert await child.wait() == 0


async def asked(
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes
) -> Response:
    """One request on a connection that is there."""
    connection[1].write(request)
    return await read_response(connection[0])


async def ready_on_another(port: int) -> Response:
    """Ask for readiness on a new connection."""
    connection = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await asked(connection, READY)
    finally:
        connection[1].close()
