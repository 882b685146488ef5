"""Authentication: match a credential against the key digests in a door's configuration.

Keys themselves are never held, only their SHA-256. Nothing is known here of
requests or of what a caller may do once inside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Protocol

from msgspec import Struct

from causerie.access.credential import NO_SCHEME, SEVERAL, Credential
from causerie.errors import Unauthenticated

_LINE = re.compile(r"(?:([A-Za-z0-9_-]{1,64}):)?([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeyDigest:
    """A key as the configuration holds it: its public name and the SHA-256 of all of it."""

    id: str
    digest: bytes

    @staticmethod
    def parse(line: str) -> KeyDigest:
        """From ``ID:HEX`` or ``HEX``, whose first digits are the name then.

        Raises :class:`ValueError` for anything else.
        """
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError("a key digest is written ID:SHA256, the latter as 64 hex digits")
        return KeyDigest(match[1] or match[2][:8], bytes.fromhex(match[2]))

    @staticmethod
    def of(id: str, key: str) -> KeyDigest:
        return KeyDigest(id, Credential.of(key).digest)


class Locked(Protocol):
    """The parts of a door that authentication reads: its name and its keys (``None``: open)."""

    @property
    def name(self) -> str: ...
    @property
    def keys(self) -> Sequence[KeyDigest] | None: ...


class Caller(Struct, frozen=True, kw_only=True):
    """An authenticated caller."""

    key: str
    """The key's public name; empty if the door needs no key."""
    name: str
    door: str
    """Name of the door that admitted the caller."""
    project: str = ""
    """Project that is charged; empty for keys of the configuration."""
    user: str = ""
    """User that is charged; empty for keys of the configuration."""
    models: frozenset[str] | None = None
    """Models that the caller may use, of those of the door; ``None`` for all."""
    recorded: bool = False
    """The project logs the contents of requests."""


class Named(Protocol):
    """The part of a door that authentication by accounts reads."""

    @property
    def name(self) -> str: ...


_ADVICE = "send the header `Authorization: Bearer KEY`"


def no_key() -> Unauthenticated:
    """Return the error for a request without a key where one is required."""
    return Unauthenticated(f"No API key was sent; {_ADVICE}.", code="missing_api_key")


_REASONS = {
    "authorization": "The API key is not valid here; check it and its address.",
    SEVERAL: f"The request has several API keys that differ; send one: {_ADVICE}.",
    NO_SCHEME: "The `Authorization` header has no bearer token: `Bearer` and a space are missing "
    f"before the key; {_ADVICE}.",
}


def wrong_key(credential: Credential) -> Unauthenticated:
    """Return the error for a credential that opens nothing here, whatever the reason."""
    header = credential.header
    message = _REASONS.get(header) or (
        f"The API key in the header `{header}` is not valid here; check it and its address. The "
        "usual place of a key is the header `Authorization: Bearer KEY`."
    )
    return Unauthenticated(message, code="missing_api_key" if header == NO_SCHEME else None)


class StaticKeys:
    """Keys from the configuration; who comes with one is made once for each door."""

    def __init__(self) -> None:
        self._callers: dict[tuple[str, str], Caller] = {}

    def authenticate(self, door: Locked, credential: Credential | None) -> Caller:
        """Let the bearer of ``credential`` in, or raise :class:`Unauthenticated`.

        With keys off any credential, or none, is fine. Every key of the door is
        compared, in constant time, whichever matches.
        """
        if door.keys is None:
            return self._callers.get(("", door.name)) or self._caller("", "anonymous", door)
        if credential is None:
            raise no_key()
        found = ""
        for key in door.keys:
            if compare_digest(key.digest, credential.digest):
                found = key.id
        if not found:
            raise wrong_key(credential)
        return self._callers.get((found, door.name)) or self._caller(found, found, door)

    def _caller(self, key: str, name: str, door: Locked) -> Caller:
        caller = self._callers[key, door.name] = Caller(key=key, name=name, door=door.name)
        return caller
