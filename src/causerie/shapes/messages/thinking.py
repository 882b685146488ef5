"""Thinking blocks: their signatures, and the reasoning that comes back in them.

A signature of ours says whether the text of its block is as it was sent. It is a digest without a
key: whoever sends a request may put any reasoning into it, so there is nothing to forge, and it
holds for all processes and after every restart. A block whose text the client did not want, or
that cannot be read, has the reasoning itself in its signature or data. Signatures of providers
that speak this API are passed on as they are.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import msgspec

from causerie.protocol import bounded_json
from causerie.protocol.reasoning import MESSAGES_FORMAT, Block, foreign_block

_OURS = "causerie-"
_DIGEST = f"{_OURS}d1."
_SEALED = f"{_OURS}s1."
_BOUNDS = bounded_json.Bounds(values=10_000, exponents=0, tens=0, precise=1000)


class Digest:
    """Signature of a text that comes in pieces."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=24, person=b"thinking")

    def add(self, text: str) -> None:
        self._hash.update(text.encode("utf-8", "surrogatepass"))

    def signature(self) -> str:
        return _DIGEST + urlsafe_b64encode(self._hash.digest()).decode()


def sealed(blocks: Sequence[Block]) -> str:
    """Return a text that holds blocks of reasoning, for a client to send back."""
    data = msgspec.json.encode(blocks)
    mark = blake2b(data, digest_size=12, person=b"thinking").digest()
    return _SEALED + urlsafe_b64encode(mark + data).decode()


def reasoning_of(block: dict[str, Any], index: int) -> list[dict[str, Any]]:
    """Return the reasoning in a block of the past: ``{"text": ...}``, or blocks of its provider.

    Nothing, if it was changed. ``index`` is the block's place among the others.
    """
    redacted = block.get("type") == "redacted_thinking"
    text, signature = block.get("thinking"), block.get("data" if redacted else "signature")
    text = text if isinstance(text, str) else ""
    if not isinstance(signature, str) or not signature:
        return []
    if signature.startswith(_SEALED):
        return [] if text else _opened(signature, index)
    if redacted:
        encrypted = {"type": "reasoning.encrypted", "data": signature, "format": MESSAGES_FORMAT}
        return [{**encrypted, "index": index}]
    if not signature.startswith(_OURS):
        return [foreign_block(text, signature, index)]
    digest = Digest()
    digest.add(text)
    return [{"text": text}] if signature == digest.signature() else []


def _opened(text: str, index: int) -> list[dict[str, Any]]:
    with suppress(ValueError, msgspec.DecodeError, UnicodeError, RecursionError):
        raw = urlsafe_b64decode(text.removeprefix(_SEALED))
        mark, data = raw[:12], raw[12:]
        if blake2b(data, digest_size=12, person=b"thinking").digest() != mark:
            return []
        blocks: Any = bounded_json.decode(data, Any, _BOUNDS)
        found = [each for each in blocks if isinstance(each, dict)]
        return [each if each.keys() == {"text"} else {**each, "index": index} for each in found]
    return []
