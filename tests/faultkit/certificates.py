"""Certificates of the moment: good ones, one that nobody signed, one for another name."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

import trustme


@dataclass(frozen=True, slots=True)
class Certificates:
    """An authority and what it signs. ``ca_pem`` is its certificate, for clients to trust."""

    authority: trustme.CA = field(default_factory=trustme.CA)

    @property
    def ca_pem(self) -> bytes:
        """In PEM."""
        return self.authority.cert_pem.bytes()

    def context(self, name: str) -> ssl.SSLContext:
        """For a server of that name."""
        return _context(self.authority.issue_cert(name))

    @staticmethod
    def stranger(name: str) -> ssl.SSLContext:
        """For a server of that name, signed by an authority that nobody knows."""
        return _context(trustme.CA().issue_cert(name))


def _context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context
