"""Credentials of requests: a management key, or an operator's key in the settings."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Protocol

from causerie.access.credential import Credential
from causerie.access.keys import KeyDigest
from causerie.accounts.people import Actor


class Managers(Protocol):
    """Authentication of management keys."""

    async def manager(self, credential: Credential | None) -> Actor:
        """Return the actor behind a management key.

        Raises ``Unauthenticated``, ``Forbidden`` for a key that is for inference, and
        ``StoreUnavailable`` if it cannot be known.
        """


class OperatorKeys:
    """Keys of operators, whose digests the settings hold, before those that ``managers`` know."""

    def __init__(self, managers: Managers, keys: Sequence[KeyDigest] = ()) -> None:
        self._managers = managers
        self._keys = tuple(keys)

    def replace(self, keys: Sequence[KeyDigest]) -> None:
        """Know these from now on, and no others."""
        self._keys = tuple(keys)

    async def manager(self, credential: Credential | None) -> Actor:
        """Every digest is compared, in constant time, whichever matches."""
        found: KeyDigest | None = None
        if credential is not None and self._keys:
            for key in self._keys:
                if hmac.compare_digest(key.digest, credential.digest):
                    found = key
        if found is None:
            return await self._managers.manager(credential)
        return Actor("key", found.id, found.id, operator=True)
