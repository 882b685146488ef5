"""Time-based one-time passwords: RFC 6238 with the values that every app has.

SHA-1, 30 seconds, six digits. A code is good for its own step and the one
before and after, and only once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote, urlencode

_STEP_SECONDS = 30
_DIGITS = 6
_SECRET_BYTES = 20  # RFC 4226, section 4: 160 bits
_DRIFT = (0, -1, 1)
RECOVERY_CODES = 10


@dataclass(frozen=True, slots=True)
class Authenticator:
    """A user's two-factor authentication; in force once it was confirmed with a code."""

    user_id: str
    secret: str = field(repr=False)
    confirmed_at: datetime | None = None
    last_step: int = 0


def new_secret() -> str:
    """A secret as apps take it, in base 32."""
    return base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def code_at(secret: str, step: int) -> str:
    """The code of one step (RFC 4226, section 5.3)."""
    try:
        key = base64.b32decode(secret)
    except binascii.Error as failure:
        raise ValueError("the secret is not base 32") from failure
    mac = hmac.digest(key, struct.pack(">Q", step), hashlib.sha1)
    offset = mac[-1] & 0x0F
    number = struct.unpack(">I", mac[offset : offset + 4])[0] & 0x7FFF_FFFF
    return f"{number % 10**_DIGITS:0{_DIGITS}d}"


def step_of(secret: str, code: str, now: datetime) -> int | None:
    """The step that a code belongs to; ``None`` where it is none of now."""
    given = "".join(code.split()).encode("utf-8", "surrogatepass")
    current = int(now.timestamp()) // _STEP_SECONDS
    found = None
    for drift in _DRIFT:
        if hmac.compare_digest(code_at(secret, current + drift).encode(), given):
            found = current + drift
    return found


def address(secret: str, account: str, issuer: str) -> str:
    """The ``otpauth:`` address that apps read from a picture."""
    label = quote(f"{issuer}:{account}")
    return (
        f"otpauth://totp/{label}?{urlencode({'secret': secret, 'issuer': issuer}, quote_via=quote)}"
    )


def new_recovery_codes() -> list[str]:
    """Codes to get in with when the app is gone, each once."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return [
        "-".join("".join(secrets.choice(alphabet) for _ in range(5)) for _ in range(3))
        for _ in range(RECOVERY_CODES)
    ]
