"""Pictures in files, as a request carries them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MOST_BYTES = 20 * 1024 * 1024
# What a file of each type begins with; WebP has its length between.
_BEGINNINGS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
}


class NoImage(Exception):
    """The file is no picture that can be sent."""


def data_address(file: Path) -> str:
    """Return the picture in ``file`` as a ``data:`` address; raise :class:`NoImage`."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise NoImage(f"{file}: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise NoImage(f"{file} has more than {_MOST_BYTES // 2**20} MiB")
    kind = _kind(content)
    if kind is None:
        raise NoImage(f"{file} is no PNG, JPEG, GIF or WebP")
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def takes_images(entry: Mapping[str, Any] | None) -> bool | None:
    """Return whether a model takes pictures, by its entry in a list; ``None``: it does not say."""
    architecture = (entry or {}).get("architecture")
    kinds = architecture.get("input_modalities") if isinstance(architecture, dict) else None
    return "image" in kinds if isinstance(kinds, list) else None


def _kind(content: bytes) -> str | None:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for kind, first in _BEGINNINGS.items() if content.startswith(first)), None)
