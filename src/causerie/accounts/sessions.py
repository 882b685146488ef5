"""Sessions: who a browser is, kept by the service; the browser has only a token.

A session ends by itself some time after it was last seen, and at the latest some time after it
began. The token that a form has to send back (against forged requests) is derived from the
session's token and a nonce, so it is nowhere kept, and no two pages have the same.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from causerie.accounts.names import digest, new_id, new_token

LIFE = timedelta(days=30)
IDLE = timedelta(days=7)
SECOND_FACTOR_LIFE = timedelta(minutes=5)
SEEN_EVERY = timedelta(minutes=1)
_AGENT_LENGTH = 300
_HALF = 16  # bytes of a form's token that are its nonce, and as many that prove it


class Stage(StrEnum):
    """Stage of a sign-in."""

    OPEN = "open"
    SECOND_FACTOR = "second_factor"


@dataclass(frozen=True, slots=True)
class Session:
    """A session without its token. ``address`` and ``agent`` are shown to its user only."""

    id: str
    digest: bytes = field(repr=False)
    user_id: str
    stage: Stage
    created_at: datetime
    seen_at: datetime
    expires_at: datetime
    address: str
    agent: str

    def good(self, now: datetime) -> bool:
        """Return true unless it has expired."""
        return now < self.expires_at and now - self.seen_at < IDLE


@dataclass(frozen=True, slots=True)
class SessionClient:
    """Origin of a request: address and program."""

    address: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session that has just started; ``token`` goes to the browser."""

    session: Session
    token: str = field(repr=False)


def new_session(user_id: str, stage: Stage, now: datetime, client: SessionClient) -> NewSession:
    """Begin one, with a token that nobody could have set before."""
    token = new_token()
    life = LIFE if stage is Stage.OPEN else SECOND_FACTOR_LIFE
    session = Session(
        id=new_id("ses"),
        digest=digest(token),
        user_id=user_id,
        stage=stage,
        created_at=now,
        seen_at=now,
        expires_at=now + life,
        address=client.address,
        agent=client.agent[:_AGENT_LENGTH],
    )
    return NewSession(session, token)


def form_token(token: str) -> str:
    """Return a token for the forms of a signed-in browser, another one at each call."""
    return _form_token(token, os.urandom(_HALF))


def form_token_fits(token: str, given: str) -> bool:
    """Return true if a form belongs to the browser with this token."""
    try:
        nonce = bytes.fromhex(given[: 2 * _HALF])
    except ValueError:
        nonce = b""
    expected = _form_token(token, nonce)
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def _form_token(token: str, nonce: bytes) -> str:
    return (nonce + hmac.digest(token.encode(), b"form" + nonce, hashlib.sha256)[:_HALF]).hex()
