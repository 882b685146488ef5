"""Reasoning as an opaque text that a client sends back unchanged.

It carries the reasoning and the blocks that a provider needs back. A client could as well send any
reasoning as plain text, so the text is protected against damage and taken for no other server's,
and not against forgery: a checksum is enough, and every process can read what another one wrote.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct

from causerie.protocol import bounded_json
from causerie.protocol.reasoning import Block, blocks_of

_MARK = "causerie.1."
_CHECKSUM = 16  # bytes


class SealedReasoning(Struct, frozen=True, array_like=True):
    """The text of reasoning, and its blocks if they hold more than the text."""

    text: str = ""
    blocks: Sequence[Block] = ()


def seal(reasoning: SealedReasoning) -> str:
    data = msgspec.json.encode(reasoning)
    return _MARK + urlsafe_b64encode(_checksum(data) + data).decode()


def unseal(text: object) -> SealedReasoning | None:
    """Return the reasoning in a text of :func:`seal`; ``None`` for any other or a changed one."""
    if not isinstance(text, str) or not text.startswith(_MARK):
        return None
    try:
        whole = urlsafe_b64decode(text.removeprefix(_MARK).encode())
        data = whole[_CHECKSUM:]
        if whole[:_CHECKSUM] != _checksum(data):
            return None
        found: SealedReasoning = bounded_json.decode(data, SealedReasoning)
    except (Base64Error, UnicodeError, msgspec.MsgspecError, RecursionError):
        return None
    return SealedReasoning(found.text, blocks_of(list(found.blocks)))


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_CHECKSUM, person=b"reasoning").digest()
