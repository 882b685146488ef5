"""Signatures of webhooks, by the Standard Webhooks specification (1.0): HMAC-SHA256, ``v1``."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

PREFIX = "whsec_"
_SHORTEST, _LONGEST = 24, 64  # bytes


def secret_bytes(secret: str) -> bytes:
    """Return the key of ``whsec_…``; raise :class:`ValueError`, which does not hold it."""
    if not secret.startswith(PREFIX):
        raise ValueError(f"does not begin with `{PREFIX}`")
    try:
        key = b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        raise ValueError(f"is not base64 behind `{PREFIX}`") from None
    if not _SHORTEST <= len(key) <= _LONGEST:
        raise ValueError(f"has {len(key)} bytes; a secret has {_SHORTEST} to {_LONGEST}")
    return key


def signature(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``; ``timestamp`` is in seconds since 1970."""
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return "v1," + b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
