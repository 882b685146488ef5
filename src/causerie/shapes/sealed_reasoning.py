"""Reasoning as an opaque text that a client sends back unchanged, and signatures of thinking.

The text carries the reasoning and the blocks that a provider needs back. A client could as well
send any reasoning as plain text, so the text is protected against damage and taken for no other
server's, and not against forgery: a checksum is enough, and every process can read what another
one wrote.

In the Messages API a signature of ours is a digest of its block's text, likewise without a key.
Where the client did not want the text, or it cannot be read, the reasoning itself is in the
signature or the data. Signatures of servers of this API are passed on as they are.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from causerie.protocol import bounded_json
from causerie.protocol.reasoning import MESSAGES_FORMAT, Block, blocks_of, foreign_block

_MARK = "causerie.1."
_CHECKSUM = 16  # bytes


class SealedReasoning(Struct, frozen=True, array_like=True):
    """The text of reasoning, and its blocks if they hold more than the text."""

    text: str = ""
    blocks: Sequence[Block] = ()


def seal(reasoning: SealedReasoning) -> str:
    data = msgspec.json.encode(reasoning)
    return _MARK + urlsafe_b64encode(_compute_checksum(data) + data).decode()


def unseal(text: object) -> SealedReasoning | None:
    """Return the reasoning in a text that :func:`seal` made; ``None`` for any other text."""
    if not isinstance(text, str) or not text.startswith(_MARK):
        return None
    try:
        whole = urlsafe_b64decode(text.removeprefix(_MARK).encode())
        data = whole[_CHECKSUM:]
        if whole[:_CHECKSUM] != _compute_checksum(data):
            return None
        found: SealedReasoning = bounded_json.decode(data, SealedReasoning)
    except (Base64Error, UnicodeError, msgspec.MsgspecError, RecursionError):
        return None
    return SealedReasoning(found.text, blocks_of(list(found.blocks)))


def _compute_checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_CHECKSUM, person=b"reasoning").digest()


_OURS = "causerie."
_DIGEST = f"{_OURS}t."


class Digest:
    """Computes the signature of a text that comes in pieces."""

    def __init__(self) -> None:
        self._text_hash = blake2b(digest_size=24, person=b"thinking")

    def add(self, text: str) -> None:
        self._text_hash.update(text.encode("utf-8", "surrogatepass"))

    def signature(self) -> str:
        return _DIGEST + urlsafe_b64encode(self._text_hash.digest()).decode()


def reasoning_of(block: dict[str, Any], index: int) -> list[dict[str, Any]]:
    """Return the reasoning in a past block of thinking: its text, or its provider's blocks.

    Nothing, if it was changed. ``index`` is the block's place among the others.
    """
    redacted = block.get("type") == "redacted_thinking"
    text, signature = block.get("thinking"), block.get("data" if redacted else "signature")
    text = text if isinstance(text, str) else ""
    if not isinstance(signature, str) or not signature:
        return []
    if signature.startswith(_DIGEST):
        digest = Digest()
        digest.add(text)
        return [{"text": text}] if signature == digest.signature() else []
    if signature.startswith(_OURS):
        found = unseal(signature)
        if found is None or text:
            return []
        told = [{"text": found.text}] if found.text else []
        return [*told, *({**each, "index": index} for each in found.blocks)]
    if redacted:
        encrypted = {"type": "reasoning.encrypted", "data": signature, "format": MESSAGES_FORMAT}
        return [{**encrypted, "index": index}]
    return [foreign_block(text, signature, index)]


def has_own_signature(block: object) -> bool:
    """Return whether a block of thinking carries a signature that Causerie made."""
    if not isinstance(block, dict) or block.get("type") not in ("thinking", "redacted_thinking"):
        return False
    mark = block.get("signature") or block.get("data")
    return isinstance(mark, str) and mark.startswith(_OURS)
