"""Whether files of certificates that settings name can be used."""

from __future__ import annotations

import ssl
from pathlib import Path


def wrong_certificates(file: str | None) -> str | None:
    """What is wrong with a file of certificates to trust; ``None``: nothing, or none is named."""
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
