"""The cost of a request with worker processes, against the same service as one process.

All processes of a contestant share one core, the mock provider and the load have the other. So the
processor time of a request is compared, and with it the rate that a core for each worker would
give. Contestants take turns; medians are printed.

    make bench BENCH=bench/workers.py
    make bench BENCH=bench/workers.py ARGS="--workers 2 8 --rounds 9"
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from gateway.contestant import Contestant, process
from gateway.measure import Load, Result
from gateway.ours import ours
from service import free_port

BAR = 0.9  # of the rate of one process, for each worker
MEMORY_BAR = 70.0  # MB for each worker
LOADS = {
    "plain, 16 connections": Load("plain", 16),
    "plain, 64 connections": Load("plain", 64),
    "64 streams, a token each 20 ms": Load("stream-40-20000-1", 64, spread=0.8),
}


def measured(
    contestants: Sequence[Contestant], rounds: int, core: int
) -> dict[str, dict[str, list[Result]]]:
    """All results, by load and contestant."""
    found: dict[str, dict[str, list[Result]]] = {}
    for number in range(rounds):
        for what, load in LOADS.items():
            of_load = found.setdefault(what, {})
            for each in contestants:
                of_load.setdefault(each.name, []).append(load.run(each, core))
        print(f"round {number + 1} of {rounds} done", flush=True)
    return found


def shown(found: dict[str, dict[str, list[Result]]]) -> bool:
    """Print the table; return whether all bars are met."""
    met = True
    for what, of_load in found.items():
        print(f"\n{what}")
        costs = {name: [one.cpu for one in results] for name, results in of_load.items()}
        alone = costs["causerie"]
        for name, of_contestant in costs.items():
            pairs = [one / many for one, many in zip(alone, of_contestant, strict=True)]
            ratio = median(pairs)
            met &= ratio >= BAR
            unit = "chunk" if "streams" in what else "reply"
            print(
                f"  {name:12} {median(of_contestant):7.1f} µs a {unit}   {ratio:.3f} of one process"
            )
    return met


def memory(contestants: Sequence[Contestant]) -> bool:
    """Print what each worker adds to the memory; return whether the bar is met."""
    alone = contestants[0].megabytes()
    print(f"\nmemory of one process {alone:.0f} MB")
    met = True
    for each in contestants[1:]:
        count = int(each.name.split()[0])
        more = (each.megabytes() - alone) / count
        met &= more <= MEMORY_BAR
        print(f"  {each.name}: {more:.0f} MB more for each")
    return met


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("two cores are needed")
    models = [load.model for load in LOADS.values()]
    with ExitStack() as stack:
        port = free_port()
        mock = f"http://127.0.0.1:{port}"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        command = [sys.executable, "-m", "gateway.mock", str(port), str(cores[1])]
        place = {"PYTHONPATH": str(Path(__file__).parent)}
        log = folder / "mock.log"
        _ = stack.enter_context(
            process(command, log, core=cores[1], ready=f"{mock}/v1/models", environ=place)
        )
        contestants = []
        for workers in (1, *arguments.workers):
            own = folder / str(workers)
            own.mkdir()
            one = ours(mock, sorted(set(models)), own, cores[0], workers=workers)
            contestants.append(stack.enter_context(one))
        met = shown(measured(contestants, arguments.rounds, cores[1]))
        met &= memory(contestants)
    sys.exit(not met)


if __name__ == "__main__":
    main()
