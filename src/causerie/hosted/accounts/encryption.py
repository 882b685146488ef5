"""Secrets of people, encrypted before they are written: who has only the database has none; and
the file with its key, where none is named.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SHORTEST_KEY = 32
_VERSION = "1"
_NONCE_BYTES = 12  # NIST SP 800-38D, section 8.2.2
_PURPOSE = b"causerie secrets of people"


class WrongKey(Exception):
    """None of the keys opens it, or it is not what was sealed."""


class Cipher:
    """Seals and opens. Raises :class:`ValueError` for a key that is too short to be one."""

    def __init__(self, keys: Sequence[str]) -> None:
        for key in keys:
            if len(key) < SHORTEST_KEY:
                raise ValueError(f"a key has at least {SHORTEST_KEY} characters")
        self._ciphers = {
            _derived(key, b"name", 6).hex(): AESGCM(_derived(key, b"cipher", 32)) for key in keys
        }

    def seal(self, secret: str, purpose: str) -> str:
        """Encrypt a secret for the store; raise :class:`WrongKey` if there are no keys."""
        for name, cipher in self._ciphers.items():
            nonce = secrets.token_bytes(_NONCE_BYTES)
            sealed = cipher.encrypt(nonce, secret.encode(), purpose.encode())
            text = base64.urlsafe_b64encode(nonce + sealed).decode()
            return f"{_VERSION}.{name}.{text}"
        raise WrongKey("there is no key to seal with")

    def open(self, sealed: str, purpose: str) -> str:
        """The secret itself; raises :class:`WrongKey`."""
        version, name, text = _parts(sealed)
        cipher = self._ciphers.get(name)
        if version != _VERSION or cipher is None:
            raise WrongKey("it was sealed with a key that is not here")
        try:
            raw = base64.urlsafe_b64decode(text)
            opened = cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], purpose.encode())
        except (InvalidTag, binascii.Error, ValueError) as failure:
            raise WrongKey("it is not what was sealed") from failure
        return opened.decode()

    def fresh(self, sealed: str) -> bool:
        """Return true if the first key sealed it."""
        return _parts(sealed)[1] == next(iter(self._ciphers), None)


def new_key() -> str:
    return secrets.token_urlsafe(SHORTEST_KEY)


def _parts(sealed: str) -> tuple[str, str, str]:
    version, _, rest = sealed.partition(".")
    name, _, text = rest.partition(".")
    return version, name, text


def _derived(key: str, what: bytes, length: int) -> bytes:
    # RFC 5869: from a key of any alphabet to the bits that each use needs.
    hkdf = HKDF(algorithm=SHA256(), length=length, salt=None, info=_PURPOSE + b": " + what)
    return hkdf.derive(key.encode())


_OTHERS = 0o077


def key_of_file(file: Path) -> str:
    """The key in this file, which is made where there is none.

    Raises :class:`OSError`, and :class:`ValueError` for a file that others may
    read or that holds no key.
    """
    if not file.exists():
        with suppress(FileExistsError):  # another process was first
            _make(file)
    if file.stat().st_mode & _OTHERS:
        raise ValueError("others may read it; `chmod 600` it")
    key = file.read_text(encoding="ascii").strip()
    if len(key) < SHORTEST_KEY:
        raise ValueError("it holds no key; restore it, for what it encrypted is lost without it")
    return key


def _make(file: Path) -> None:
    # Complete or not at all: another process may start at the same time.
    part = file.with_name(f".{file.name}.{token_hex(8)}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as opened:
            opened.write(new_key() + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        os.link(part, file)
    finally:
        part.unlink()
