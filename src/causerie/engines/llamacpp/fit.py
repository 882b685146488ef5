"""Does a model fit into the memory of this machine? Answered before it is loaded.

All numbers are estimates from the header of the file, in bytes. With a GPU an unknown part of a
model is elsewhere: then nothing is refused.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from causerie.engines.llamacpp.prompt_store import free_memory
from causerie.engines.weights.footprint import kv_bytes_per_token, memory_bytes
from causerie.engines.weights.gguf import Header
from causerie.engines.weights.quantization import of_file_name, of_file_type, smaller_that_fits

_STEP = 256  # the engine rounds a context to multiples of it
_TOLD = 1024  # a smaller context is not worth proposing
_LEFT_FREE = 10  # percent of the free memory
_GPUS = tuple(map(Path, ("/dev/nvidiactl", "/dev/kfd", "/dev/dri/renderD128")))


@dataclass(frozen=True, slots=True)
class Need:
    """Memory that a model needs with a cache of ``cache_tokens``."""

    header: Header
    cache_tokens: int
    kv_type: str
    memory: int

    def __str__(self) -> str:
        cache = f"a cache of {self.cache_tokens:,} tokens"
        return f"needs about {_size(self.memory)} for its weights and {cache}"

    def refusal(self, room: int) -> str:
        """Return that it cannot fit into ``room`` bytes of this machine, and what would."""
        return f"{self}, and this machine has {_size(room)}; {self.advice(room)}"

    def advice(self, room: int) -> str:
        """Return what would fit into ``room`` bytes, for the end of a sentence."""
        context = largest_context(self.header, self.kv_type, room)
        if context >= _TOLD:
            return f"a context of {context:,} tokens would fit"
        name = of_file_type(self.header.file_type) or of_file_name(self.header.path.stem)
        left = room - (self.memory - self.header.file_size)
        found = smaller_that_fits(name, self.header.file_size, left)
        if found is None:
            return "take a smaller model"
        return f"its quantization {found[0]} would fit, with about {_size(found[1])} of weights"


def room_for_context(prompt_cache: int, total: int) -> int:
    """Return the bytes that a model may take now, next to ``prompt_cache`` bytes for prompts."""
    return max(free_now(total) * (100 - _LEFT_FREE) // 100 - prompt_cache, 0)


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
    most = fitting_tokens(header, kv_type, room)
    return min(most, header.context_length or most)


def fitting_tokens(header: Header, kv_type: str, room: int) -> int:
    """Return how many tokens a cache can hold next to the weights in ``room`` bytes.

    A multiple of what the engine rounds to; 0 where not even the weights fit.
    """
    left = max(room - memory_bytes(header, 0, kv_type), 0)
    each = max(kv_bytes_per_token(header, kv_type), 1)  # some models keep nothing of a token
    return left // each // _STEP * _STEP


def has_gpu() -> bool:
    """Return whether this machine seems to have a GPU that the engine could use."""
    return sys.platform == "darwin" or any(device.exists() for device in _GPUS)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
