"""Reads a GGUF file, versions 2 and 3, believing none of its numbers.

Yields facts about its model, vocabulary, quantization, and the files that belong together.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from causerie.engines.weights.errors import NotGguf
from causerie.engines.weights.tokens import (
    TokenTable,
    TokenType,
    ends,
    from_byte_level,
    from_byte_name,
    from_pieces,
)

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS: Mapping[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32, _U64 = _SCALARS[4], _SCALARS[10]
_MAX_KEYS = 65_536
_MAX_ITEMS = 1 << 24  # no vocabulary comes near; bounds the walk over a hostile array
_INLINE_ITEMS = 4_096  # arrays up to here (per-layer numbers) are read, longer ones noted
_MAX_STRING = 1 << 26  # bytes; the longest templates are a hundred kilobytes


@dataclass(frozen=True, slots=True)
class _Array:
    type: int
    count: int
    offset: int


Value = int | float | bool | bytes | tuple[int | float | bool | bytes, ...] | _Array


class GgufMetadata:
    """The key-value pairs of one open file; long arrays stay in the file until asked for."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._end = len(data)
        self._at = 0
        self.values: dict[str, Value] = {}
        if data[:4] != _MAGIC:
            raise NotGguf(path, "it does not begin with the letters GGUF")
        self._at = 4
        version = self._number(_U32)
        if version not in _VERSIONS:
            raise NotGguf(path, f"version {version:#x} is neither 2 nor 3 (little-endian)")
        _ = self._number(_U64)  # of tensors
        count = self._number(_U64)
        if count > _MAX_KEYS:
            raise NotGguf(path, f"it claims {count} metadata keys; {_MAX_KEYS} is the most allowed")
        for _ in range(count):
            key = self._string().decode("utf-8", "replace")
            self.values[key] = self._value(self._number(_U32), key)

    def _need(self, size: int) -> int:
        start = self._at
        if size > self._end - start:
            raise NotGguf(self._path, f"it ends inside its metadata (at byte {self._end})")
        self._at = start + size
        return start

    def _number(self, kind: struct.Struct) -> int:
        return int(kind.unpack_from(self._data, self._need(kind.size))[0])

    def _string(self) -> bytes:
        size = self._number(_U64)
        start = self._need(size)
        if size > _MAX_STRING:
            raise NotGguf(self._path, f"it has a string of {size} bytes; {_MAX_STRING} is the most")
        return self._data[start : start + size]

    def _value(self, kind: int, key: str) -> Value:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(key)
        scalar = _SCALARS.get(kind)
        if scalar is None:
            raise NotGguf(self._path, f"key {key!r} has the unknown type {kind}")
        value: int | float | bool = scalar.unpack_from(self._data, self._need(scalar.size))[0]
        return value

    def _array(self, key: str) -> Value:
        kind, count = self._number(_U32), self._number(_U64)
        if kind != _STRING and kind not in _SCALARS:
            raise NotGguf(self._path, f"key {key!r} is an array of the unsupported type {kind}")
        smallest = 8 if kind == _STRING else _SCALARS[kind].size
        if count > _MAX_ITEMS or count * smallest > self._end - self._at:
            raise NotGguf(self._path, f"key {key!r} claims {count} items, more than the file holds")
        span = _Array(kind, count, self._at)
        if kind == _STRING:
            self._skip_strings(count)
        else:
            self._need(count * smallest)
        if kind != _STRING and count <= _INLINE_ITEMS:
            return self._numbers(span)
        return span

    def _skip_strings(self, count: int) -> None:
        data, end, at, unpack = self._data, self._end, self._at, _U64.unpack_from
        for _ in range(count):
            if at + 8 > end:
                break
            at += 8 + unpack(data, at)[0]
        else:
            if at <= end:
                self._at = at
                return
        raise NotGguf(self._path, f"it ends inside its metadata (at byte {end})")

    def _numbers(self, span: _Array) -> tuple[int | float | bool, ...]:
        letter = _SCALARS[span.type].format[1:]
        return struct.unpack_from(f"<{span.count}{letter}", self._data, span.offset)

    def length(self, key: str) -> int:
        value = self.values.get(key)
        if isinstance(value, _Array):
            return value.count
        return len(value) if isinstance(value, tuple) else 0

    def integers(self, key: str) -> tuple[int, ...]:
        """Return the numbers under ``key``: of an array, or a single one; empty without any."""
        value = self.values.get(key)
        if isinstance(value, _Array) and value.type != _STRING:
            value = self._numbers(value)
        if isinstance(value, tuple):
            return tuple(int(item) for item in value if isinstance(item, int))
        return (int(value),) if isinstance(value, int) else ()

    def integer(self, key: str) -> int | None:
        """Return the number under ``key`` (the greatest of an array), or ``None``."""
        return max(self.integers(key), default=None)

    def numbers_below(self, prefix: str) -> dict[str, float]:
        """Return the single numbers whose keys begin so, by the rest of their keys.

        Fractions are rounded to the digits that single precision holds: 0.6 is 0.6.
        """
        found: dict[str, float] = {}
        for key, value in self.values.items():
            if not key.startswith(prefix) or isinstance(value, bool):
                continue
            if isinstance(value, int | float):
                found[key.removeprefix(prefix)] = (
                    value if isinstance(value, int) else float(f"{value:.6g}")
                )
        return found

    def text(self, key: str) -> str:
        value = self.values.get(key)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""

    def strings(self, key: str) -> list[bytes]:
        span = self.values.get(key)
        if not isinstance(span, _Array) or span.type != _STRING:
            return []
        data, at, unpack, items = self._data, span.offset, _U64.unpack_from, []
        for _ in range(span.count):
            size = unpack(data, at)[0]
            items.append(data[at + 8 : at + 8 + size])
            at += 8 + size
        return items


