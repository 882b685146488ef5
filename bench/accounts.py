"""Cost of accounts for a request: key, limits, budgets and the ledger, against the same door open.

Two services before one mock upstream, one core each in turns: one with keys off,
one whose door takes keys of accounts, with limits and budgets on key and project
and every request in the ledger before its end is told. Sixteen clients read
streams of ten tokens, 5 ms apart. With ``--workers`` two services more count in a Valkey server
of their own: one process, and so many workers, all on that core.

    make bench BENCH=bench/accounts.py
    make bench BENCH=bench/accounts.py ARGS="--workers 2"
    make bench BENCH=bench/accounts.py ARGS="--journal sync"
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from statistics import median

from gateway.contestant import Contestant, process
from gateway.measure import Load, Result
from gateway.ours import await_workers
from hostedkit import office
from service import free_port
from valkeyserver import ValkeyServer

from causerie.hosted.accounts.bounds import Budget, Limit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.people import SYSTEM

STREAM = "stream-10-5000-1"
BAR = 0.3  # ms
CONFIG = """
[server]
workers = {workers}
[store]
folder = "{data}"
journal = "{journal}"
[[doors]]
name = "door"
kind = "gateway"
keys = "{keys}"
[[providers]]
name = "mock"
base_url = "{mock}/v1"
dialect = "vllm"
[[aliases]]
id = "{model}"
targets = [{{ provider = "mock", model = "{model}" }}]
price = {{ prompt = "0.1", completion = "0.2" }}
"""
_MANY = 10**9
_BOUNDS = LimitsAndBudgets(
    (Limit(requests_per_minute=_MANY, tokens_per_minute=10**12, concurrent=10**6),),
    (Budget(Decimal(_MANY)), Budget(Decimal(_MANY), unit=Unit.TOKENS)),
)


def main() -> int:
    """Measure in turns; the exit status is 1 where the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--journal", default="write", choices=["write", "sync", "off"])
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    cores = (available[0], available[-1])
    ways = [_Way("off", "off"), _Way("accounts", "accounts")]
    if options.workers:
        ways += [_Way("shared", "accounts"), _Way("workers", "accounts", options.workers)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mock = stack.enter_context(_mock(folder, cores[1]))
        if options.workers:
            valkey = stack.enter_context(closing(ValkeyServer()))
            valkey.start()
            ways[2:] = [replace(way, shared=valkey.url) for way in ways[2:]]
        services = [_service(folder, mock, way, options.journal, cores[0]) for way in ways]
        contestants = [stack.enter_context(service) for service in services]
        found = _measured(contestants, options, cores[1])
    return _judged(found, options.journal)


@dataclass(frozen=True, slots=True)
class _Way:
    """A contestant: its name, the keys of its door, how many processes answer, and their Valkey."""

    name: str
    keys: str
    workers: int = 1
    shared: str = ""


def _measured(
    contestants: list[Contestant], options: argparse.Namespace, core: int
) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {each.name: [] for each in contestants}
    load = Load(STREAM, 16, options.seconds)
    for number in range(options.rounds):
        for each in contestants:
            found[each.name].append(load.run(each, core))
        print(f"round {number + 1} of {options.rounds} done", flush=True)
    return found


def _judged(found: dict[str, list[Result]], journal: str) -> int:
    for name, results in found.items():
        print(
            f"{name:9} p50 {median(one.p50 for one in results):.3f} ms, "
            f"p99 {median(one.p99 for one in results):.3f} ms, "
            f"{median(one.cpu for one in results) * 10:.0f} µs of processor a request"
        )
    added = median(one.p50 for one in found["accounts"]) - median(one.p50 for one in found["off"])
    print(f"accounts add {added:.3f} ms to the median (journal: {journal}; bar {BAR} ms)")
    return 0 if added <= BAR else 1


@contextmanager
def _mock(folder: Path, core: int) -> Iterator[str]:
    port = free_port()
    mock = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "gateway.mock", str(port), str(core)]
    environ = {"PYTHONPATH": str(Path(__file__).parent)}
    with process(
        command, folder / "mock.log", core=core, ready=f"{mock}/v1/models", environ=environ
    ):
        yield mock


@contextmanager
def _service(folder: Path, mock: str, way: _Way, journal: str, core: int) -> Iterator[Contestant]:
    port, data, config = free_port(), folder / f"data-{way.name}", folder / f"{way.name}.toml"
    values = {"data": data, "journal": journal, "keys": way.keys, "workers": way.workers}
    shared = f'[shared]\nurl = "{way.shared}"\nprefix = "{way.name}"\n' if way.shared else ""
    config.write_text(CONFIG.format(**values, mock=mock, model=STREAM) + shared)
    key = asyncio.run(_key(data)) if way.keys == "accounts" else "none"
    command = [sys.executable, "-m", "causerie", "serve", "--port", str(port)]
    root = f"http://127.0.0.1:{port}"
    with process(
        [*command, "--config", str(config)],
        folder / f"{way.name}.log",
        core=core,
        ready=f"{root}/health/live",
        environ={"NO_COLOR": "1"},
    ) as pid:
        await_workers(root, way.workers)
        yield Contestant(way.name, root, pid, "/door/v1", key)


async def _key(data: Path) -> str:
    async with office(data) as opened:
        await opened.accounts.projects.set_bounds(SYSTEM, opened.project, _BOUNDS)
        return (await opened.key(bounds=_BOUNDS)).credential


if __name__ == "__main__":
    sys.exit(main())
