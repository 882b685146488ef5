"""One measurement: a load process against one contestant, and what it cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from gateway.contestant import Contestant

_HERE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Result:
    """Times in milliseconds, rates by the second, ``cpu`` in microseconds a reply (or a chunk).

    ``span`` is when it was measured, in seconds of ``perf_counter``.
    """

    rate: float
    count: int
    p50: float
    p99: float
    first_p50: float
    first_p99: float
    chunks: float
    cpu: float
    span: tuple[float, float]


class LoadFailed(Exception):
    """Replies were not what they should be; no figure is worth anything then."""


@dataclass(frozen=True, slots=True)
class Load:
    """One load: ``model`` is one of the mock's, ``count`` requests instead of seconds.

    With ``ids`` each request names itself, so that no two heads are the same. ``streamed`` is
    whether a stream is asked for; of the mock's own names it is known.
    """

    model: str
    connections: int
    seconds: float = 3.0
    count: int = 0
    spread: float = 0.0
    ids: bool = False
    streamed: bool | None = None

    def run(self, contestant: Contestant, core: int) -> Result:
        """Measure; raises :class:`LoadFailed`."""
        command = [sys.executable, "-m", "gateway.load", contestant.root, contestant.path]
        options = {
            "--key": contestant.key,
            "--connections": self.connections,
            "--seconds": self.seconds,
            "--count": self.count,
            "--spread": self.spread,
            "--core": core,
        }
        command += [self.model, *(str(each) for pair in options.items() for each in pair)]
        streamed = self.model != "plain" if self.streamed is None else self.streamed
        command += ["--stream"] * streamed + ["--ids"] * self.ids
        before, begun = contestant.cpu_seconds(), perf_counter()
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_HERE), *sys.path])},
            timeout=self.seconds + 60,
        )
        used, span = contestant.cpu_seconds() - before, (begun, perf_counter())
        if done.returncode:
            raise LoadFailed(f"{contestant.name}: {done.stderr.strip().splitlines()[-1]}")
        found = json.loads(done.stdout)
        if found.pop("errors"):
            raise LoadFailed(f"{contestant.name}, {self.model}: {done.stdout.strip()}")
        whole = self.seconds + (0 if self.count else 0.5)  # with the start that is not counted
        units = (found["chunks"] if streamed else found["rate"]) * whole
        return Result(**found, cpu=used / units * 1e6 if units else 0.0, span=span)
