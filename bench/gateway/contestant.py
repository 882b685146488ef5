"""A contestant: an address to send load to, and the processes behind it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Contestant:
    """``pid`` is the root of its processes."""

    name: str
    root: str
    pid: int
    path: str = "/v1"
    key: str = "none"
    rewrites: bool = False  # whether `think-…` comes out under another field's name

    def cpu_seconds(self) -> float:
        """Return the processor time of its processes until now."""
        return sum(map(_cpu_seconds, _family(self.pid)))

    def megabytes(self) -> float:
        """Memory of its own: what all its processes hold, shared pages counted once."""
        kilobytes = 0
        for pid in _family(self.pid):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    kilobytes += int(line.split()[1])
        return kilobytes / 1024


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _family(int(child))
    return found


@contextmanager
def process(
    command: Sequence[str],
    log: Path,
    *,
    core: int | str,
    ready: str = "",
    seconds: float = 90,
    environ: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """A process on one core, or on several (``"0,1"``), until ``ready`` answers.

    It is stopped at the end. Yields its id.
    """
    with log.open("wb") as out:
        running = subprocess.Popen(
            ["taskset", "-c", str(core), *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **(environ or {})},
            start_new_session=True,
        )
    try:
        if ready:
            await_answer(ready, running, log, time.monotonic() + seconds)
        yield running.pid
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def await_answer(url: str, running: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    """Until the address answers anything; raises :class:`RuntimeError` with the log's end."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError:
            return
        except (urllib.error.URLError, OSError) as error:
            if running.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{error}\n{log.read_text()[-2000:]}") from error
        time.sleep(0.1)  # another process: there is nothing to await but its answer
