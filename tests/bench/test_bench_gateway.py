"""The instrument of the gateway's benchmark counts right: every reply, every chunk, every error."""

from __future__ import annotations

import asyncio
import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from faultkit import Fault, Reply, upstream
from service import free_port
from waiting import eventually

BENCH = Path(__file__).parents[2] / "bench"
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
                with urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=60) as response:
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


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Parts of the benchmarks, by their names."""
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module


def test_figures_are_of_the_measurements_that_are_kept(parts: Callable[[str], Any]) -> None:
    figures, measure = parts("gateway.figures"), parts("gateway.measure")

    def result(rate: float) -> Any:
        return measure.Result(rate, 1, 0.1, 0.2, 0.0, 0.0, 0.0, 10.0, (rate, rate + 1))

    rates = {"rate 16": (100, 96, 20), "rate 64": (50, 10, 12)}
    found = figures.Figures({name: [result(one) for one in of] for name, of in rates.items()})
    calm = found.only(lambda one: one.span[0] > 15, 2)
    assert calm.of("rate 16", "rate") == 96
    assert math.isnan(calm.of("rate 64", "rate")), "one measurement is too few"
    assert calm.counts() == [3]


def test_idle_cores_poll_while_they_are_asked_to(
    parts: Callable[[str], Any], tmp_path: Path
) -> None:
    idle, parameter = parts("machine.idle"), tmp_path / "guest_halt_poll_ns"
    governor = tmp_path / "current_governor"
    parameter.write_text("0\n")
    assert idle.told(parameter, governor) == ""
    governor.write_text("menu\n")
    assert idle.told(parameter, governor) == "", "the parameter is there on any machine"
    governor.write_text("haltpoll\n")
    assert "given back to the host at once" in idle.told(parameter, governor)
    with pytest.raises(LookupError), idle.polling(parameter):
        assert "200 µs" in idle.told(parameter, governor)
        raise LookupError
    assert parameter.read_text() == "0\n", "as it was, however the measurement ended"


def test_the_yardstick_is_who_was_measured_on_both_machines(parts: Callable[[str], Any]) -> None:
    yardstick = parts("gateway.yardstick")
    rates = {"nginx": 23_500.0, "vllm-router": 10_800.0, "LiteLLM": 128.0, "causerie": 7_000.0}
    assert yardstick.shares(rates) == {"nginx": 0.5, "vllm-router": 0.8, "LiteLLM": 1.0}
    assert yardstick.speed(rates) == 1.0
    assert yardstick.speed({**rates, "uvicorn + aiohttp": 4_100.0}) == 0.75
    assert math.isnan(yardstick.speed({"nginx": 23_500.0}))
    assert math.isnan(yardstick.speed({"causerie": 7_000.0}))
    line = parts("gateway.bars").RATE[16].line(9_000.0, 12_500.0, 9_000.0 / 0.8)
    assert line.split()[-6:] == ["9,000", "MISSED", "12,500", "met", "11,250", "MISSED"]


def test_a_span_is_calm_where_no_core_was_slow(parts: Callable[[str], Any], tmp_path: Path) -> None:
    witness = parts("machine.witness")
    took = ([80, 80, 80, 80, 170], [90, 90, 200, 90, 90])
    files = [tmp_path / str(core) for core in range(2)]
    for file, times in zip(files, took, strict=True):
        noted = [struct.pack("dd", at, time) for at, time in enumerate(times)]
        file.write_bytes(b"".join(noted) + b"torn")
    watch = witness.Witness(tuple(files))
    assert watch.calm([(0, 1), (0, 3), (3, 4), (0, 4), (8, 9)]) == [1, 0.75, 0.5, 0.8, 0]


async def test_witnesses_note_as_long_as_the_block_lasts(parts: Callable[[str], Any]) -> None:
    begun = perf_counter()
    with parts("machine.witness").witness(sorted(os.sched_getaffinity(0))[:2]) as watch:

        async def noted() -> bool:
            return all(file.exists() and file.read_bytes() for file in watch.files)

        await eventually(noted)
        [share] = watch.calm([(begun, perf_counter())])
    assert 0 < share <= 1, "the best moment of a core is not slow"
    assert not any(file.exists() for file in watch.files)
