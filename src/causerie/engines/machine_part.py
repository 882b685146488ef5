"""Part of a machine that one of several processes of a model has."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class MachinePart:
    """One of ``of`` equal parts; ``number`` counts from 0. The whole, unless it says otherwise."""

    number: int = 0
    of: int = 1
    devices: str | None = None
    """Devices that the process sees, as ``CUDA_VISIBLE_DEVICES``; ``None`` for all."""

    def cpus(
        self, allowed: Collection[int] | None = None, folder: Path = _CPUS
    ) -> tuple[int, ...] | None:
        """Return the hardware threads of this part, or ``None`` where it has none of its own.

        The whole machine has none, nor has a part of fewer cores than there are parts. A part has
        whole cores, which lie on one memory node where the numbers allow it. ``allowed`` are the
        hardware threads that all parts have together: by default those of this process.
        """
        if self.of == 1:
            return None
        cores: dict[tuple[str, str], list[int]] = {}
        for cpu in sorted(allowed_cpus() if allowed is None else allowed):
            cores.setdefault(_core(folder / f"cpu{cpu}", cpu), []).append(cpu)
        if len(cores) < self.of:
            return None
        first, end = (len(cores) * at // self.of for at in (self.number, self.number + 1))
        return tuple(cpu for core in sorted(cores)[first:end] for cpu in cores[core])


WHOLE = MachinePart()


def allowed_cpus() -> Collection[int]:
    """Return the hardware threads that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return affinity(0) if affinity else range(os.cpu_count() or 1)


def stay_on(cpus: Collection[int] | None) -> None:
    """Let this process use only these hardware threads, where the system can do that."""
    if cpus is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)


def _core(folder: Path, cpu: int) -> tuple[str, str]:
    """Return names of the memory node and of the core of a hardware thread, which sort."""
    node = next((one.name for one in folder.glob("node*")), "")
    try:
        first = (folder / "topology/thread_siblings_list").read_text().strip()
    except OSError:
        first = str(cpu)
    lowest = first.replace("-", ",").partition(",")[0]
    return node.zfill(12), lowest.zfill(8)
