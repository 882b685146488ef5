"""The vocabulary of a model on disk, however it is stored.

Of a ``tokenizer.json`` it is read as real bytes, without the library that wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from causerie.engines.weights import gguf
from causerie.engines.weights.errors import NotModelFolder
from causerie.engines.weights.folder import (
    GENERATION,
    TOKENIZER,
    in_config,
    read_bytes,
    read_object,
)
from causerie.engines.weights.tokens import (
    TokenTable,
    TokenType,
    ends,
    from_byte_level,
    from_byte_name,
    from_pieces,
)

_MOST_TOKENS = 1 << 22  # no vocabulary comes near; bounds what a hostile id makes us fill
_BLANK = "▁"


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


class _Kind(Struct):
    type: str = ""


class _Kinds(Struct):
    model: _Kind


_decode_kind = msgspec.json.Decoder(_Kinds).decode


def read_tokenizer_vocabulary(path: Path) -> TokenTable:
    """Return the vocabulary of the ``tokenizer.json`` at ``path``; a second for the largest.

    Ids that no token has are unused, up to the size that ``config.json`` says.
    Raises :class:`NotModelFolder` for a file that is none, or of another kind.
    """
    folder = path.parent
    file = _file(path)
    ids = _token_ids(folder, file.model)
    config = _optional_object(folder, "config.json")
    sizes = _integers(in_config(config, "vocab_size"))
    added = {one.id for one in file.added_tokens}
    used = added.union(ids.values())
    count = max((*used, *(size - 1 for size in sizes)), default=0) + 1
    if min(used, default=-1) < 0 or count > _MOST_TOKENS:
        raise NotModelFolder(folder, f"{TOKENIZER} has no tokens, or ids beyond {_MOST_TOKENS}")
    tokens, types = [b""] * count, [int(TokenType.UNUSED)] * count
    _fill_tokens(folder, file, ids, tokens, types)
    by_text = ids | {one.content: one.id for one in file.added_tokens}
    named = _optional_object(folder, "tokenizer_config.json")
    bos, eos = (_named_token(named, config, by_text, name) for name in ("bos", "eos"))
    told = (_optional_object(folder, GENERATION), config)
    other = [id for one in told for id in _integers(in_config(one, "eos_token_id"))]
    end = ends((eos, *other), tokens, types)
    return TokenTable(tuple(tokens), tuple(types), bos, eos, end)


def _file(path: Path) -> _File:
    content = read_bytes(path)
    try:
        kind = _decode_kind(content).model.type
        if kind not in ("BPE", "Unigram", ""):
            raise NotModelFolder(
                path.parent, f"{TOKENIZER} is of the kind {kind}; BPE and Unigram are read"
            )
        return _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotModelFolder(path.parent, f"{TOKENIZER} is no tokenizer ({error})") from None


def _token_ids(folder: Path, model: _Model) -> dict[str, int]:
    if model.continuing_subword_prefix or model.end_of_word_suffix:
        raise NotModelFolder(folder, f"{TOKENIZER} marks parts of words, which is not read here")
    if isinstance(model.vocab, dict):
        return model.vocab
    return {piece: id for id, (piece, _) in enumerate(model.vocab)}


def _fill_tokens(
    folder: Path, file: _File, ids: Mapping[str, int], tokens: list[bytes], types: list[int]
) -> None:
    model, steps = file.model, file.steps()
    byte_level = any(step.type == "ByteLevel" for step in steps)
    if not byte_level and not any(step.writes_blanks() for step in steps):
        raise NotModelFolder(folder, f"{TOKENIZER} is neither byte-level nor made of ▁ pieces")
    named_bytes = model.byte_fallback or any(step.type == "ByteFallback" for step in steps)
    plain = from_byte_level if byte_level else from_pieces
    for text, id in ids.items():
        raw = text.encode()
        byte = from_byte_name(raw) if named_bytes else raw
        tokens[id] = plain(raw) if byte is raw else byte
        types[id] = TokenType.NORMAL if byte is raw else TokenType.BYTE
        if id == model.unk_id or text == model.unk_token:
            tokens[id], types[id] = raw, TokenType.UNKNOWN
    for one in file.added_tokens:
        raw = one.content.encode()
        # A run of blanks is written with ▁ in what was a SentencePiece model.
        tokens[one.id] = raw if one.special or byte_level else from_pieces(raw)
        types[one.id] = TokenType.CONTROL if one.special else TokenType.USER_DEFINED


def _optional_object(folder: Path, name: str) -> dict[str, object]:
    return read_object(folder / name) if (folder / name).exists() else {}


def _named_token(
    named: Mapping[str, object], config: Mapping[str, object], ids: Mapping[str, int], name: str
) -> int | None:
    token = named.get(f"{name}_token", "")
    if token is None:  # it says that it has none, whatever the model's configuration says
        return None
    text = token.get("content") if isinstance(token, dict) else token
    if isinstance(text, str) and text in ids:
        return ids[text]
    return next(iter(_integers(in_config(config, f"{name}_token_id"))), None)


def _integers(value: object) -> list[int]:
    every = value if isinstance(value, list) else [value]
    return [one for one in every if type(one) is int]


__all__ = ["TokenTable", "TokenType", "read_vocabulary"]


def read_vocabulary(path: Path) -> TokenTable:
    """Return the vocabulary in a ``tokenizer.json``, or in the GGUF file of any other name.

    Raises :class:`NotModelFolder` or :class:`NotGguf`. Needs about 100 ms for
    the largest GGUF file, and a second for the largest ``tokenizer.json``.
    """
    if path.name == TOKENIZER:
        return read_tokenizer_vocabulary(path)
    return gguf.read_gguf_vocabulary(path)
