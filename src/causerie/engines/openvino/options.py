"""Options of OpenVINO GenAI, and what is chosen for this machine where they say nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from causerie.engines.machine_part import WHOLE, MachinePart, allowed_cpus, quota
from causerie.engines.openvino.prefill import BLOCK
from causerie.engines.weights.footprint import Sized, kv_bytes_per_token, memory_bytes

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Those whose GGUF files OpenVINO GenAI reads."""
_DEFAULT_CONTEXT = 8_192
_SLOTS = 16
_KV_TYPE = "q8_0"  # as large as its own 8-bit type, nearly


@dataclass(frozen=True, slots=True)
class OpenVinoOptions:
    """Configured options; ``None`` is chosen for the machine."""

    context: int | None = None
    """In tokens, for one request."""
    parallel: int | None = None
    """Number of concurrent requests."""
    threads: int | None = None
    part: MachinePart = WHOLE
    """Part of the machine that its cores are taken from."""
    environment: tuple[str, ...] = ()
    """Names of further variables of the environment that the process gets."""


@dataclass(frozen=True, slots=True)
class OpenVinoLaunch:
    """Everything decided: what the child process is told (``memory`` in bytes)."""

    weights: str
    context: int
    parallel: int
    threads: int | None
    blocks: int
    """Blocks of the cache that all requests share."""
    divided: bool
    """Whether prompts are read in parts; see :mod:`.prefill`."""
    memory: int
    cpus: tuple[int, ...] | None
    """Hardware threads that the process stays on; ``None``: on any."""
    environment: tuple[str, ...] = ()
    """Names of further variables of the environment that the process gets."""


def for_machine(
    weights: Path,
    options: OpenVinoOptions,
    model: Sized,
    trained: int,
    memory: int,
    *,
    recurrent: bool = False,
) -> OpenVinoLaunch:
    """Return the options with everything chosen, on a machine with ``memory`` bytes.

    ``trained`` is the context that the ``model`` was trained for, 0 where nothing says it.
    Context: that, at most 8,192 tokens. Slots: 16; they share one cache, which holds a whole
    context of each, but takes no more than a quarter of the memory that the weights leave, and
    never less than one context; one context as well where nothing says what a token takes.
    Threads: OpenVINO's choice, but no more than the quotas of the control groups give.
    ``recurrent`` models keep a state for several blocks together, so parts would not be found.
    """
    cpus = options.part.cpus()
    longest = trained or options.context or _DEFAULT_CONTEXT
    context = min(options.context or _DEFAULT_CONTEXT, longest)
    parallel = options.parallel or _SLOTS
    each = kv_bytes_per_token(model, _KV_TYPE)
    room = max(memory - model.file_size, 0) // 4 // each if each else 0
    cached = max(min(context * parallel, room), context)
    return OpenVinoLaunch(
        weights=str(weights),
        context=context,
        parallel=parallel,
        threads=options.threads or _threads(options.part, cpus),
        blocks=-(-cached // BLOCK) + parallel,  # each request begins a block of its own
        divided=not recurrent,
        memory=memory_bytes(model, cached, _KV_TYPE),
        cpus=cpus,
        environment=options.environment,
    )


def _threads(part: MachinePart, cpus: tuple[int, ...] | None) -> int | None:
    """Return the number of threads; ``None`` leaves it to OpenVINO.

    OpenVINO sees which hardware threads the process may use, but no quota of a control group.
    """
    seen = len(cpus or allowed_cpus())
    given = quota(part=part)
    if given is not None and given < seen:
        return given
    return len(cpus) if cpus else None