@contextmanager
def open_metadata(path: Path) -> Iterator[GgufMetadata]:
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise NotGguf(path, "it is empty") from None
    except OSError as error:
        raise NotGguf(path, error.strerror or str(error)) from None
    with data:
        yield GgufMetadata(path, data)


# `general.file_type` of a GGUF file, as llama.cpp numbers its types.
_FILE_TYPES: Mapping[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
_QUANTIZATION_IN_NAME = re.compile(
    r"(?<![a-z0-9])(i?q[1-8]_(?:[0-9]|k|[xsmln]+)(?:_[sml]|_xl)?|bf16|f16|f32|mxfp4|tq[12]_0)"
    r"(?![a-z0-9_])",
    re.IGNORECASE,
)


def quantization_of_type(number: int | None) -> str | None:
    return None if number is None else _FILE_TYPES.get(number)


def quantization_of_name(name: str) -> str | None:
    """Return the quantization that a file's name ends with, or ``None``."""
    found = _QUANTIZATION_IN_NAME.findall(name)
    return found[-1].upper() if found else None


# Bits that one weight takes in a whole file: its blocks with their scales, and tensors that are
# kept more exactly. Estimates; of small models, whose vocabularies weigh more, they are too low.
_BITS_PER_WEIGHT: Mapping[str, float] = {
    "F32": 32.0, "F16": 16.0, "BF16": 16.0, "Q8_0": 8.5, "Q6_K": 6.6, "Q5_K_M": 5.7, "Q5_K_S": 5.5,
    "Q5_1": 6.0, "Q5_0": 5.6, "Q4_1": 5.1, "Q4_K_M": 4.9, "Q4_K_S": 4.6, "Q4_0": 4.6, "IQ4_NL": 4.6,
    "MXFP4": 4.5, "IQ4_XS": 4.4, "Q3_K_L": 4.3, "Q3_K_M": 3.9, "Q3_K_S": 3.5, "Q2_K": 3.3,
}  # fmt: skip
# What most repositories have.
_USUAL_QUANTIZATIONS = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")


def smaller_that_fits(name: str | None, size: int, room: int) -> tuple[str, int] | None:
    """Return the largest usual quantization of the model that fits into ``room`` bytes.

    The model has ``size`` bytes in the quantization ``name``. The result has the estimated bytes;
    ``None`` where nothing smaller fits, or ``name`` is not known.
    """
    bits = _BITS_PER_WEIGHT.get(name or "")
    if bits is None:
        return None
    estimates = (
        (one, round(size * _BITS_PER_WEIGHT[one] / bits))
        for one in _USUAL_QUANTIZATIONS
        if _BITS_PER_WEIGHT[one] < bits
    )
    return next((found for found in estimates if found[1] <= room), None)


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
    pooling: int | None = None
    """Number of the pooling of an embedding model."""
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


def gguf_parts(path: Path) -> tuple[Path, ...]:
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
    with open_metadata(path) as data:
        return _header(path, data)


def _header(path: Path, data: GgufMetadata) -> Header:
    arch = data.text("general.architecture")
    if not arch:
        raise NotGguf(path, "it names no architecture (general.architecture)")

    def number(key: str) -> int:
        return max(data.integer(f"{arch}.{key}") or 0, 0)

    blocks, heads = number("block_count"), number("attention.head_count")
    width = number("embedding_length")
    per_head = width // heads if heads else 0
    latent = number("attention.kv_lora_rank")
    kv_heads = _kv_heads(data, arch, blocks, heads)
    return Header(
        path=path,
        file_size=sum(part.stat().st_size for part in gguf_parts(path) if part.exists()),
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
        pooling=data.integer(f"{arch}.pooling_type"),
        cuts_back=all(kv_heads) and not any(map(number, _FORGETTING)),
    )


def _kv_heads(data: GgufMetadata, arch: str, blocks: int, heads: int) -> tuple[int, ...]:
    # Hybrid models have key-value heads in some layers only.
    blocks = min(blocks, _MAX_LAYERS)
    given: Sequence[int] = data.integers(f"{arch}.attention.head_count_kv") or (heads,)
    per_layer = list(given) if len(given) > 1 else list(given) * blocks
    interval = data.integer(f"{arch}.full_attention_interval") or 1
    if interval > 1 and len(given) == 1:
        per_layer = [n if (i + 1) % interval == 0 else 0 for i, n in enumerate(per_layer)]
    return tuple(max(n, 0) for n in per_layer[: blocks or None])


def read_gguf_vocabulary(path: Path) -> TokenTable:
    """Return the vocabulary of the model file at ``path``; about 100 ms for the largest.

    Raises :class:`NotGguf` for a file that is none, or has no vocabulary.
    """
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
    decoders = {TokenType.NORMAL: plain, TokenType.UNUSED: plain, TokenType.BYTE: from_byte_name}
    return tuple(
        decode(token) if (decode := decoders.get(TokenType(kind))) else token
        for token, kind in zip(tokens, types, strict=True)
    )
