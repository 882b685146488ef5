"""The tokens of a model as real bytes, however its vocabulary is stored.

A ``tokenizer.json`` is read without the library that wrote it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct

from causerie.engines.weights.errors import NotGguf, NotModelFolder
from causerie.engines.weights.folder import (
    GENERATION,
    TOKENIZER,
    in_config,
    read_bytes,
    read_object,
)
from causerie.engines.weights.gguf import open_metadata


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
    """Bytes and type of every token, by id; an id without a token has the type ``UNUSED``."""

    tokens: tuple[bytes, ...]  # of control and user-defined ones, the bytes of their written form
    types: tuple[int, ...]
    bos: int | None
    eos: int | None
    end: tuple[int, ...]  # ids that end a text, the file's own end token first

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
        """Return the text of the token ``id``; empty if there is no such token."""
        if id is None or not 0 <= id < len(self.tokens):
            return ""
        return self.tokens[id].decode("utf-8", "replace")


_BLANK = "▁"  # of SentencePiece
_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_END_TEXTS = frozenset(
    text.encode()
    for text in (
        "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "<|call|>",
        "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<end_of_utterance>",
        "<｜end▁of▁sentence｜>",
    )
)  # fmt: skip
# Letters of a byte-level vocabulary: those that can be printed stand for themselves.
_PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN = sorted(set(range(256)).difference(_PRINTED))
_ALPHABET = {chr(byte): byte for byte in _PRINTED} | {
    chr(0x100 + place): byte for place, byte in enumerate(_HIDDEN)
}


def _decode_byte_level(token: bytes) -> bytes:
    text = token.decode("utf-8", "replace")
    try:
        return bytes([_ALPHABET[letter] for letter in text])
    except KeyError:
        return token  # not in the notation: stands for itself


def _decode_blanks(token: bytes) -> bytes:
    return token.replace(_BLANK.encode(), b" ")


def _decode_hex(token: bytes) -> bytes:
    match = _BYTE.fullmatch(token)
    return bytes.fromhex(match.group(1).decode()) if match else token


# Those that the model names, then well-known ones.
def _end_token_ids(
    named: Iterable[int | None], tokens: Sequence[bytes], types: Sequence[int]
) -> tuple[int, ...]:
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


def read_gguf_vocabulary(path: Path) -> TokenTable:
    """Return a model file's vocabulary, in 100 ms at most; raise :class:`NotGguf` without one."""
    with open_metadata(path) as data:
        tokens = data.strings("tokenizer.ggml.tokens")
        types = data.integers("tokenizer.ggml.token_type") or (TokenType.NORMAL,) * len(tokens)
        tokenizer = data.text("tokenizer.ggml.model")
        if not tokens:
            raise NotGguf(path, "it has no vocabulary (tokenizer.ggml.tokens)")
        if len(types) != len(tokens):
            raise NotGguf(path, f"it has {len(tokens)} tokens but {len(types)} token types")
        known = frozenset(TokenType)
        types = tuple(kind if kind in known else TokenType.NORMAL for kind in types)
        names = ("bos", "eos", "eot", "eom")
        plain = _decode_byte_level if tokenizer == "gpt2" else _decode_blanks
        decoders = {TokenType.NORMAL: plain, TokenType.UNUSED: plain, TokenType.BYTE: _decode_hex}
        decoded = tuple(
            decode(token) if (decode := decoders.get(TokenType(kind))) else token
            for token, kind in zip(tokens, types, strict=True)
        )
        bos, *named = (data.integer(f"tokenizer.ggml.{name}_token_id") for name in names)
        return TokenTable(
            tokens=decoded,
            types=types,
            bos=bos,
            eos=named[0],
            end=_end_token_ids(named, tokens, types),
        )


_MOST_TOKENS = 1 << 22  # no vocabulary comes near; bounds what a hostile id makes us fill


class _Step(Struct):
    type: str = ""
    replacement: str | None = None  # of Metaspace
    pattern: object = None  # of Replace
    content: str | None = None  # of Replace
    decoders: list[_Step] = []
    pretokenizers: list[_Step] = []

    def writes_blanks(self) -> bool:
        if self.type == "Metaspace":
            return self.replacement in (None, _BLANK)
        found = {"String": _BLANK}
        return self.type == "Replace" and self.pattern == found and self.content == " "


class _Added(Struct):
    id: int
    content: str
    special: bool = False


class _Model(Struct):
    # Merges are ignored.

    vocab: dict[str, int] | list[tuple[str, float | None]]
    type: str | None = None  # old files do not say it
    unk_token: str | None = None  # of BPE
    unk_id: int | None = None  # of Unigram
    byte_fallback: bool | None = False
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None


