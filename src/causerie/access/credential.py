"""A credential that a client sent, known inside by its digest alone."""

from __future__ import annotations

import re
from hashlib import sha256

from msgspec import Struct

_KEY = re.compile(r"ck_[A-Za-z0-9]{1,32}_[A-Za-z0-9]{43}", re.ASCII)


class Credential(Struct, frozen=True, gc=False):
    """A credential without its secret."""

    digest: bytes
    """SHA-256 of all of it."""
    formed: bool = False
    """It has the form of a key of accounts."""

    @staticmethod
    def of(text: str) -> Credential:
        digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
        return Credential(digest, _KEY.fullmatch(text) is not None)


def bearer(authorization: str) -> Credential | None:
    """Return the bearer token of an Authorization header (RFC 6750, 2.1), or ``None``."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    return Credential.of(token) if token and scheme.lower() == "bearer" else None
