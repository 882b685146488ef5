"""Weights that the engine reads slowly on this machine, and the place of their faster form.

The engine has kernels that read many rows at once for some types of numbers, and computes with
the others row by row. A file is converted once; the copy lies in the cache of weights.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from causerie.engines.llamacpp.cpu import has_fast_q8_0
from causerie.engines.weights.gguf import parts
from causerie.engines.weights.metadata import MetadataFile, Tensor

Requantize = Literal["auto", "q8_0", "off"]

BLOCK = 32
"""Elements that share a scale, in every type here."""
Q8_0_BYTES = 34
"""Bytes of a block of the type that is written."""
# With larger files the time of a token is that of reading them from memory, and Q8_0 is larger.
_MOST_AUTOMATIC = 256 * 2**20


@dataclass(frozen=True, slots=True)
class SlowType:
    """A type of numbers that is read slowly."""

    name: str
    block_bytes: int
    """Of :data:`BLOCK` elements."""
    slowness: float
    """Time that a prompt takes, by that with Q8_0. See `docs/guides/engines.md`."""


SLOW_TYPES: Mapping[int, SlowType] = {
    3: SlowType("Q4_1", 20, 1.6),
    6: SlowType("Q5_0", 22, 1.35),
    7: SlowType("Q5_1", 24, 1.8),
}
"""By the numbers of GGUF."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A copy in Q8_0 of the slow tensors of a model."""

    folder: Path
    """Of the copies, which have the names of the model's files."""
    size: int
    """Of all copies, in bytes."""
    required: bool
    """Without it the model is not to be loaded."""


@dataclass(frozen=True, slots=True)
class SlowWeights:
    """The slow types in a model's files."""

    names: str
    """Of the types."""
    gain: float
    """How many times as fast a prompt is read in Q8_0, about."""
    converted_size: int
    """Bytes of all files with those types in Q8_0."""


def slow_weights(path: Path) -> SlowWeights | None:
    """Return what is slow in the model at ``path``; ``None`` where nothing is worth a change.

    Raises :class:`NotGguf`, and :class:`OSError` for a file that cannot be read.
    """
    size = grown = elements = 0
    time = 0.0
    found: dict[str, None] = {}
    for part in parts(path):
        with MetadataFile(part) as data:
            table = data.tensors()
        size += part.stat().st_size
        for tensor in table.tensors:
            slow = SLOW_TYPES.get(tensor.type)
            count = math.prod(tensor.shape)
            if slow is not None:
                found[slow.name] = None
                grown += count // BLOCK * (Q8_0_BYTES - slow.block_bytes)
            if _is_multiplied(tensor):
                elements += count
                time += count * (slow.slowness if slow is not None else 1.0)
    if not found:
        return None
    return SlowWeights(", ".join(found), time / max(elements, 1), size + grown)


def conversion(
    path: Path, slow: SlowWeights | None, wanted: Requantize, cache: Path | None
) -> Conversion | None:
    """Return the copy that is to be loaded in place of ``path``; ``None``: the file as it is.

    ``auto`` converts small models, where computing and not the memory's speed takes the time, on
    machines where the gain was measured. ``slow`` is what :func:`slow_weights` found; ``cache`` is
    the folder of all weights, without which nothing is converted. Raises :class:`OSError`.
    """
    if wanted == "off" or cache is None or slow is None:
        return None
    worth = slow.converted_size <= _MOST_AUTOMATIC and has_fast_q8_0()
    if wanted == "auto" and not worth:
        return None
    return Conversion(_folder(cache, path), slow.converted_size, wanted == "q8_0")


def copies(cache: Path, path: Path) -> Path:
    """Return the folder of every copy of the model file ``path``, as it is and as it was."""
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    return cache / "converted" / name


def _folder(cache: Path, path: Path) -> Path:
    facts = path.stat()
    return copies(cache, path) / f"{facts.st_size:x}-{facts.st_mtime_ns:x}"


def _is_multiplied(tensor: Tensor) -> bool:
    """Return whether every token of a prompt is multiplied with it."""
    tables = (b"token_embd.", b"output.")  # one row a token, and the last token alone
    return len(tensor.shape) > 1 and not tensor.name.startswith(tables)
