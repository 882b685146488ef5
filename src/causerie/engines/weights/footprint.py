"""Estimate of a model's memory: weights, key-value cache, working buffers.

The estimates serve a memory budget and use only what the files say of the model; the engine
reports the actual use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

# Bytes an element; quantised kinds keep 32 elements in a block with its scale.
KV_TYPES: Mapping[str, float] = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
_BATCH = 512  # tokens computed at once, each with a row of logits


class Sized(Protocol):
    """Sizes that decide the memory of a model; a file's header or a folder has them."""

    @property
    def file_size(self) -> int:
        """Return the size of the weights, in bytes."""
        ...

    @property
    def kept_elements(self) -> int:
        """Return the elements of the key-value cache that a token has over all layers."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Return the number of tokens that there are."""
        ...

    @property
    def embedding_length(self) -> int:
        """Return the elements of one vector between two layers."""
        ...


def kv_bytes_per_token(model: Sized, kv_type: str = "f16") -> int:
    """Return the bytes of key-value cache that one token needs over all layers.

    An upper bound for models with sliding windows. Raises ``ValueError`` for an
    unknown ``kv_type``, naming those known.
    """
    if kv_type not in KV_TYPES:
        raise ValueError(f"kv_type {kv_type!r} is unknown; known are {', '.join(KV_TYPES)}")
    return round(model.kept_elements * KV_TYPES[kv_type])


def memory_bytes(model: Sized, context: int, kv_type: str = "f16") -> int:
    """Return the bytes that the model needs for ``context`` tokens over all its slots."""
    buffers = _BATCH * 4 * (model.vocabulary_size + 8 * model.embedding_length)
    return model.file_size + context * kv_bytes_per_token(model, kv_type) + buffers
