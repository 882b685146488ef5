"""Logos of authors and providers: images of the configuration, or initials."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Logo:
    """An image, and its media type."""

    content_type: str
    content: bytes


class Logos:
    """All logos. ``prefix`` is the path that they are served below."""

    def __init__(self, prefix: str, logos: Mapping[str, Logo]) -> None:
        self._logos = logos
        digests = {name: hashlib.sha256(one.content).hexdigest() for name, one in logos.items()}
        self._addresses = {
            name: f"{prefix}/{quote(name, safe='')}?v={digest[:12]}"
            for name, digest in digests.items()
        }

    def address(self, name: str) -> str | None:
        """Return the address of a logo; ``None`` if there is none of this name."""
        return self._addresses.get(name)

    def get(self, name: str) -> Logo | None:
        return self._logos.get(name)


def initials(name: str) -> str:
    """Return the first letters of the first two words, or of the only one."""
    words: list[str] = _WORD.findall(name)
    if len(words) == 1:
        return words[0][:2].upper()
    return "".join(word[0] for word in words[:2]).upper()
