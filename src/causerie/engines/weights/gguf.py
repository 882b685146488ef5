"""Facts of a GGUF file about its model, its vocabulary, and the files that belong together.

Knows the meaning of the metadata's keys. :mod:`.metadata` reads them. Nothing
here knows an engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from causerie.engines.weights.errors import NotGguf
from causerie.engines.weights.metadata import GgufMetadata, MetadataFile
from causerie.engines.weights.tokens import (
    TokenTable,
    TokenType,
    ends,
    from_byte_level,
    from_byte_name,
    from_pieces,
)

_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_MAX_LAYERS = 4_096  # bounds what a hostile block count makes us build
_END_KEYS = ("eos", "eot", "eom")
_NAME_KEYS = ("name", "basename", "base_model.0.name")  # the most telling first
_SAMPLING = "general.sampling."
_FORGETTING = ("attention.sliding_window", "ssm.state_size", "shortconv.l_cache", "wkv.head_size")


@dataclass(frozen=True, slots=True)
class Header:
    """Facts of a model file. Numbers absent from the file are ``None`` or 0."""

    path: Path
    file_size: int
    """In bytes, of all parts of a split model."""
    architecture: str
    context_length: int
    """Length that the model was trained for, in tokens."""
    block_count: int
    embedding_length: int
    head_count_kv: tuple[int, ...]
    """One number a layer."""
    key_length: int
    value_length: int
    latent_length: int
    vocabulary_size: int
    chat_template: str
    names: tuple[str, ...]
    """Names of the model and of the one that it was made from."""
    sampling: Mapping[str, float]
    """Recommended sampling, by the keys of the file."""
    file_type: int | None = None
    """Number of the quantization that most tensors have."""
    cuts_back: bool = True
    """Whether the state of a prompt can be cut back to any of its tokens.

    A sliding window and recurrent layers forget what stood before.
    """

    @property
    def kept_elements(self) -> int:
        """Return the elements of the key-value cache that a token has over all layers."""
        if self.latent_length:
            return self.latent_length * self.block_count
        return sum(self.head_count_kv) * (self.key_length + self.value_length)


def parts(path: Path) -> tuple[Path, ...]:
    """Return all files of the model of ``path``: itself, or the parts of a split model."""
    match = _SPLIT.search(path.name)
    if match is None:
        return (path,)
    stem, total = path.name[: match.start()], match.group(2)
    ending = path.name[match.end() - 5 :]
    numbers = range(1, min(int(total), 9999) + 1)
    return tuple(path.with_name(f"{stem}-{n:05d}-of-{total}{ending}") for n in numbers)


def read_header(path: Path) -> Header:
    """Return the facts of the model file at ``path``; raise :class:`NotGguf` for anything else."""
    with MetadataFile(path) as data:
        return _header(path, data)


def _header(path: Path, data: GgufMetadata) -> Header:
    arch = data.text("general.architecture")
    if not arch:
        raise NotGguf(path, "it names no architecture (general.architecture)")

    def number(key: str) -> int:
        return max(data.integer(f"{arch}.{key}") or 0, 0)

    blocks, heads, width = (
        number("block_count"),
        number("attention.head_count"),
        number("embedding_length"),
    )
    per_head = width // heads if heads else 0
    latent = number("attention.kv_lora_rank")
    kv_heads = _kv_heads(data, arch, blocks, heads)
    return Header(
        path=path,
        file_size=sum(part.stat().st_size for part in parts(path) if part.exists()),
        architecture=arch,
        context_length=number("context_length"),
        block_count=blocks,
        embedding_length=width,
        head_count_kv=kv_heads,
        key_length=number("attention.key_length") or per_head,
        value_length=number("attention.value_length") or per_head,
        latent_length=latent + number("rope.dimension_count") if latent else 0,
        vocabulary_size=data.length("tokenizer.ggml.tokens") or number("vocab_size"),
        chat_template=data.text("tokenizer.chat_template"),
        names=tuple(name for key in _NAME_KEYS if (name := data.text(f"general.{key}"))),
        sampling=data.numbers_below(_SAMPLING),
        file_type=data.integer("general.file_type"),
        cuts_back=all(kv_heads) and not any(map(number, _FORGETTING)),
    )


def _kv_heads(data: GgufMetadata, arch: str, blocks: int, heads: int) -> tuple[int, ...]:
    """Return the key-value heads of each layer; hybrid models keep a cache in some layers only."""
    blocks = min(blocks, _MAX_LAYERS)
    given: Sequence[int] = data.integers(f"{arch}.attention.head_count_kv") or (heads,)
    per_layer = list(given) if len(given) > 1 else list(given) * blocks
    interval = data.integer(f"{arch}.full_attention_interval") or 1
    if interval > 1 and len(given) == 1:
        per_layer = [n if (i + 1) % interval == 0 else 0 for i, n in enumerate(per_layer)]
    return tuple(max(n, 0) for n in per_layer[: blocks or None])


def read_vocabulary(path: Path) -> TokenTable:
    """Return the vocabulary of the model file at ``path``; about 100 ms for the largest.

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
        named = [data.integer(f"tokenizer.ggml.{key}_token_id") for key in _END_KEYS]
        return TokenTable(
            tokens=_decoded(tokens, types, tokenizer),
            types=types,
            bos=data.integer("tokenizer.ggml.bos_token_id"),
            eos=data.integer("tokenizer.ggml.eos_token_id"),
            end=ends(named, tokens, types),
        )


def _decoded(tokens: Sequence[bytes], types: Sequence[int], tokenizer: str) -> tuple[bytes, ...]:
    plain = from_byte_level if tokenizer == "gpt2" else from_pieces
    ways = {
        TokenType.NORMAL: plain,
        TokenType.UNUSED: plain,
        TokenType.BYTE: from_byte_name,
    }
    return tuple(
        way(token) if (way := ways.get(TokenType(kind))) else token
        for token, kind in zip(tokens, types, strict=True)
    )
