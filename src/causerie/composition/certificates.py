"""Certificates as the settings name them, ready for connections."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

from causerie.settings.provider import TlsSettings


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context of these settings; raise :class:`OSError` if files cannot be used."""
    context = ssl.create_default_context(cafile=tls.ca_file)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.client_cert is not None:
        context.load_cert_chain(tls.client_cert, tls.client_key)
    return context


def tls_digest(tls: TlsSettings) -> bytes:
    """Return a digest of the files' contents, to detect renewal; raise :class:`OSError`."""
    digest = hashlib.sha256()
    for file in (tls.ca_file, tls.client_cert, tls.client_key):
        digest.update(hashlib.sha256(Path(file).read_bytes() if file else b"").digest())
    return digest.digest()
