"""Options of a llama.cpp process: configured values, and defaults chosen from the machine.

Also says whether a model fits into the memory of this machine, before it is loaded.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from causerie.engines.llamacpp.slots import can_store_prompts, free_memory
from causerie.engines.machine import (
    WHOLE,
    MachinePart,
    cores,
    group_number,
    kv_bytes_per_token,
    model_memory_bytes,
    own_groups,
)
from causerie.engines.options import LlamaCpp
from causerie.engines.weights.gguf import (
    Header,
    check_projector,
    projector_beside,
    reads_images_whole,
    smaller_that_fits,
)

_CONTEXT_STEP = 256  # the engine rounds a context to multiples of it
_LEAST_TOLD_CONTEXT = 1024  # a smaller context is not worth proposing
_GPUS = tuple(map(Path, ("/dev/nvidiactl", "/dev/kfd", "/dev/dri/renderD128")))


@dataclass(frozen=True, slots=True)
class Need:
    """Memory that a model needs with a cache of ``cache_tokens``."""

    header: Header
    cache_tokens: int
    kv_type: str
    memory: int

    def refusal(self, room: int) -> str:
        """Return the words that a model cannot fit into ``room`` bytes, and what would fit."""
        needs = f"needs about {_format_size(self.memory)} for its weights and a cache of "
        rest = f"and this machine has {_format_size(room)}; {self.advice(room)}"
        return f"{needs}{self.cache_tokens:,} tokens, {rest}"

    def advice(self, room: int) -> str:
        """Return the end of a sentence: what would fit into ``room`` bytes."""
        context = largest_context(self.header, self.kv_type, room)
        if context >= _LEAST_TOLD_CONTEXT:
            return f"a context of {context:,} tokens would fit"
        header = self.header
        left = room - (self.memory - header.file_size)
        found = smaller_that_fits(header.quantization, header.file_size, left)
        if found is None:
            return "take a smaller model"
        name, size = found
        return f"its quantization {name} would fit, with about {_format_size(size)} of weights"


def free_now(total: int) -> int:
    """Return the free bytes of this machine, or ``total`` where the system does not say."""
    try:
        return free_memory()
    except OSError:
        return total


def largest_context(header: Header, kv_type: str, room: int) -> int:
    """Return the most tokens that one request may have where a model gets ``room`` bytes.

    At most the length that the model was trained for; 0 where not even the weights fit.
    """
    most = _count_fitting_tokens(header, kv_type, room)
    return min(most, header.context_length or most)


# At most the multiple that the engine rounds to; 0 where not even the weights fit.
def _count_fitting_tokens(header: Header, kv_type: str, room_bytes: int) -> int:
    left = max(room_bytes - model_memory_bytes(header, 0, kv_type), 0)
    each = max(kv_bytes_per_token(header, kv_type), 1)  # some models keep nothing of a token
    return left // each // _CONTEXT_STEP * _CONTEXT_STEP


def has_gpu() -> bool:
    return sys.platform == "darwin" or any(device.exists() for device in _GPUS)


def _format_size(byte_count: int) -> str:
    return f"{byte_count / 1e9:.1f} GB" if byte_count >= 1e9 else f"{byte_count / 1e6:.0f} MB"


_SURE_CONTEXT = 8192  # has room in the cache of each slot, where the memory holds that
_LARGEST_USUAL_CONTEXT = 131_072  # the cache of a longer one is made when it is asked for
_EMBEDDED_TEXT = 2048  # tokens, which are all read in one step
_LEAST_CONTEXT = 256
_BATCH_SECONDS = 0.2
_BATCH_STEP = 64
_MOST_BATCH = 512
_CORE_SECONDS_PER_GB = 0.06  # of weights, for a token of a prompt
_SLOTS, _SLOTS_OF_FEW_CORES, _FEW_CORES = 8, 4, 4
# Tokens proposed at a time, by a draft model and by repetition. The engine aborts if a batch
# cannot hold those of all slots, each behind the token that the slot drew itself.
_DRAFTED = 3
_REPEATED = 12
_OLD_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of version 1
# Of the memory that weights and stored prompts leave, the cache takes one in so many. A GPU has
# less memory than its machine, and what does not fit there is computed more slowly.
_SHARE, _SHARE_BESIDE_GPU = 2, 4
_MEMORY_GUESS = 8 * 2**30
_MOST_PROMPT_CACHE = 8 * 2**30


class LlamaCppOptions(LlamaCpp, frozen=True, kw_only=True):
    """Configured options of one llama.cpp process, and what the service adds to them."""

    embeddings: bool = False  # the model makes vectors of texts, and generates nothing
    part: MachinePart = WHOLE  # part of the machine that cores, memory and devices are taken from
    spare: int = 0  # bytes that are not free, and will be when the model loads

    @property
    def alongside(self) -> tuple[Path, ...]:
        """Return the files that are loaded besides the weights."""
        return tuple(Path(name) for name in (*self.lora, self.draft, self.mmproj) if name)


def with_projector(options: LlamaCppOptions, header: Header) -> LlamaCppOptions:
    """Return the options with the projector beside the weights, unless one is named. Blocks.

    Raises :class:`NotGguf` for a named file that is no projector for images.
    """
    if options.embeddings or not options.images:
        return structs.replace(options, mmproj=None)
    if options.mmproj is not None:
        check_projector(Path(options.mmproj))
        return options
    found = projector_beside(header)
    return options if found is None else structs.replace(options, mmproj=str(found))


@dataclass(frozen=True, slots=True)
class Launch:
    """The decided options with which a llama.cpp process is started; ``memory`` is in bytes."""

    weights: str
    options: LlamaCppOptions  # for what nothing here is decided instead
    context: int
    parallel: int
    cache_tokens: int  # of all slots together
    threads: int
    kv_type: str
    batch: int | None
    cpu_batch: int
    token_seconds: float  # time in which a token of a prompt is expected to be read
    cuts_back: bool  # whether the state of a prompt can be cut back to any of its tokens
    drafted: int  # tokens that a draft model, or repetition, proposes at a time
    prompt_cache_bytes: int
    memory: int
    cpus: tuple[int, ...] | None  # hardware threads that the process stays on; `None`: on any

    @property
    def files(self) -> str:
        """Return the paths of all loaded files for errors: the engine does not say which failed."""
        alongside = ", ".join(map(str, self.options.alongside))
        return f"{self.weights} with {alongside}" if alongside else self.weights


def for_machine(weights: Path, options: LlamaCppOptions, header: Header) -> Launch:
    """Return the options of a launch, with what is unset chosen for this machine and model.

    No batch is smaller than what all slots generate in one step, proposed tokens included. An
    embedding model reads a whole text at once, and one text at a time: beside others the engine
    computes other numbers. Raises :class:`OSError` where a file cannot be read.
    """
    kv_type = options.kv_type or "f16"
    threads = options.threads or cores(options.part)
    context, parallel, cache_tokens = _choose_context_slots_cache_tokens(options, header, kv_type)
    drafted = _DRAFTED if options.draft else _REPEATED if options.speculation == "ngram" else 0
    step = parallel * (1 + drafted)
    token_seconds = header.file_size / 1e9 * _CORE_SECONDS_PER_GB / threads
    # As many tokens as are expected to take 0.2 s, for nothing else happens meanwhile: a client
    # that has gone is noticed after two batches. The kernels are as fast with 64 as with the
    # engine's own 512, and with 32 they need a third more time.
    in_time = int(_BATCH_SECONDS / token_seconds) // _BATCH_STEP * _BATCH_STEP
    cpu_batch = min(max(in_time, _BATCH_STEP), _MOST_BATCH)
    if options.mmproj is not None and reads_images_whole(Path(options.mmproj)):
        cpu_batch = _MOST_BATCH
    return Launch(
        weights=str(weights),
        options=options,
        context=context,
        parallel=parallel,
        cache_tokens=cache_tokens,
        threads=threads,
        kv_type=kv_type,
        batch=context if options.embeddings else options.batch and max(options.batch, step),
        cpu_batch=max(cpu_batch, 2 * parallel, step),
        token_seconds=token_seconds,
        cuts_back=header.cuts_back,
        drafted=drafted,
        prompt_cache_bytes=_prompt_cache_bytes(options),
        memory=model_memory_bytes(header, cache_tokens, kv_type)
        + sum(file.stat().st_size for file in options.alongside if file.exists()),
        cpus=options.part.cpus(),
    )


def _choose_context_slots_cache_tokens(
    options: LlamaCppOptions, header: Header, kv_type: str
) -> tuple[int, int, int]:
    # The tokens of one request, the number of slots, and the tokens of all together; the rules are
    # in `docs/reference/engines.md`. One of several processes has fewer slots instead of a shared
    # cache, since nobody counts the tokens of each.
    few = cores(options.part) <= _FEW_CORES
    parallel = options.parallel or (
        1 if options.embeddings else _SLOTS_OF_FEW_CORES if few else _SLOTS
    )
    total, prompts, parts = available_memory(), _prompt_cache_bytes(options), options.part.of
    free = min(free_now(total) + options.spare, total)
    room = max(free * 9 // 10 - prompts * parts, 0) // parts  # a tenth stays free
    usual = _EMBEDDED_TEXT if options.embeddings else _SURE_CONTEXT
    trained = header.context_length or usual
    if options.context == "auto":
        context, least = trained, _LEAST_CONTEXT
    else:
        context = least = options.context or min(trained, usual)
        weights = model_memory_bytes(header, 0, kv_type)
        gpu = options.gpu_layers != 0 and has_gpu()
        share = _SHARE_BESIDE_GPU if gpu else _SHARE
        room = min(room, weights + (total // parts - prompts - weights) // share)
    fitting = _count_fitting_tokens(header, kv_type, room)
    if parts > 1:
        parallel = max(min(parallel, fitting // context), 1)
    most = context * parallel
    if options.context is None and not options.embeddings and parts == 1:
        # One request may have the whole cache, which others share with it.
        largest = options.cache_tokens or max(most, _LARGEST_USUAL_CONTEXT)
        context = max(context, min(trained, fitting, largest))
        most = max(most, context)
    wanted = options.cache_tokens or max(fitting, least)
    cache_tokens = min(wanted, most)
    return min(context, cache_tokens), parallel, cache_tokens


def _prompt_cache_bytes(options: LlamaCppOptions) -> int:
    if options.draft or options.embeddings or not can_store_prompts():
        return 0
    if options.prompt_cache_bytes is not None:
        return options.prompt_cache_bytes
    return min(available_memory() // options.part.of // 8, _MOST_PROMPT_CACHE)


def available_memory() -> int:
    """Return the bytes this process may use: the machine's or its control groups', if less."""
    files = [*(group / "memory.max" for group in own_groups()), _OLD_MEMORY_LIMIT]
    limits = [limit for file in files if (limit := group_number(file)) is not None]
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        machine = _MEMORY_GUESS
    return min([machine, *limits])
