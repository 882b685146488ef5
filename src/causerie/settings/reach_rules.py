"""Rules for servers that others run: their addresses, secrets and certificates."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from causerie.settings.certificates import reason
from causerie.settings.lines import Path as KeyPath
from causerie.settings.problems import Broken
from causerie.settings.provider import TlsSettings
from causerie.settings.values import PLACES, Secret
from causerie.transport.address import Address


def address_rules(path: KeyPath, url: str, instead: str) -> Iterator[Broken]:
    """An address that can be used and holds no password; ``instead`` is where one belongs."""
    try:
        address = Address.parse(url)
    except ValueError as error:
        yield Broken(path, f"cannot be used: {error}")
        return
    if address.authorization:
        yield Broken(path, f"holds a user name or a password; take it out and {instead}")


def secret_rules(path: KeyPath, secret: Secret) -> Iterator[Broken]:
    """One place of a secret, and no second."""
    named = [name for name in ("env", "file", "command") if getattr(secret, name) is not None]
    if len(named) != 1:
        words = " and ".join(f"`{one}`" for one in named) or "nothing"
        yield Broken(path, f"has {words}; it takes {PLACES}", relies_on=(path,))


def tls_rules(path: KeyPath, tls: TlsSettings, url: str) -> Iterator[Broken]:
    """Certificates that can be used, for an address ``url`` that has a use for them."""
    missing = set()
    for name in ("ca_file", "client_cert", "client_key"):
        file = getattr(tls, name)
        if file is not None and not Path(file).is_file():
            missing.add(name)
            yield Broken((*path, name), f'there is no file "{file}"')
    if tls.client_key is not None and tls.client_cert is None:
        yield Broken((*path, "client_key"), "needs `client_cert`")
    for name, context in (("ca_file", _trusting), ("client_cert", _showing)):
        if name in missing or (name == "client_cert" and "client_key" in missing):
            continue
        try:
            context(tls)
        except OSError as error:  # ssl.SSLError is one
            yield Broken((*path, name), f"cannot be used: {reason(error)}")
    if tls.ca_file is not None and not tls.verify:
        yield Broken((*path, "verify"), "is `false`, so `ca_file` means nothing; remove one")
    if tls != TlsSettings() and url.startswith("http://"):
        yield Broken(path, "means nothing to an address that begins with http://")


def _trusting(tls: TlsSettings) -> None:
    if tls.ca_file is not None:
        ssl.create_default_context(cafile=tls.ca_file)


def _showing(tls: TlsSettings) -> None:
    if tls.client_cert is not None:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(tls.client_cert, tls.client_key)
