"""Encryption of secrets in the database, and the file of the key if none is configured."""

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


class WrongKey(Exception):
    """Raised if there is no key to encrypt a text with, or none that decrypts it."""


class Cipher:
    """Encrypts and decrypts texts: AES-256 in Galois/counter mode with a new nonce for each text.

    The purpose of a text is bound into it, so that none can be put in another's place. The first
    key encrypts; all keys decrypt. A text is ``1.KEY.TEXT``: version, name of the key, and nonce
    and ciphertext in base 64. Raises :class:`ValueError` for a key that is too short.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        for key in keys:
            if len(key) < SHORTEST_KEY:
                raise ValueError(f"a key has at least {SHORTEST_KEY} characters")
        self._ciphers_by_key_name = {
            _derive_key(key, b"name", 6).hex(): AESGCM(_derive_key(key, b"cipher", 32))
            for key in keys
        }

    def seal(self, secret: str, purpose: str) -> str:
        """Encrypt a text; raise :class:`WrongKey` without keys."""
        for name, cipher in self._ciphers_by_key_name.items():
            nonce = secrets.token_bytes(_NONCE_BYTES)
            sealed = cipher.encrypt(nonce, secret.encode(), purpose.encode())
            text = base64.urlsafe_b64encode(nonce + sealed).decode()
            return f"{_VERSION}.{name}.{text}"
        raise WrongKey("there is no key to seal with")

    def open(self, sealed: str, purpose: str) -> str:
        """Decrypt a text; raise :class:`WrongKey`."""
        version, name, text = _split_version_name_text(sealed)
        cipher = self._ciphers_by_key_name.get(name)
        if version != _VERSION or cipher is None:
            raise WrongKey("it was sealed with a key that is not here")
        try:
            raw = base64.urlsafe_b64decode(text)
            opened = cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], purpose.encode())
        except (InvalidTag, binascii.Error, ValueError) as failure:
            raise WrongKey("it is not what was sealed") from failure
        return opened.decode()

    def fresh(self, sealed: str) -> bool:
        return _split_version_name_text(sealed)[1] == next(iter(self._ciphers_by_key_name), None)


def new_key() -> str:
    return secrets.token_urlsafe(SHORTEST_KEY)


def _split_version_name_text(sealed_text: str) -> tuple[str, str, str]:
    version, _, rest = sealed_text.partition(".")
    name, _, text = rest.partition(".")
    return version, name, text


def _derive_key(key: str, purpose: bytes, length: int) -> bytes:
    # RFC 5869: from a key of any alphabet to the bits that each use needs.
    hkdf = HKDF(
        algorithm=SHA256(), length=length, salt=None, info=b"causerie secrets of people: " + purpose
    )
    return hkdf.derive(key.encode())


def key_of_file(file: Path) -> str:
    """Return the key in a file, which is created if it is missing.

    Raises :class:`OSError`, and :class:`ValueError` for a file that others may read or without a
    key.
    """
    if not file.exists():
        with suppress(FileExistsError):  # another process was first
            _create_key_file(file)
    if file.stat().st_mode & 0o077:
        raise ValueError("others may read it; `chmod 600` it")
    key = file.read_text(encoding="ascii").strip()
    if len(key) < SHORTEST_KEY:
        raise ValueError("it holds no key; restore it, for what it encrypted is lost without it")
    return key


def _create_key_file(path: Path) -> None:
    # Complete or not at all: another process may start at the same time.
    part = path.with_name(f".{path.name}.{token_hex(8)}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as opened:
            opened.write(new_key() + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        os.link(part, path)
    finally:
        part.unlink()
