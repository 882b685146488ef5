"""Certificates of the tests' own: an authority, a server it vouches for, and a stranger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme


@dataclass(frozen=True)
class Certificates:
    """Files (PEM). The server's certificate is for 127.0.0.1; nobody has heard of ``other``."""

    ca: Path
    other: Path
    certificate: Path
    key: Path


def made(folder: Path, host: str = "127.0.0.1") -> Certificates:
    """New ones, for a server at this host."""
    authority = trustme.CA()
    issued = authority.issue_cert(host)
    found = Certificates(
        *(folder / name for name in ("ca.pem", "other.pem", "cert.pem", "key.pem"))
    )
    authority.cert_pem.write_to_path(str(found.ca))
    trustme.CA().cert_pem.write_to_path(str(found.other))
    found.certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(found.key))
    found.key.chmod(0o600)
    return found


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The same for all tests."""
    return made(tmp_path_factory.mktemp("certificates"))
