"""The rate of n workers on n cores, against one process on one core.

The service has the first cores of the machine; the mock providers and the load share the others,
which must be about as many. Each number of workers starts a service of its own, and the numbers
take turns. The median of the rounds is printed, and what share it is of n times the rate of one.

    make bench BENCH=bench/cores.py                           # 1, 2, 4, 8 where there are cores
    make bench BENCH=bench/cores.py ARGS="--workers 1 4 --rounds 5"
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gateway.contestant import Contestant, process
from gateway.measure import Load, Result
from gateway.ours import ALIAS, PROVIDER, SERVER, await_workers, new_key
from service import free_port

BAR = 0.9  # of the rate of one process, for each worker
CONNECTIONS = 64  # for each worker
KINDS = {"requests": "plain", "streamed chunks": "stream-2000-0-4"}


@dataclass(frozen=True)
class Cores:
    """Who runs where: a core for each worker, and one for each mock and each load."""

    workers: Sequence[int]
    mocks: Sequence[int]
    loads: Sequence[int]

    @classmethod
    def of(cls, every: Sequence[int], most: int) -> Cores:
        """Divide the cores for at most so many workers; raises :class:`SystemExit`."""
        rest = every[most:]
        if len(rest) < 2:
            raise SystemExit(f"{len(every)} cores do not do for {most} workers, mocks and load")
        half = len(rest) // 2
        return cls(every[:most], rest[:half], rest[half : 2 * half])


@contextmanager
def mocks(cores: Cores, folder: Path) -> Iterator[list[str]]:
    """A mock provider on each of its cores; yields the addresses."""
    place = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with ExitStack() as stack:
        found = []
        for core in cores.mocks:
            port = free_port()
            address = f"http://127.0.0.1:{port}"
            command = [sys.executable, "-m", "gateway.mock", str(port), str(core)]
            log = folder / f"mock{core}.log"
            one = process(command, log, core=core, ready=f"{address}/v1/models", environ=place)
            stack.enter_context(one)
            found.append(address)
        yield found


@contextmanager
def service(
    addresses: Sequence[str], workers: int, cores: Cores, folder: Path
) -> Iterator[Contestant]:
    """The service with so many workers, each with a core."""
    folder.mkdir()
    port, (key, digest) = free_port(), new_key()
    text = SERVER.format(digest=digest, server=f"workers = {workers}")
    for number, mock in enumerate(addresses):
        provider = f"mock{number}"
        text += PROVIDER.format(name=provider, mock=mock)
        for kind in KINDS.values():
            text += ALIAS.format(id=f"{kind}-{number}", provider=provider, model=kind)
    config = folder / "causerie.toml"
    config.write_text(text)
    command = [sys.executable, "-m", "causerie", "serve", "--port", str(port)]
    root = f"http://127.0.0.1:{port}"
    with process(
        [*command, "--config", str(config)],
        folder / "service.log",
        core=",".join(map(str, cores.workers[:workers])),
        ready=f"{root}/health/live",
        environ={"NO_COLOR": "1", "CAUSERIE_LOGGING_LEVEL": "warning"},
    ) as pid:
        await_workers(root, workers)
        yield Contestant(f"{workers} workers", root, pid, "/gateway/v1", key)


def asked(one: Contestant, kind: str, workers: int, cores: Cores) -> float:
    """Return requests or chunks a second, of all loads at once."""
    connections = max(1, CONNECTIONS * workers // len(cores.loads))

    def load(number: int) -> Result:
        model = f"{KINDS[kind]}-{number}"
        return Load(model, connections, streamed=kind != "requests").run(one, cores.loads[number])

    with ThreadPoolExecutor(len(cores.loads)) as threads:
        results = list(threads.map(load, range(len(cores.loads))))
    return sum(each.rate if kind == "requests" else each.chunks for each in results)


def shown(rates: dict[str, dict[int, list[float]]]) -> bool:
    """Print the table; return whether the bar is met."""
    met = True
    for kind, of_kind in rates.items():
        fewest = min(of_kind)
        one = median(of_kind[fewest]) / fewest
        print(f"\n{kind} a second")
        for workers, measured in of_kind.items():
            share = median(measured) / workers / one
            met &= share >= BAR
            print(f"  {workers:2} workers {median(measured):10,.0f}   {share:.2f} of {workers} × 1")
    return met


def main() -> None:
    """Measure and print; exit with 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    told = parser.parse_args()
    cores = Cores.of(sorted(os.sched_getaffinity(0)), max(told.workers))
    rates: dict[str, dict[int, list[float]]] = {kind: {} for kind in KINDS}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses = stack.enter_context(mocks(cores, folder))
        for number in range(told.rounds):
            for workers in told.workers:
                with service(addresses, workers, cores, folder / f"{number}-{workers}") as one:
                    for kind, of_kind in rates.items():
                        rate = asked(one, kind, workers, cores)
                        of_kind.setdefault(workers, []).append(rate)
            print(f"round {number + 1} of {told.rounds} done", flush=True)
    sys.exit(not shown(rates))


if __name__ == "__main__":
    main()
