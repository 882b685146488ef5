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
