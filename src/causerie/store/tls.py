"""Trusted certificates of a database, set in its URL with PostgreSQL's parameters.

``sslmode``, ``sslrootcert``, ``sslcert`` and ``sslkey`` mean the same as for libpq (PostgreSQL,
section 34.1.2), with two exceptions: without ``sslrootcert`` the system's certificates are trusted,
and no default files are searched for.
"""

from __future__ import annotations

import ssl
from ssl import SSLContext

from sqlalchemy import URL

_PLAIN = ("disable", "allow", "prefer", "require")
_CHECKED = ("verify-ca", "verify-full")
_FILES = ("sslrootcert", "sslcert", "sslkey")


class WrongAddress(ValueError):
    """``store.url`` names no database that can be used; the message says what would be right."""


def tls_of(address: URL) -> tuple[URL, SSLContext | str | None]:
    """The address without what it says of TLS, and that as the driver takes it.

    Raises :class:`WrongAddress`. Reads files.
    """
    given = {name: _one(address, name) for name in ("sslmode", *_FILES) if name in address.query}
    plain = address.difference_update_query(list(given))
    mode = given.pop("sslmode", None)
    if mode is None:
        if given:
            raise WrongAddress(f"`{next(iter(given))}` means nothing without `sslmode=verify-full`")
        return plain, None
    if mode in _PLAIN:
        if given:
            raise WrongAddress(
                f"`{next(iter(given))}` is not looked at with `sslmode={mode}`; "
                "write `sslmode=verify-full`"
            )
        return plain, mode
    if mode not in _CHECKED:
        raise WrongAddress(f"`sslmode` is one of {', '.join((*_PLAIN, *_CHECKED))}")
    return plain, _context(mode, given)


def _one(address: URL, name: str) -> str:
    value = address.query[name]
    if isinstance(value, tuple):
        raise WrongAddress(f"`{name}` is there more than once")
    return value


def _context(mode: str, files: dict[str, str]) -> SSLContext:
    root, shown = files.get("sslrootcert"), files.get("sslcert")
    if "sslkey" in files and shown is None:
        raise WrongAddress("`sslkey` needs `sslcert`")
    try:
        context = ssl.create_default_context(cafile=None if root == "system" else root)
        if shown is not None:
            context.load_cert_chain(shown, files.get("sslkey"))
    except OSError as failure:  # ssl.SSLError is one
        wrong = " or ".join(f"`{name}`" for name in files)
        raise WrongAddress(f"a file of {wrong} is not there, or no PEM file") from failure
    context.check_hostname = mode == "verify-full"
    return context
