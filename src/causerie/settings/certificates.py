"""Check of certificate files that settings name."""

from __future__ import annotations

import ssl
from pathlib import Path


def wrong_certificates(file: str | None) -> str | None:
    """Return the problem with a file of trusted certificates; ``None`` if it is fine or unset."""
    if file is None:
        return None
    if not Path(file).is_file():
        return f'there is no file "{file}"'
    try:
        ssl.create_default_context(cafile=file)
    except OSError as error:  # ssl.SSLError is one
        return f"cannot be used: {reason(error)}"
    return None


def reason(error: OSError) -> str:
    """Why a file of certificates or keys cannot be used."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is no PEM file").replace("_", " ").lower()
    return error.strerror or str(error)
