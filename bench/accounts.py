"""Cost of accounts for a request: key, limits, budgets and the ledger, against the same door open.

Two services before one mock upstream, one core each in turns: one with keys off,
one whose door takes keys of accounts, with limits and budgets on key and project
and every request in the ledger before its end is told. Sixteen clients read
streams of ten tokens, 5 ms apart.

    make bench BENCH=bench/accounts.py
    make bench BENCH=bench/accounts.py ARGS="--journal sync"
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from statistics import median

from gateway.contestant import Contestant, process
from gateway.measure import Load, Result
from hostedkit import office
from service import free_port

from causerie.accounts.bounds import Budget, Limit, LimitsAndBudgets, Unit
from causerie.accounts.people import SYSTEM

STREAM = "stream-10-5000-1"
BAR = 0.3  # ms
CONFIG = """
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
    options = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    cores = (available[0], available[-1])
    with (
        tempfile.TemporaryDirectory() as folder,
        _mock(Path(folder), cores[1]) as mock,
        _service(Path(folder), mock, "off", options.journal, cores[0]) as open_to_all,
        _service(Path(folder), mock, "accounts", options.journal, cores[0]) as hosted,
    ):
        found = _measured([open_to_all, hosted], options, cores[1])
    return _judged(found, options.journal)


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
def _service(folder: Path, mock: str, keys: str, journal: str, core: int) -> Iterator[Contestant]:
    port, data, config = free_port(), folder / f"data-{keys}", folder / f"{keys}.toml"
    config.write_text(CONFIG.format(data=data, journal=journal, keys=keys, mock=mock, model=STREAM))
    key = asyncio.run(_key(data)) if keys == "accounts" else "none"
    command = [sys.executable, "-m", "causerie", "serve", "--port", str(port)]
    root = f"http://127.0.0.1:{port}"
    with process(
        [*command, "--config", str(config)],
        folder / f"{keys}.log",
        core=core,
        ready=f"{root}/health/live",
        environ={"NO_COLOR": "1"},
    ) as pid:
        yield Contestant(keys, root, pid, "/door/v1", key)


async def _key(data: Path) -> str:
    async with office(data) as opened:
        await opened.accounts.projects.set_bounds(SYSTEM, opened.project, _BOUNDS)
        return (await opened.key(bounds=_BOUNDS)).credential


if __name__ == "__main__":
    sys.exit(main())
