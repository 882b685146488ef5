"""Ids, tokens and their digests.

An id may be shown to anybody and stands in logs; a token is a secret of more
than 256 bits, shown once, of which only the SHA-256 is kept. A slow hash would
add nothing: nobody guesses 256 random bits.
"""

from __future__ import annotations

import hashlib
import secrets
import string
import unicodedata

from causerie.errors import InvalidRequest

_ALPHABET = string.ascii_letters + string.digits
_ID_LENGTH = 14  # 62 ** 14 > 2 ** 83: two will not meet
_TOKEN_LENGTH = 43  # 62 ** 43 > 2 ** 256
_LONGEST_NAME = 100
_JOINERS = dict.fromkeys((0x200C, 0x200D))  # unseen, but letters of many scripts need them
_LONGEST_EMAIL = 254  # RFC 5321, section 4.5.3.1.3


def new_id(kind: str) -> str:
    """An id ``KIND_xxxxxxxxxxxxxx``."""
    return f"{kind}_{letters(_ID_LENGTH)}"


def new_token() -> str:
    """A secret of more than 256 random bits."""
    return letters(_TOKEN_LENGTH)


def letters(count: int) -> str:
    """So many random letters and digits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(count))


def digest(token: str) -> bytes:
    """Return the digest under which a token is stored."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def tidy_name(given: str) -> str:
    """A name as it is kept; raises :class:`InvalidRequest`."""
    name = " ".join(unicodedata.normalize("NFC", given).split())
    seen = name.translate(_JOINERS)
    if not seen or len(name) > _LONGEST_NAME or not seen.isprintable():
        raise InvalidRequest(f"A name has 1 to {_LONGEST_NAME} visible characters.", param="name")
    return name


def tidy_email(given: str) -> str:
    """An address as it is kept and compared: in lower case. Raises :class:`InvalidRequest`.

    Only its shape is looked at; whether it exists, a message to it shows.
    """
    email = unicodedata.normalize("NFC", given).strip().lower()
    name, at, host = email.rpartition("@")
    whole = name and at and "." in host.strip(".") and email.isprintable()
    if not whole or len(email) > _LONGEST_EMAIL or any(each.isspace() for each in email):
        raise InvalidRequest(
            "This is no e-mail address; one looks like name@example.org.", param="email"
        )
    return email
