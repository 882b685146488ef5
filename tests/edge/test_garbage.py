"""A request that is over is freed at once: nothing of it waits for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from loopkit import HI, OPEN_DOORS, PATHS
from provider import ScriptedProvider, running
from servicekit import ServiceView, service_view

from causerie.http.connection import Connection
from causerie.protocol.request import ChatRequest

_CONFIG = (
    OPEN_DOORS
    + """
[[providers]]
name = "a"
base_url = "{url}"
retries = 0
[[providers]]
name = "b"
base_url = "{url}"
retries = 0
[[aliases]]
id = "both"
targets = [{{ provider = "a", model = "m-1" }}, {{ provider = "b", model = "m-1" }}]
[[aliases]]
id = "one"
targets = [{{ provider = "a", model = "m-1" }}]
[[aliases]]
id = "continued"
targets = [{{ provider = "a", model = "m-1" }}, {{ model = "tiny", priority = 1 }}]
[[models]]
id = "tiny"
engine = "fake"
"""
)
_TIMES = 3
_LONG = "hello world " * 40_000  # goes through the thread for long work
_GONE = (500, '{"error":{"message":"gone"}}')
_BROKEN: list[dict[str, object]] = [
    {"choices": [{"index": 0, "delta": {"content": "Hi"}}]},
    {"error": {"message": "gone"}},
]


@pytest.fixture
def kept() -> Iterator[list[Any]]:
    """Collect objects that only the garbage collector could free, from now on."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize(
    ("door", "model", "status", "fields"),
    [
        ("gateway", "one", 502, {}),
        ("gateway", "both", 502, {}),
        ("gateway", "nobody", 404, {}),
        ("gateway", "one", 502, {"models": ["both"]}),
        ("gateway", "one", 200, {"stream": True}),
        ("endpoint", "tiny", 200, {}),
        ("endpoint", "tiny", 200, {"stream": True}),
        ("endpoint", "tiny", 400, {"messages": [{"role": "user", "content": _LONG}]}),
        ("endpoint", "tiny", 400, {"messages": [{"role": "user", "content": 3}]}),
        ("endpoint", "tiny", 400, {"min_tokens": 10_000_000}),
        ("endpoint", "tiny", 400, {"n": 2, "min_tokens": 10_000_000}),
        ("endpoint", "tiny", 400, {"structured_outputs": {"choice": ["\ud800"]}}),
        ("endpoint", "tiny", 200, {"n": 2}),
    ],
)
async def test_a_request_leaves_no_cycle(
    tmp_path: Path, kept: list[Any], door: str, model: str, status: int, fields: dict[str, Any]
) -> None:
    scripts = [_BROKEN if "stream" in fields else _GONE for _ in range(99)]
    async with running(ScriptedProvider(list(scripts))) as provider:
        config = _CONFIG.format(url=provider.base_url)
        async with service_view(tmp_path, config) as home:
            body = {"model": model, "messages": HI, **fields}
            for _ in range(_TIMES):
                await _send(home, door, body, status)
            left = await _left(kept)
    assert left == ([], {})


@pytest.mark.parametrize("stream", [True, False])
async def test_a_continued_request_leaves_no_cycle(
    tmp_path: Path, kept: list[Any], stream: bool
) -> None:
    provider = ScriptedProvider([_BROKEN for _ in range(9)])
    async with running(provider):
        config = _CONFIG.format(url=provider.base_url)
        async with service_view(tmp_path, config) as home:
            body = {"model": "continued", "messages": HI, "stream": stream}
            for _ in range(_TIMES):
                said = await _send(home, "gateway", body, 200)
                assert '"stop"' in said
                assert "error" not in said
            left = await _left(kept)
    assert len(provider.requests) == _TIMES
    assert left == ([], {})


async def _left(kept: list[Any]) -> tuple[list[Any], Counter[str]]:
    """Requests, failures and frames of ours that only the garbage collector could free."""
    await asyncio.sleep(0)
    gc.collect()
    left = [one for one in kept if isinstance(one, (ChatRequest, BaseException))]
    frames = Counter(
        f"{one.f_code.co_filename}:{one.f_lineno}({one.f_code.co_qualname})"
        for one in kept
        if isinstance(one, FrameType) and "causerie" in one.f_code.co_filename
    )
    return left, frames


async def test_a_connection_leaves_no_cycle(tmp_path: Path, kept: list[Any]) -> None:
    async with service_view(tmp_path, _CONFIG.format(url="http://127.0.0.1:9/v1")) as home:
        host, port = home.root.removeprefix("http://").split(":")
        for _ in range(_TIMES):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
            await writer.wait_closed()
        gc.collect()
    assert not [one for one in kept if isinstance(one, Connection)]


async def _send(home: ServiceView, door: str, body: dict[str, Any], status: int) -> str:
    url = f"{home.root}{PATHS[door]}"
    headers = {"content-type": "application/json"}
    async with home.session.post(url, data=json.dumps(body), headers=headers) as response:
        assert response.status == status, await response.text()
        return await response.text()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_large_blocks_go_back_to_the_system() -> None:
    found = subprocess.run([sys.executable, "-c", _BLOCKS], check=True, capture_output=True)
    assert int(found.stdout) < 16 * 2**20


# The first block teaches the allocator its size; the small ones between the others hold the heap.
_BLOCKS = """
import os
from causerie.composition.startup import give_back_large_blocks
give_back_large_blocks()
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
before = resident()
block = b"x" * (16 << 20)
del block
blocks, held = [], []
for _ in range(8):
    blocks.append(b"x" * (12 << 20))
    held.append(b"x" * 60_000)
del blocks
print(resident() - before)
"""