class _File(Struct):
    model: _Model
    added_tokens: list[_Added] = []
    decoder: _Step | None = None
    pre_tokenizer: _Step | None = None

    def steps(self) -> list[_Step]:
        row = [one for one in (self.decoder, self.pre_tokenizer) if one is not None]
        for step in row:  # grows meanwhile: what a hostile file nests deep costs no stack
            row += (*step.decoders, *step.pretokenizers)
        return row


_decode = msgspec.json.Decoder(_File).decode


# Ids that no token has are unused, up to the size that `config.json` says.
def _read_tokenizer_json_vocabulary(path: Path) -> TokenTable:
    folder = path.parent
    file = _parse_tokenizer_json(path)
    model, ids = file.model, file.model.vocab
    if model.continuing_subword_prefix or model.end_of_word_suffix:
        raise NotModelFolder(folder, f"{TOKENIZER} marks parts of words, which is not read here")
    if not isinstance(ids, dict):
        ids = {piece: id for id, (piece, _) in enumerate(ids)}
    config = _optional_object(folder, "config.json")
    sizes = _integer_items(in_config(config, "vocab_size"))
    added = {one.id for one in file.added_tokens}
    used = added.union(ids.values())
    count = max((*used, *(size - 1 for size in sizes)), default=0) + 1
    if min(used, default=-1) < 0 or count > _MOST_TOKENS:
        raise NotModelFolder(folder, f"{TOKENIZER} has no tokens, or ids beyond {_MOST_TOKENS}")
    tokens, types = [b""] * count, [int(TokenType.UNUSED)] * count
    _fill_tokens(folder, file, ids, tokens, types)
    by_text = ids | {one.content: one.id for one in file.added_tokens}
    named = _optional_object(folder, "tokenizer_config.json")
    bos, eos = (_special_token_id(named, config, by_text, name) for name in ("bos", "eos"))
    told = (_optional_object(folder, GENERATION), config)
    other = [id for one in told for id in _integer_items(in_config(one, "eos_token_id"))]
    end = _end_token_ids((eos, *other), tokens, types)
    return TokenTable(tuple(tokens), tuple(types), bos, eos, end)


def _parse_tokenizer_json(path: Path) -> _File:
    try:
        file = _decode(read_bytes(path))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotModelFolder(path.parent, f"{TOKENIZER} is no tokenizer ({error})") from None
    if (kind := file.model.type) not in ("BPE", "Unigram", None):
        raise NotModelFolder(
            path.parent, f"{TOKENIZER} is of the kind {kind}; BPE and Unigram are read"
        )
    return file


def _fill_tokens(
    folder: Path, file: _File, ids: Mapping[str, int], tokens: list[bytes], types: list[int]
) -> None:
    model, steps = file.model, file.steps()
    byte_level = any(step.type == "ByteLevel" for step in steps)
    if not byte_level and not any(step.writes_blanks() for step in steps):
        raise NotModelFolder(folder, f"{TOKENIZER} is neither byte-level nor made of ▁ pieces")
    named_bytes = model.byte_fallback or any(step.type == "ByteFallback" for step in steps)
    plain = _decode_byte_level if byte_level else _decode_blanks
    for text, id in ids.items():
        raw = text.encode()
        byte = _decode_hex(raw) if named_bytes else raw
        tokens[id] = plain(raw) if byte is raw else byte
        types[id] = TokenType.NORMAL if byte is raw else TokenType.BYTE
        if id == model.unk_id or text == model.unk_token:
            tokens[id], types[id] = raw, TokenType.UNKNOWN
    for one in file.added_tokens:
        raw = one.content.encode()
        # A run of blanks is written with ▁ in what was a SentencePiece model.
        tokens[one.id] = raw if one.special or byte_level else _decode_blanks(raw)
        types[one.id] = TokenType.CONTROL if one.special else TokenType.USER_DEFINED


def _optional_object(folder: Path, name: str) -> dict[str, object]:
    return read_object(folder / name) if (folder / name).exists() else {}


def _special_token_id(
    named: Mapping[str, object], config: Mapping[str, object], ids: Mapping[str, int], name: str
) -> int | None:
    token = named.get(f"{name}_token", "")
    if token is None:  # it says that it has none, whatever the model's configuration says
        return None
    text = token.get("content") if isinstance(token, dict) else token
    if isinstance(text, str) and text in ids:
        return ids[text]
    return next(iter(_integer_items(in_config(config, f"{name}_token_id"))), None)


def _integer_items(value: object) -> list[int]:
    every = value if isinstance(value, list) else [value]
    return [one for one in every if type(one) is int]


def read_vocabulary(path: Path) -> TokenTable:
    """Return the vocabulary in a ``tokenizer.json``, or in the GGUF file of any other name.

    Raises :class:`NotModelFolder` or :class:`NotGguf`. Needs about 100 ms for
    the largest GGUF file, and a second for the largest ``tokenizer.json``.
    """
    if path.name == TOKENIZER:
        return _read_tokenizer_json_vocabulary(path)
    return read_gguf_vocabulary(path)
