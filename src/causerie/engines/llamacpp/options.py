"""How llama.cpp is run: what was asked for, and what the machine suggests for the rest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from causerie.engines.weights.footprint import kv_bytes_per_token, memory_bytes
from causerie.engines.weights.gguf import Header

_DEFAULT_CONTEXT = 8192
_SLOTS = (8, 4, 2, 1)
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class LlamaCppOptions:
    """What the configuration says; ``None`` is chosen from the machine.

    ``context`` is in tokens and for one request, ``batch`` in tokens;
    ``parallel`` counts requests at the same time; ``lora`` and ``draft`` are
    files.
    """

    context: int | None = None
    parallel: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    kv_type: str | None = None
    flash_attention: bool | None = None
    batch: int | None = None
    lora: tuple[str, ...] = ()
    draft: str | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything decided: what the child process is told (``memory`` in bytes)."""

    weights: str
    context: int
    parallel: int
    threads: int
    gpu_layers: int | None
    kv_type: str
    flash_attention: bool | None
    batch: int | None
    lora: tuple[str, ...]
    draft: str | None
    memory: int


def for_machine(weights: Path, options: LlamaCppOptions, header: Header) -> Launch:
    """The options with everything chosen.

    Context: what the model was trained for, at most 8,192 tokens. Slots: as
    many of 8, 4, 2 or 1 as keep the key-value cache within a quarter of the
    memory that the weights leave. Threads: the cores this process may use.
    """
    kv_type = options.kv_type or "f16"
    context = options.context or min(header.context_length or _DEFAULT_CONTEXT, _DEFAULT_CONTEXT)
    room = max(available_memory() - header.file_size, 0) // 4
    each = context * kv_bytes_per_token(header, kv_type)
    parallel = options.parallel or next((n for n in _SLOTS if n * each <= room), 1)
    return Launch(
        weights=str(weights),
        context=context,
        parallel=parallel,
        threads=options.threads or len(os.sched_getaffinity(0)),
        gpu_layers=options.gpu_layers,
        kv_type=kv_type,
        flash_attention=options.flash_attention,
        batch=options.batch,
        lora=options.lora,
        draft=options.draft,
        memory=memory_bytes(header, context * parallel, kv_type),
    )


def available_memory() -> int:
    """Bytes that this process may use: the machine's, or its control group's if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CGROUP_LIMITS:
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total
