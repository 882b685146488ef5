"""Use of the machine by others: it makes figures by the clock worthless."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def busy_seconds(cores: Iterable[int]) -> float:
    """Return the time for which these cores have worked until now, for anybody."""
    return sum(sum(each.values()) for each in _ticks(cores)) / _TICKS


def stolen_seconds(cores: Iterable[int]) -> float:
    """Return the time for which these cores were ready and the host gave them to others."""
    return sum(each["steal"] for each in _ticks(cores)) / _TICKS


def _ticks(cores: Iterable[int]) -> Iterator[dict[str, int]]:
    """All that a core did but wait, by the names of proc(5)."""
    wanted = {f"cpu{core}" for core in cores}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in wanted:
            ticks = dict(zip(_KINDS, map(int, fields), strict=False))
            yield {kind: count for kind, count in ticks.items() if kind not in ("idle", "iowait")}


def own_seconds(running: Iterable[Callable[[], float]]) -> float:
    """Return the processor time of this process, its ended children, and those that still run."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total + sum(used() for used in running)
