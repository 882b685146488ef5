"""The instrument of the gateway's benchmark counts right: every reply, every chunk, every error."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from faultkit import Fault, Reply, upstream
from service import free_port

BENCH = Path(__file__).parents[1] / "bench"
ENVIRON = {**os.environ, "PYTHONPATH": str(BENCH)}

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="processes are bound to cores, as Linux can"
)


@pytest.fixture(scope="module")
def mock() -> Iterator[str]:
    """The mock upstream's address."""
    port, core = free_port(), min(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "gateway.mock", str(port), str(core)]
    process = subprocess.Popen(command, env=ENVIRON)
    try:
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as response:
                    assert json.load(response)["data"]
                break
            except URLError:
                assert process.poll() is None
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def load(root: str, model: str, count: int, *more: str) -> dict[str, object]:
    command = [sys.executable, "-m", "gateway.load", root, "/v1", model, "--count", str(count)]
    done = subprocess.run(
        [*command, "--connections", "4", "--seconds", "30", *more],
        env=ENVIRON,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_every_reply_is_counted(mock: str) -> None:
    found = load(mock, "plain", 50)
    assert found["count"] == 50
    assert found["errors"] == {}
    assert 0 < found["p50"] <= found["p99"]


@pytest.mark.parametrize("model", ["stream-21-0-4", "think-21-0-4", "stream-21-100-1"])
def test_every_chunk_is_counted(mock: str, model: str) -> None:
    found = load(mock, model, 8, "--stream")
    assert found["count"] == 8
    assert found["errors"] == {}
    chunks = found["chunks"] / found["rate"] * found["count"]
    assert round(chunks) == 8 * 21
    assert found["first_p50"] > 0


async def test_a_refusal_is_an_error() -> None:
    async with upstream(Fault.SERVER_ERROR) as up:
        found = await asyncio.to_thread(load, up.base_url.removesuffix("/v1"), "plain", 6)
        assert found["errors"] == {"status 500": 6}
        assert found["count"] == 0
        body = up.requests[0]
        assert len(body.raw) == 1536
        assert body.headers["authorization"] == "Bearer none"


@pytest.mark.parametrize(("more", "heads"), [((), 1), (("--ids",), 6)])
async def test_heads_are_the_same_unless_requests_name_themselves(
    more: tuple[str, ...], heads: int
) -> None:
    async with upstream(Reply()) as up:
        await asyncio.to_thread(load, up.base_url.removesuffix("/v1"), "plain", 6, *more)
        assert len({str(one.headers) for one in up.requests}) == heads
        assert len({one.raw for one in up.requests}) == 1


def test_a_round_is_quiet_where_nothing_slowed_the_direct_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    figures, measure = import_module("gateway.figures"), import_module("gateway.measure")

    def result(rate: float) -> Any:
        return measure.Result(rate, 1, 0.1, 0.2, 0.0, 0.0, 0.0, 10.0)

    rates = {
        "rate 16": (100, 96, 94, 100),
        "rate 64": (50, 50, 50, 40),
        "rate 256": (9, 10, 10, 10),
    }
    direct = figures.Figures({name: [result(one) for one in of] for name, of in rates.items()})
    assert figures.quiet_rounds(direct) == [1]
    calm = direct.only([1, 3, 7])
    assert (calm.of("rate 16", "rate"), calm.of("rate 64", "rate")) == (98, 45)
    assert figures.quiet_rounds(figures.Figures()) == []
