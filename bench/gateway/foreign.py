"""How much of the machine others use meanwhile: figures by the clock are worth nothing then."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def busy_seconds(cores: Iterable[int]) -> float:
    """What these cores have worked until now, for whomever."""
    wanted = {f"cpu{core}" for core in cores}
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in wanted:
            user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / _TICKS


def own_seconds(running: Iterable[Callable[[], float]]) -> float:
    """What this process, those it has waited for, and those that still run have used."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total + sum(used() for used in running)
