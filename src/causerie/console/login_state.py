"""What a visitor is about while they are with another provider: kept with them, for them alone.

It travels as the ``state`` of the request to the provider, sealed with the token
of the visitor's own session. So nobody else can open or make one (which is what
a state is for), nothing is kept here for visitors who never come back, and a
session that has ended in between ends the login state too.
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
    """Where somebody wants to: into the page ``after``; by the invitation ``link``; or, where
    ``joins``, to have the identity as one of the account that they are signed in to."""

    attempt: SignInAttempt
    after: str = ""
    link: str = field(default="", repr=False)
    joins: bool = False


_decoder = msgspec.json.Decoder(LoginState)


def sealed(login_state: LoginState, token: str) -> str:
    """The state, for the visitor with this token."""
    return Cipher([token]).seal(msgspec.json.encode(login_state).decode(), _PURPOSE)


def unsealed(state: str, token: str) -> LoginState | None:
    """What this visitor is about; ``None`` where the state is not one of theirs."""
    if not state.isascii() or len(state) > _LONGEST:
        return None
    try:
        return _decoder.decode(Cipher([token]).open(state, _PURPOSE))
    except (WrongKey, msgspec.DecodeError):
        return None
