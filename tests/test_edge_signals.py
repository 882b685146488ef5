"""A signal stops the server gracefully; the process ends with 0 and leaves nothing running."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from edgekit import ASK, wire

SERVER = """
import asyncio
from edgekit import ScriptedPipeline, make_edge
from causerie.edge.server import Listen, serve
from causerie.protocol.events import TextDelta

async def main():
    edge = make_edge(ScriptedPipeline(script=[TextDelta("Hel"), asyncio.Event()]))
    listen = Listen(port=0, drain_seconds=0.2)
    await serve(edge, listen, on_ready=lambda host, port: print(port, flush=True))

asyncio.run(main())
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
async def test_a_signal_ends_streams_and_then_the_process(sent: signal.Signals) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVER,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60):
            port = int(await child.stdout.readline())
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(wire(ASK | {"stream": True}))
            await reader.readuntil(b"Hel")
            child.send_signal(sent)
            rest = await reader.readuntil(b"data: [DONE]\n\n")
            assert b'"finish_reason":"error"' in rest
            writer.close()
            assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
