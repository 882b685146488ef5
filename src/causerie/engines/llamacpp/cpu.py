"""Is a quantization fast on this machine's CPU? Known from the instructions that the CPU has."""

from __future__ import annotations

import platform
from pathlib import Path

_CPU = Path("/proc/cpuinfo")
_VECTORS = ("avx512f", "avx2", "asimddp", "i8mm", "amx_int8")  # x86 and ARM, as Linux names them
_NEEDED = {"x86_64": "avx2", "aarch64": "asimddp"}
_LARGE = {"F32", "F16", "BF16"}


def verdict(quantization: str | None, cpu: Path = _CPU, machine: str | None = None) -> str:
    """Return in one line whether weights of this type are read fast by the CPU, and why."""
    flags = _flags(cpu)
    if not flags:
        return "unknown: this system does not say what its CPU can do"
    has = ", ".join(name for name in _VECTORS if name in flags) or "none"
    needed = _NEEDED.get(machine or platform.machine())
    if needed is not None and needed not in flags:
        return f"slow: the CPU lacks {needed}; small models only"
    if quantization in _LARGE:
        return f"slow: {quantization} is not quantized, and each token reads all weights ({has})"
    if quantization is not None and quantization.startswith("IQ") and quantization != "IQ4_NL":
        return f"slow: {quantization} takes more computing than a Q type of its size ({has})"
    return f"fast ({has})"


def has_fast_q8_0(cpu: Path = _CPU, machine: str | None = None) -> bool:
    """Return whether Q8_0 was measured to be the fast type on CPUs like this one."""
    return (machine or platform.machine()) == "x86_64" and "avx2" in _flags(cpu)


def _flags(cpu: Path) -> frozenset[str]:
    try:
        lines = cpu.read_text().splitlines()
    except OSError:
        return frozenset()
    named = (line.partition(":") for line in lines)
    return frozenset(
        flag
        for name, _, flags in named
        if name.strip() in {"flags", "Features"}
        for flag in flags.split()
    )
