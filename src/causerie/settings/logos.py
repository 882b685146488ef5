"""Logos that settings name: files or data, never addresses."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from causerie.settings.problems import Broken

_DATA = re.compile(r"data:(image/(?:svg\+xml|png|webp));base64,([A-Za-z0-9+/=]+)")
_TYPES: Mapping[str, str] = MappingProxyType(
    {".svg": "image/svg+xml", ".png": "image/png", ".webp": "image/webp"}
)
_MOST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LogoImage:
    """An image, and its media type."""

    content_type: str
    content: bytes


def is_data(text: str) -> bool:
    """Return true if the text is the image itself, not the path of a file."""
    return text.startswith("data:")


def read_logo(text: str) -> LogoImage:
    """Return the logo that a setting names; raise :class:`ValueError` with what is wrong."""
    logo = _decoded(text) if is_data(text) else _read(Path(text))
    if len(logo.content) > _MOST_BYTES:
        raise ValueError(f"has {len(logo.content):,} bytes; a logo has at most {_MOST_BYTES:,}")
    return logo


def logo_rules(logos: Mapping[str, str]) -> Iterator[Broken]:
    """Yield the logos that cannot be shown."""
    for name, text in logos.items():
        try:
            read_logo(text)
        except ValueError as error:
            yield Broken(("branding", "logos", name), str(error))


def _decoded(text: str) -> LogoImage:
    found = _DATA.fullmatch(text)
    if found is None:
        raise ValueError("is no `data:image/png;base64,…`, nor of `svg+xml` or `webp`")
    try:
        return LogoImage(found[1], base64.b64decode(found[2], validate=True))
    except binascii.Error as error:
        raise ValueError("is not valid base64") from error


def _read(file: Path) -> LogoImage:
    content_type = _TYPES.get(file.suffix.lower())
    if content_type is None:
        raise ValueError(f'"{file}" is none of {", ".join(_TYPES)}')
    try:
        with file.open("rb") as opened:
            return LogoImage(content_type, opened.read(_MOST_BYTES + 1))
    except OSError as error:
        raise ValueError(f'"{file}" cannot be read: {error.strerror or error}') from error
