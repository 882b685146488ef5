"""Processor time of accounts: key, limits, budgets and the ledger, against the same door open.

Services before one mock upstream, on one core, in turns: one with keys off, and one whose
door takes keys of accounts, with limits and budgets on key and project and every request in the
ledger before its end is told. Sixteen clients send plain requests, and read streams of ten tokens,
5 ms apart. Figures are medians, and ratios to the door without keys in the same round.
``--postgres`` adds a service with a PostgreSQL server, whose own time is told apart. With
``--workers`` two services more count in a Valkey server of their own: one process, and so many
workers, all on that core.

    make bench BENCH=bench/accounts.py
    make bench BENCH=bench/accounts.py ARGS="--postgres --workers 2"
    make bench BENCH=bench/accounts.py ARGS="--journal sync"
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from statistics import median

from gateway.contestant import Contestant, process
from gateway.measure import Load, Result
from gateway.ours import await_workers
from hostedkit import SECRET, office
from postgres import programs, server
from service import free_port
from valkeyserver import ValkeyServer

from causerie.hosted.accounts.bounds import Budget, Limit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.people import SYSTEM

PLAIN, STREAM = "plain", "stream-10-5000-1"
COUNTS = {PLAIN: 1500, STREAM: 400}  # requests in a turn
ADDED = 0.3  # ms, the bar of the median of a stream
BARS = {  # of the ratio of processor times
    ("accounts", PLAIN): 2.0,
    ("accounts", STREAM): 1.5,
    ("postgres", PLAIN): 2.3,
    ("postgres", STREAM): 1.7,
}
CONFIG = """
[server]
workers = {workers}
[store]
{database}
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
{models}
"""
MODEL = """
[[aliases]]
id = "{model}"
targets = [{{ provider = "mock", model = "{model}" }}]
price = {{ prompt = "0.1", completion = "0.2" }}
"""
_WRITTEN = 0.4  # seconds after which the last records are in the database
_MANY = 10**9
_SECRET = f'secret_keys = [{{ command = ["echo", "{SECRET}"] }}]'
_BOUNDS = LimitsAndBudgets(
    (Limit(requests_per_minute=_MANY, tokens_per_minute=10**12, concurrent=10**6),),
    (Budget(Decimal(_MANY)), Budget(Decimal(_MANY), unit=Unit.TOKENS)),
)


def main() -> int:
    """Measure in turns; the exit status is 1 where the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--journal", default="write", choices=["write", "sync", "off"])
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    cores = (available[0], available[-1])
    ways = [_Way("off", "off"), _Way("accounts", "accounts")]
    beside: dict[str, Contestant] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mock = stack.enter_context(_mock(folder, cores[1]))
        if options.postgres:
            bin = programs()
            assert bin is not None, "PostgreSQL is not installed"
            database = stack.enter_context(server(bin))
            beside["postgres"] = Contestant("PostgreSQL itself", "", database.pid)
            url = f"postgresql://causerie@/postgres?host={database.folder}"
            ways.append(_Way("postgres", "accounts", database=url))
        if options.workers:
            valkey = stack.enter_context(closing(ValkeyServer()))
            valkey.start()
            ways.append(_Way("shared", "accounts", shared=valkey.url))
            ways.append(_Way("workers", "accounts", options.workers, shared=valkey.url))
        services = [_service(folder, mock, way, options.journal, cores[0]) for way in ways]
        contestants = [stack.enter_context(service) for service in services]
        turns = _Turns(contestants, beside, options.rounds, cores[1])
        found = {model: turns.measured(model) for model in COUNTS}
    missed = [line for model in COUNTS for line in _judged(model, found[model])]
    print(*missed, sep="\n")
    return 1 if missed else 0


@dataclass(frozen=True, slots=True)
class _Way:
    """A contestant: its name, the keys of its door, how many processes answer, and their Valkey."""

    name: str
    keys: str
    workers: int = 1
    shared: str = ""
    database: str = ""


@dataclass(frozen=True, slots=True)
class _Turns:
    """The contestants of all rounds; ``beside`` has the databases of some, by their names."""

    contestants: list[Contestant]
    beside: dict[str, Contestant]
    rounds: int
    core: int

    def measured(self, model: str) -> dict[str, list[Result]]:
        found: dict[str, list[Result]] = {each.name: [] for each in self.contestants}
        found |= {each.name: [] for each in self.beside.values()}
        count = COUNTS[model]
        for each in self.contestants:
            Load(model, 16, count=count // 3).run(each, self.core)
        for number in range(self.rounds):
            for each in self.contestants if number % 2 else self.contestants[::-1]:
                whose = [each, *filter(None, [self.beside.get(each.name)])]
                before = [one.cpu_seconds() for one in whose]
                result = Load(model, 16, count=count).run(each, self.core)
                time.sleep(_WRITTEN)
                for one, then in zip(whose, before, strict=True):
                    used = (one.cpu_seconds() - then) / count * 1e6
                    found[one.name].append(replace(result, cpu=used))
        return found


def _judged(model: str, found: dict[str, list[Result]]) -> Iterator[str]:
    print(f"{model}, µs of processor time a request, ratio to off, p50 in ms:")
    off = found["off"]
    added = median(one.p50 for one in found["accounts"]) - median(one.p50 for one in off)
    for name, results in found.items():
        ratio = median(one.cpu / base.cpu for one, base in zip(results, off, strict=True))
        used, p50 = median(one.cpu for one in results), median(one.p50 for one in results)
        bar = BARS.get((name, model))
        print(
            f"  {name:17} {used:6.0f}   {ratio:.2f}   {p50:.3f}" + (f"   bar {bar}" if bar else "")
        )
        if bar and ratio > bar:
            yield f"{name}, {model}: {ratio:.2f} is above {bar}"
    if model == STREAM and added > ADDED:
        yield f"accounts add {added:.3f} ms to the median, more than {ADDED}"


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
    models = "".join(MODEL.format(model=model) for model in COUNTS)
    database = f'url = "{way.database}"\n{_SECRET}' if way.database else ""
    shared = f'[shared]\nurl = "{way.shared}"\nprefix = "{way.name}"\n' if way.shared else ""
    config.write_text(CONFIG.format(**values, mock=mock, models=models, database=database) + shared)
    key = asyncio.run(_key(data, way.database)) if way.keys == "accounts" else "none"
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


async def _key(data: Path, database: str) -> str:
    async with office(data, url=database or None) as opened:
        await opened.accounts.projects.set_bounds(SYSTEM, opened.project, _BOUNDS)
        return (await opened.key(bounds=_BOUNDS)).credential


if __name__ == "__main__":
    sys.exit(main())
