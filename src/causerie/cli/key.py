"""``causerie key``: creates a key for a client, and the digest for the configuration."""

from __future__ import annotations

import hashlib
import sys

from causerie.accounts.names import letters, new_token
from causerie.cli.exits import CommandFailed, ExitCode

_PUBLIC_LENGTH = 8


def new_key() -> str:
    """A key ``ck_<public>_<secret>`` with a secret of more than 256 random bits."""
    return f"ck_{letters(_PUBLIC_LENGTH)}_{new_token()}"


def digest_line(made: str) -> str:
    """Return the line for the configuration: the public part, if there is one, and the SHA-256."""
    found = hashlib.sha256(made.encode()).hexdigest()
    prefix, _, rest = made.partition("_")
    public, separator, secret = rest.partition("_")
    if prefix == "ck" and separator and secret and public.isascii() and public.isalnum():
        return f"ck_{public}:{found}"
    return found


def existing_key() -> str:
    """Return the key on stdin. Raises :class:`CommandFailed` if there is none."""
    found = sys.stdin.readline().strip()
    if not found:
        raise CommandFailed("--digest reads a key from stdin, and there was none", ExitCode.USAGE)
    return found
