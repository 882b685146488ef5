"""Cores and memory that a model takes of a machine, within control groups and parts.

A limit of any control group of this process bounds it: a service of systemd, for example, has
its limits in its own group, and not in the root of the tree.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causerie.engines.weights.folder import ModelFolder
    from causerie.engines.weights.gguf import Header

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_UNIFIED = "0::/"


def own_groups() -> tuple[Path, ...]:
    """Return the folders of the process's control group and of its parents, the root last."""
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        return (_ROOT,)
    paths = [line.removeprefix(_UNIFIED) for line in lines if line.startswith(_UNIFIED)]
    folder = _ROOT / paths[0] if paths and ".." not in paths[0] else _ROOT
    around = [folder, *folder.parents]
    return tuple(around[: around.index(_ROOT) + 1])


def group_number(file: Path) -> int | None:
    """Return the number in a control group's file; ``None`` without the file or a limit."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class MachinePart:
    """One of ``of`` equal parts of the machine, numbered from 0; by default all of the machine."""

    number: int = 0
    of: int = 1
    devices: str | None = None  # that it sees, as `CUDA_VISIBLE_DEVICES`; `None` for all

    def cpus(self) -> tuple[int, ...] | None:
        """Return the hardware threads of this part, or ``None`` where it has none of its own.

        The whole machine has none, nor has a part of fewer cores than there are parts. A part has
        whole cores, which lie on one memory node where the numbers allow it.
        """
        if self.of == 1:
            return None
        cores: dict[tuple[str, str], list[int]] = {}
        for cpu in sorted(allowed_cpus()):
            node = next((one.name for one in (_CPUS / f"cpu{cpu}").glob("node*")), "")
            lowest = _read_thread_siblings_text(cpu).replace("-", ",").partition(",")[0]
            cores.setdefault((node.zfill(12), lowest.zfill(8)), []).append(cpu)
        if len(cores) < self.of:
            return None
        first, end = (len(cores) * at // self.of for at in (self.number, self.number + 1))
        return tuple(cpu for core in sorted(cores)[first:end] for cpu in cores[core])


WHOLE = MachinePart()


def allowed_cpus() -> Collection[int]:
    affinity = getattr(os, "sched_getaffinity", None)
    return affinity(0) if affinity else range(os.cpu_count() or 1)


def cores(part: MachinePart = WHOLE) -> int:
    """Return the number of cores that a process with this part may use, at least one.

    The affinity and the quotas of the control groups count, and of two hardware threads on
    one core only one, for they would wait for each other; but up to four all.
    """
    own = part.cpus()
    allowed = allowed_cpus() if own is None else own
    count = max(len(set(map(_read_thread_siblings_text, allowed))), min(len(allowed), 4))
    if own is None:
        count = max(count // part.of, 1)
    return min(count, quota(part) or count)


def quota(part: MachinePart = WHOLE) -> int | None:
    """Return a part's cores by the control groups' quota, at least one; ``None`` without quota."""
    found = []
    for folder in own_groups():
        with suppress(OSError, ValueError):
            limit, period = (folder / "cpu.max").read_text().split()
            if limit.isdigit():
                found.append(max(int(limit) // int(period), 1))
    return max(min(found) // part.of, 1) if found else None


def _read_thread_siblings_text(cpu: int) -> str:
    try:
        return (_CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


# Bytes an element; quantised kinds keep 32 elements in a block with its scale.
KV_TYPES: Mapping[str, float] = {
    "f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32,
    "q4_1": 20 / 32, "q4_0": 18 / 32, "iq4_nl": 18 / 32,
}  # fmt: skip
_LOGITS_ROWS = 512  # tokens computed at once, each with a row of logits


def kv_bytes_per_token(model: Header | ModelFolder, kv_type: str = "f16") -> int:
    """Return the bytes of key-value cache that one token needs over all layers.

    An upper bound for models with sliding windows. Raises ``ValueError`` for an
    unknown ``kv_type``, naming those known.
    """
    if kv_type not in KV_TYPES:
        raise ValueError(f"kv_type {kv_type!r} is unknown; known are {', '.join(KV_TYPES)}")
    return round(model.kept_elements * KV_TYPES[kv_type])


def model_memory_bytes(model: Header | ModelFolder, context: int, kv_type: str = "f16") -> int:
    """Return the bytes that the model needs for ``context`` tokens over all its slots."""
    buffers = _LOGITS_ROWS * 4 * (model.vocabulary_size + 8 * model.embedding_length)
    return model.file_size + context * kv_bytes_per_token(model, kv_type) + buffers
