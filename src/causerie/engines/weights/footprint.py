"""Estimate of a model's memory: weights, key-value cache, working buffers.

The estimates serve a memory budget and use only the file's header; the engine
reports the actual use.
"""

from __future__ import annotations

from collections.abc import Mapping

from causerie.engines.weights.gguf import Header

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


def kv_bytes_per_token(header: Header, kv_type: str = "f16") -> int:
    """Return the bytes of key-value cache that one token needs over all layers.

    An upper bound for models with sliding windows. Raises ``ValueError`` for an
    unknown ``kv_type``, naming those known.
    """
    if kv_type not in KV_TYPES:
        raise ValueError(f"kv_type {kv_type!r} is unknown; known are {', '.join(KV_TYPES)}")
    if header.latent_length:
        elements = header.latent_length * header.block_count
    else:
        elements = sum(header.head_count_kv) * (header.key_length + header.value_length)
    return round(elements * KV_TYPES[kv_type])


def memory_bytes(header: Header, context: int, kv_type: str = "f16") -> int:
    """Return the bytes that the model needs for ``context`` tokens over all its slots."""
    buffers = _BATCH * 4 * (header.vocabulary_size + 8 * header.embedding_length)
    return header.file_size + context * kv_bytes_per_token(header, kv_type) + buffers
