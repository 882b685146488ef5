"""A credential that a client sent, known inside by its digest alone."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from hashlib import sha256

from msgspec import Struct

KEY_HEADERS = ("authorization", "x-api-key", "api-key")
NO_SCHEME = "authorization without Bearer"
SEVERAL = "several"
_KEY = re.compile(r"ck_[A-Za-z0-9]{1,32}_[A-Za-z0-9]{43}", re.ASCII)


class Credential(Struct, frozen=True, gc=False):
    """A credential without its secret."""

    digest: bytes
    """SHA-256 of all of it."""
    formed: bool = False
    """It has the form of a key of accounts."""
    header: str = "authorization"
    """Header that it came in, or why what came is no credential."""

    @staticmethod
    def of(text: str, header: str = "authorization") -> Credential:
        digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
        return Credential(digest, _KEY.fullmatch(text) is not None, header)


def sent_credential(
    headers: MutableMapping[str, str], more: Sequence[str] = ()
) -> Credential | None:
    """Take the credential out of the headers of a request (lower-case names); ``None`` if none.

    It is a bearer token (RFC 6750, 2.1), or the value of ``x-api-key`` or ``api-key``; ``more`` are
    values of these headers that came in addition. Two that differ are no credential of anybody.
    """
    token = bearer(headers.pop("authorization", ""))
    if not more and "x-api-key" not in headers and "api-key" not in headers:
        return token
    found = [] if token is None else [token]
    for name in KEY_HEADERS[1:]:
        key = headers.pop(name, "").strip()
        if key:
            found.append(Credential.of(key, name))
    found += [Credential.of(value) for value in more]
    keys = [each for each in found if each.header != NO_SCHEME] or found
    if len({each.digest for each in keys}) > 1:
        return Credential(b"", header=SEVERAL)
    return keys[0] if keys else None


def bearer(authorization: str) -> Credential | None:
    """Return the bearer token of an Authorization header, or what stands for a missing one."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if token and scheme.lower() == "bearer":
        return Credential.of(token)
    return Credential(b"", header=NO_SCHEME) if authorization.strip() else None
