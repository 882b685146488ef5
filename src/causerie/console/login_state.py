"""Purpose of a visitor's sign-in at another provider: kept with the visitor, readable by nobody
else.

It travels as the ``state`` of the request to the provider, sealed with the token of the visitor's
own session. So nobody else can open or create one (the purpose of a state), nothing is kept here
for visitors who never come back, and a session that has ended in between ends the login state too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from causerie.accounts.encryption import Cipher, WrongKey
from causerie.identity.provider import SignInAttempt

_PURPOSE = "login_state"
_LONGEST = 8192


@dataclass(frozen=True, slots=True)
class LoginState:
    """Aim of a sign-in."""

    attempt: SignInAttempt
    after: str = ""
    """Page to open afterwards."""
    link: str = field(default="", repr=False)
    """Secret of an invitation."""
    joins: bool = False
    """Add the identity to the account that the visitor is signed in to."""


_decoder = msgspec.json.Decoder(LoginState)


def sealed(login_state: LoginState, token: str) -> str:
    """The state, for the visitor with this token."""
    return Cipher([token]).seal(msgspec.json.encode(login_state).decode(), _PURPOSE)


def unsealed(state: str, token: str) -> LoginState | None:
    """Return this visitor's login state; ``None`` if the state is not one of theirs."""
    if not state.isascii() or len(state) > _LONGEST:
        return None
    try:
        return _decoder.decode(Cipher([token]).open(state, _PURPOSE))
    except (WrongKey, msgspec.DecodeError):
        return None
