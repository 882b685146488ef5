"""The vocabulary of a model file as real bytes.

Token texts are stored in the notation of their tokenizer; here each becomes
the bytes that it stands for in a text. Knows nothing about how text is split
into tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from causerie.engines.weights.errors import NotGguf
from causerie.engines.weights.metadata import Metadata, MetadataFile


class TokenType(IntEnum):
    """What a token is to its tokenizer (``tokenizer.ggml.token_type``)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Every token in the order of its id: ``tokens`` as bytes, ``types`` beside them.

    Control and user-defined tokens hold the bytes of their written form.
    ``end`` are the ids that end a text, the file's own end token first.
    """

    tokens: tuple[bytes, ...]
    types: tuple[int, ...]
    bos: int | None
    eos: int | None
    end: tuple[int, ...]

    def control(self) -> dict[str, int]:
        """Text to id of all tokens that are not read as plain text."""
        kinds = (TokenType.CONTROL, TokenType.USER_DEFINED)
        return {
            self.tokens[i].decode("utf-8", "replace"): i
            for i, kind in enumerate(self.types)
            if kind in kinds
        }


_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_END_KEYS = ("eos", "eot", "eom")
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
    """The printable stand-in of each byte in byte-level vocabularies, reversed."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update((chr(0x100 + place), byte) for place, byte in enumerate(hidden))
    return alphabet


_ALPHABET = _byte_alphabet()


def _from_byte_level(token: bytes) -> bytes:
    text = token.decode("utf-8", "replace")
    try:
        return bytes([_ALPHABET[letter] for letter in text])
    except KeyError:
        return token  # not in the notation: stands for itself


def _from_pieces(token: bytes) -> bytes:
    return token.replace(b"\xe2\x96\x81", b" ")


def _from_byte_name(token: bytes) -> bytes:
    match = _BYTE.fullmatch(token)
    return bytes.fromhex(match.group(1).decode()) if match else token


def _decoded(tokens: Sequence[bytes], types: Sequence[int], tokenizer: str) -> tuple[bytes, ...]:
    plain = _from_byte_level if tokenizer == "gpt2" else _from_pieces
    ways = {
        TokenType.NORMAL: plain,
        TokenType.UNUSED: plain,
        TokenType.BYTE: _from_byte_name,
    }
    return tuple(
        way(token) if (way := ways.get(TokenType(kind))) else token
        for token, kind in zip(tokens, types, strict=True)
    )


def _ends(data: Metadata, tokens: Sequence[bytes], types: Sequence[int]) -> tuple[int, ...]:
    named = [data.integer(f"tokenizer.ggml.{key}_token_id") for key in _END_KEYS]
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


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of the model file at ``path``; about 100 ms for the largest.

    Raises :class:`NotGguf` for a file that is none, or has no vocabulary.
    """
    with MetadataFile(path) as data:
        tokens = data.strings("tokenizer.ggml.tokens")
        types = data.integers("tokenizer.ggml.token_type") or (TokenType.NORMAL,) * len(tokens)
        tokenizer = data.text("tokenizer.ggml.model")
        if not tokens:
            raise NotGguf(path, "it has no vocabulary (tokenizer.ggml.tokens)")
        if len(types) != len(tokens):
            raise NotGguf(path, f"it has {len(tokens)} tokens but {len(types)} token types")
        known = frozenset(TokenType)
        types = tuple(kind if kind in known else TokenType.NORMAL for kind in types)
        return Vocabulary(
            tokens=_decoded(tokens, types, tokenizer),
            types=types,
            bos=data.integer("tokenizer.ggml.bos_token_id"),
            eos=data.integer("tokenizer.ggml.eos_token_id"),
            end=_ends(data, tokens, types),
        )
