"""API keys: ``ck_<public id>_<secret>``.

The public id names a key everywhere; the secret is shown once. Kept is a digest
of the whole key, by which it is found. A key that is being rotated has an old
secret that works until its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from causerie.accounts.bounds import UNBOUNDED, Bounds
from causerie.accounts.names import letters, new_token

_PUBLIC_LENGTH = 12


class Purpose(StrEnum):
    """What a key is for; none is for both."""

    INFERENCE = "inference"
    MANAGEMENT = "management"


class KeyState(StrEnum):
    """Whether a key works, and if not, why; told to its owners only."""

    ACTIVE = "active"
    DISABLED = "disabled"
    EXPIRED = "expired"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret.

    ``None`` for doors and models: all that the project has; empty: none.
    ``disabled_by`` is who has to enable it again, or somebody with more rights.
    """

    id: str
    project_id: str
    created_by: str
    name: str
    purpose: Purpose
    doors: frozenset[str] | None
    models: frozenset[str] | None
    created_at: datetime
    expires_at: datetime | None = None
    disabled_at: datetime | None = None
    disabled_by: str | None = None
    deleted_at: datetime | None = None
    bounds: Bounds = UNBOUNDED

    def state(self, now: datetime) -> KeyState:
        """How it stands at a moment."""
        if self.deleted_at is not None:
            return KeyState.DELETED
        if self.disabled_at is not None:
            return KeyState.DISABLED
        if self.expires_at is not None and self.expires_at <= now:
            return KeyState.EXPIRED
        return KeyState.ACTIVE


@dataclass(frozen=True, slots=True)
class KeySecret:
    """A secret of a key, as it is kept. One that ends has been replaced."""

    digest: bytes
    key_id: str
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """What the bearer of one secret may do: all that the request path has to know.

    ``until`` is the first moment at which it ends, ``works`` whether it does at
    all: keys that are revoked are known too, so that asking again costs nothing.
    ``recorded``: the project keeps what is said.
    """

    key: ApiKey
    works: bool
    until: datetime | None
    project_bounds: Bounds
    recorded: bool = False


def new_key_id() -> str:
    """The public id of a new key."""
    return f"ck_{letters(_PUBLIC_LENGTH)}"


def new_secret(key_id: str) -> str:
    """A whole new key with this public id."""
    return f"{key_id}_{new_token()}"
