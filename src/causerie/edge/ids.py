"""Identifiers of requests and completions."""

from __future__ import annotations

import random
import re
import secrets

_SAFE = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}", re.ASCII)


_sampling = random.Random(secrets.randbits(256)).getrandbits


def token() -> str:
    """128 random bits, as letters and digits of hexadecimal; unique, and no secret."""
    return _sampling(128).to_bytes(16).hex()


def taken_over(header: str) -> str | None:
    """The caller's own request id, where it is up to 128 safe characters."""
    return header if header and _SAFE.fullmatch(header) else None
