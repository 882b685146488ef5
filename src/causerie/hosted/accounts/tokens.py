"""Ids, tokens and their digests, names and e-mail addresses, and sessions of browsers.

An id is public; a token is a secret of more than 256 random bits, of which only the SHA-256 is
stored. A slow hash would add nothing, because nobody guesses so many bits.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import string
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from causerie.errors import InvalidRequest

_ALPHABET = string.ascii_letters + string.digits
_ID_LENGTH = 14  # 62 ** 14 > 2 ** 83: two will not meet
_TOKEN_LENGTH = 43  # 62 ** 43 > 2 ** 256
LONGEST_NAME = 100
_JOINERS = dict.fromkeys((0x200C, 0x200D))  # unseen, but letters of many scripts need them
_LONGEST_EMAIL = 254  # RFC 5321, section 4.5.3.1.3
_LONGEST_LOCAL_PART = 64
_LONGEST_LABEL = 63
_ATOM_SIGNS = frozenset("!#$%&'*+-/=?^_`{|}~")
_MARKS = frozenset({"Mn", "Mc"})  # of letters in many scripts


def new_id(kind: str) -> str:
    """Return a new id ``KIND_xxxxxxxxxxxxxx``."""
    return f"{kind}_{letters(_ID_LENGTH)}"


def new_token() -> str:
    """Return a new secret of more than 256 random bits."""
    return letters(_TOKEN_LENGTH)


def letters(count: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(count))


def digest(token: str) -> bytes:
    """Return the digest under which a token is stored."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def tidy_name(given: str) -> str:
    """Return a name in the stored form; raise :class:`InvalidRequest`."""
    name = " ".join(unicodedata.normalize("NFC", given).split())
    seen = name.translate(_JOINERS)
    if not seen or len(name) > LONGEST_NAME or not seen.isprintable():
        raise InvalidRequest(f"A name has 1 to {LONGEST_NAME} visible characters.", param="name")
    return name


def tidy_email(given: str) -> str:
    """Return an e-mail address in the stored form, which is in lower case.

    Only plain addresses are accepted (RFC 5322, dot-atom), with letters of all scripts that NFKC
    leaves as they are. Raises :class:`InvalidRequest`.
    """
    email = unicodedata.normalize("NFC", given).strip().lower()
    name, _, host = email.partition("@")
    labels = host.split(".")
    plain = (
        len(email) <= _LONGEST_EMAIL
        and unicodedata.normalize("NFKC", email) == email
        and len(name) <= _LONGEST_LOCAL_PART
        and all(map(_is_email_atom, name.split(".")))
        and len(labels) > 1
        and all(map(_is_host_label, labels))
        and not labels[-1].isdecimal()
    )
    if not plain:
        raise InvalidRequest(
            "This is no e-mail address; one looks like name@example.org.", param="email"
        )
    return email


def _is_email_atom(text: str) -> bool:
    return bool(text) and all(one in _ATOM_SIGNS or _is_unicode_alnum_or_mark(one) for one in text)


def _is_host_label(text: str) -> bool:
    hyphens = text[:1] == "-" or text[-1:] == "-"
    letters = all(each == "-" or _is_unicode_alnum_or_mark(each) for each in text)
    return 1 <= len(text) <= _LONGEST_LABEL and letters and not hyphens


def _is_unicode_alnum_or_mark(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character) in _MARKS


SECOND_FACTOR_LIFE = timedelta(minutes=5)
SEEN_EVERY = timedelta(minutes=1)
_HALF = 16  # bytes of a form's token that are its nonce, and as many that prove it


class Stage(StrEnum):
    OPEN = "open"
    SECOND_FACTOR = "second_factor"


PASSWORD = "password"
"""Method of sessions that began with a password; those by an identity have its issuer."""


@dataclass(frozen=True, slots=True)
class SignInPolicy:
    """Rules of the operator for sign-ins and sessions."""

    passwords: Literal["on", "operators", "off"] = "on"
    two_factor: bool = False
    """Whoever signs in with a password needs two-factor authentication."""
    life: timedelta = timedelta(days=30)
    idle: timedelta = timedelta(days=7)
    lives: Mapping[str, timedelta] = field(default_factory=dict)
    """Shorter lives of sessions that began with an identity, by its issuer."""

    def takes_password(self, *, operator: bool) -> bool:
        """Return whether an operator, or somebody else, may sign in with a password."""
        return self.passwords == "on" or (operator and self.passwords == "operators")


@dataclass(frozen=True, slots=True)
class Session:
    """A session without its token; ``address`` and ``agent`` are shown to its user only."""

    id: str
    digest: bytes = field(repr=False)
    user_id: str
    stage: Stage
    created_at: datetime
    seen_at: datetime
    expires_at: datetime
    address: str
    agent: str
    method: str = PASSWORD
    """:data:`PASSWORD`, or the issuer of the identity that it began with."""

    def good(self, now: datetime, policy: SignInPolicy) -> bool:
        """Return whether the session has not expired."""
        life = policy.lives.get(self.method, policy.life)
        kept = now - self.created_at < life and now - self.seen_at < policy.idle
        return now < self.expires_at and kept


@dataclass(frozen=True, slots=True)
class SessionClient:
    """Network address and ``User-Agent`` of a browser."""

    address: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class NewSession:
    """A new session; ``token`` goes to the browser."""

    session: Session
    token: str = field(repr=False)


def form_token(token: str) -> str:
    """Return a new CSRF token for the forms of a signed-in browser.

    It is derived from the session's token and a nonce, so it is stored nowhere.
    """
    return _derive_form_token(token, os.urandom(_HALF))


def form_token_fits(token: str, given: str) -> bool:
    """Return whether the CSRF token ``given`` was derived from a session's ``token``."""
    try:
        nonce = bytes.fromhex(given[: 2 * _HALF])
    except ValueError:
        nonce = b""
    expected = _derive_form_token(token, nonce)
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def _derive_form_token(token: str, nonce: bytes) -> str:
    return (nonce + hmac.digest(token.encode(), b"form" + nonce, hashlib.sha256)[:_HALF]).hex()
