"""Thinking blocks: their signatures, and the reasoning that comes back in them.

A signature of ours is a digest of its block's text, without a key: whoever sends a request may put
any reasoning into it, so there is nothing to forge, and it holds for all processes and after every
restart. Where the client did not want the text, or it cannot be read, the reasoning itself is in
the signature or the data. Signatures of servers of this API are passed on as they are.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Any

from causerie.protocol.reasoning import MESSAGES_FORMAT, foreign_block
from causerie.shapes.sealed_reasoning import unseal

_OURS = "causerie."
_DIGEST = f"{_OURS}t."


class Digest:
    """Signature of a text that comes in pieces."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=24, person=b"thinking")

    def add(self, text: str) -> None:
        self._hash.update(text.encode("utf-8", "surrogatepass"))

    def signature(self) -> str:
        return _DIGEST + urlsafe_b64encode(self._hash.digest()).decode()


def reasoning_of(block: dict[str, Any], index: int) -> list[dict[str, Any]]:
    """Return the reasoning in a block of the past: ``{"text": ...}``, and blocks of its provider.

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
        text_of = [{"text": found.text}] if found.text else []
        return [*text_of, *({**each, "index": index} for each in found.blocks)]
    if redacted:
        encrypted = {"type": "reasoning.encrypted", "data": signature, "format": MESSAGES_FORMAT}
        return [{**encrypted, "index": index}]
    return [foreign_block(text, signature, index)]


def is_ours(block: object) -> bool:
    """Return true for a block of thinking that no other server knows."""
    if not isinstance(block, dict) or block.get("type") not in ("thinking", "redacted_thinking"):
        return False
    mark = block.get("signature") or block.get("data")
    return isinstance(mark, str) and mark.startswith(_OURS)
