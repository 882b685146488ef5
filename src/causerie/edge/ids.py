"""Identifiers of requests and completions."""

from __future__ import annotations

import random
import re
import secrets

_SAFE = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}", re.ASCII)


_sampling = random.Random(secrets.randbits(256)).randbytes
_AT_ONCE = 64  # tokens, which costs a quarter of one after the other
_BYTES = 16
_drawn: list[str] = []


def token() -> str:
    """128 random bits, as letters and digits of hexadecimal; unique, and no secret."""
    if not _drawn:
        digits, size = _sampling(_AT_ONCE * _BYTES).hex(), 2 * _BYTES
        _drawn.extend([digits[at : at + size] for at in range(0, len(digits), size)])
    return _drawn.pop()


def taken_over(header: str) -> str | None:
    """The caller's own request id, where it is up to 128 safe characters."""
    return header if header and _SAFE.fullmatch(header) else None
