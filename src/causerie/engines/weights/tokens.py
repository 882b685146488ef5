"""The tokens of a model as real bytes, and the notations that tokenizers write them in.

Knows no file format, and nothing about how text is split into tokens.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property


class TokenType(IntEnum):
    """Type of a token, numbered as in GGUF (``tokenizer.ggml.token_type``)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class TokenTable:
    """Every token in the order of its id: ``tokens`` as bytes, ``types`` alongside them.

    Control and user-defined tokens hold the bytes of their written form; ids
    that stand for nothing are unused and may be empty.
    ``end`` are the ids that end a text, the file's own end token first.
    """

    tokens: tuple[bytes, ...]
    types: tuple[int, ...]
    bos: int | None
    eos: int | None
    end: tuple[int, ...]

    @cached_property
    def control(self) -> Mapping[str, int]:
        kinds = (TokenType.CONTROL, TokenType.USER_DEFINED)
        return {self.text(id): id for id, kind in enumerate(self.types) if kind in kinds}

    @cached_property
    def longest(self) -> int:
        return max(map(len, self.tokens), default=1)

    @cached_property
    def digest(self) -> str:
        """Return a hash of tokens and types; takes some ten milliseconds."""
        digest = hashlib.blake2b(bytes(self.types), digest_size=8)
        for token in self.tokens:
            digest.update(len(token).to_bytes(4, "big") + token)
        return digest.hexdigest()

    def text(self, id: int | None) -> str:
        """Return the text of a token; empty if there is no such token."""
        if id is None or not 0 <= id < len(self.tokens):
            return ""
        return self.tokens[id].decode("utf-8", "replace")


_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_END_TEXTS = frozenset(
    (
        b"<|im_end|>",
        b"<|eot_id|>",
        b"<|eom_id|>",
        b"<|end|>",
        b"<|return|>",
        b"<|call|>",
        b"<|endoftext|>",
        b"<|end_of_text|>",
        b"<end_of_turn>",
        b"<end_of_utterance>",
        b"<\xef\xbd\x9cend\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
    )
)


def _byte_alphabet() -> Mapping[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update((chr(0x100 + place), byte) for place, byte in enumerate(hidden))
    return alphabet


_ALPHABET = _byte_alphabet()


def from_byte_level(token: bytes) -> bytes:
    """Return the bytes of a token of a byte-level vocabulary: each letter is a byte."""
    text = token.decode("utf-8", "replace")
    try:
        return bytes([_ALPHABET[letter] for letter in text])
    except KeyError:
        return token  # not in the notation: stands for itself


def from_pieces(token: bytes) -> bytes:
    """Return the bytes of a SentencePiece token: ``▁`` is a blank."""
    return token.replace(b"\xe2\x96\x81", b" ")


def from_byte_name(token: bytes) -> bytes:
    """Return the byte that ``<0xNN>`` names; any other token stands for itself."""
    match = _BYTE.fullmatch(token)
    return bytes.fromhex(match.group(1).decode()) if match else token


def ends(
    named: Iterable[int | None], tokens: Sequence[bytes], types: Sequence[int]
) -> tuple[int, ...]:
    """Return the ids that end a text: those that the model names, then well-known ones."""
    found = [
        i
        for i, token in enumerate(tokens)
        if token in _END_TEXTS and types[i] in (TokenType.CONTROL, TokenType.USER_DEFINED)
    ]
    texts = {tokens[i] for i in found}
    if {b"<|return|>", b"<|call|>"} <= texts:  # there <|end|> closes a message, not the text
        found = [i for i in found if tokens[i] != b"<|end|>"]
    known = [i for i in named if i is not None and 0 <= i < len(tokens)]
    return tuple(dict.fromkeys((*known, *found)))
