"""Names of quantizations: by the number in a GGUF file, or by the name of the file."""

from __future__ import annotations

import re
from collections.abc import Mapping

# `general.file_type` of a GGUF file, as llama.cpp numbers its types.
_FILE_TYPES: Mapping[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
_IN_NAME = re.compile(
    r"(?<![a-z0-9])(i?q[1-8]_(?:[0-9]|k|[xsmln]+)(?:_[sml]|_xl)?|bf16|f16|f32|mxfp4|tq[12]_0)"
    r"(?![a-z0-9_])",
    re.IGNORECASE,
)


def of_file_type(number: int | None) -> str | None:
    """Return the name of a GGUF file's type, or ``None`` if it is not known."""
    return None if number is None else _FILE_TYPES.get(number)


def of_file_name(name: str) -> str | None:
    """Return the quantization that a file's name ends with, or ``None``."""
    found = _IN_NAME.findall(name)
    return found[-1].upper() if found else None


# Bits that one weight takes in a whole file: its blocks with their scales, and tensors that are
# kept more exactly. Estimates; of small models, whose vocabularies weigh more, they are too low.
_BITS: Mapping[str, float] = {
    "F32": 32.0, "F16": 16.0, "BF16": 16.0, "Q8_0": 8.5, "Q6_K": 6.6, "Q5_K_M": 5.7, "Q5_K_S": 5.5,
    "Q5_1": 6.0, "Q5_0": 5.6, "Q4_1": 5.1, "Q4_K_M": 4.9, "Q4_K_S": 4.6, "Q4_0": 4.6, "IQ4_NL": 4.6,
    "MXFP4": 4.5, "IQ4_XS": 4.4, "Q3_K_L": 4.3, "Q3_K_M": 3.9, "Q3_K_S": 3.5, "Q2_K": 3.3,
}  # fmt: skip
_USUAL = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")  # what most repositories have


def smaller_that_fits(name: str | None, size: int, room: int) -> tuple[str, int] | None:
    """Return the largest usual quantization of the model that fits into ``room`` bytes.

    The model has ``size`` bytes in the quantization ``name``. The result has the estimated bytes;
    ``None`` where nothing smaller fits, or ``name`` is not known.
    """
    bits = _BITS.get(name or "")
    if bits is None:
        return None
    estimates = ((one, round(size * _BITS[one] / bits)) for one in _USUAL if _BITS[one] < bits)
    return next((found for found in estimates if found[1] <= room), None)
