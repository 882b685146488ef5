"""Tokens as bytes, which compare as fast as memory does."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

TOKEN_BYTES = array("i").itemsize


def packed(tokens: Sequence[int]) -> bytes:
    """Return the packed tokens."""
    return array("i", tokens).tobytes()


def unpacked(tokens: bytes) -> Sequence[int]:
    """Return the tokens."""
    return array("i", tokens)


def token_count(tokens: bytes) -> int:
    """Return the number of packed tokens."""
    return len(tokens) // TOKEN_BYTES


def common_tokens(one: bytes, other: bytes) -> int:
    """Return the number of packed tokens at the beginning that are the same in both."""
    known, most = 0, min(token_count(one), token_count(other))
    while known < most:
        half = (known + most + 1) // 2
        part = slice(known * TOKEN_BYTES, half * TOKEN_BYTES)
        if one[part] == other[part]:
            known = half
        else:
            most = half - 1
    return known
