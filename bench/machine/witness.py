"""Speed of the cores while something else is measured on them.

Other machines on the host take from a core what no counter of ours tells: its
execution units and its caches, where they run on the other thread of the same
core. So a process on each core does the same small work again and again, and
notes how much processor time it took: nothing that runs here changes that.

python -m machine.witness CORE FILE
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parents[1]
CALM = 0.9
"""The share of a measurement in which no core may be slow, so that it counts as undisturbed."""

_PAUSE_SECONDS = 0.05
_STEPS = 1500  # some 80 microseconds of work; twice of it in each pause, 0.3 in a hundred
_SLOWER = 1.25  # than at its best; half as fast is what a busy neighbour costs
_SAMPLE = struct.Struct("dd")  # the time by the clock of performance, and what the work took


@dataclass(frozen=True, slots=True)
class Witness:
    """Reads what the processes note, one file a core."""

    files: tuple[Path, ...]

    def calm(self, spans: Iterable[tuple[float, float]]) -> list[float]:
        """Of each span of time (seconds of ``perf_counter``) the share in which no core was slow.

        Slow is by comparison with the best of the core in the whole run; the least of the
        cores counts, 0 where nothing was noted in the span.
        """
        cores = [_samples(file.read_bytes()) for file in self.files]
        return [min(_share(core, *span) for core in cores) for span in spans]


def _samples(noted: bytes) -> list[tuple[float, bool]]:
    """When a core was looked at, and whether it was slow."""
    found = list(_SAMPLE.iter_unpack(noted[: len(noted) // _SAMPLE.size * _SAMPLE.size]))
    best = min((took for _, took in found), default=0.0)
    return [(at, took > best * _SLOWER) for at, took in found]


def _share(samples: Iterable[tuple[float, bool]], begin: float, end: float) -> float:
    slow = [slow for at, slow in samples if begin <= at <= end]
    return 1 - sum(slow) / len(slow) if slow else 0.0


@contextmanager
def witness(cores: Iterable[int]) -> Iterator[Witness]:
    """A process on each of these cores, as long as the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        files = {core: Path(folder) / str(core) for core in cores}
        environ = {**os.environ, "PYTHONPATH": str(_HERE)}
        command = [sys.executable, "-m", "machine.witness"]
        running = [
            subprocess.Popen([*command, str(core), str(file)], env=environ)
            for core, file in files.items()
        ]
        try:
            yield Witness(tuple(files.values()))
        finally:
            for process in running:
                process.kill()
                process.wait()


def _work() -> int:
    """Nanoseconds of processor time."""
    begun, total = time.thread_time_ns(), 0
    for number in range(_STEPS):
        total += number * number
    return time.thread_time_ns() - begun


def main() -> None:
    """Note until killed; the first of two times only fetches code and data into the caches."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    with Path(sys.argv[2]).open("wb", buffering=0) as file:
        while True:
            _work()
            file.write(_SAMPLE.pack(time.perf_counter(), _work()))
            time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
