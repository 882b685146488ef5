"""Reads a GGUF file, versions 2 and 3, believing none of its numbers.

Yields facts about its model, vocabulary, quantization, and the files that belong together: parts,
and the projector that makes images into tokens.
"""

from __future__ import annotations

import mmap
import re
import struct
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from causerie.engines.weights.errors import NotGguf

_STRING, _ARRAY = 8, 9
_LETTERS: Mapping[int, str] = {  # of the other types, as `struct` has them
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_SIZE = struct.Struct("<Q").unpack_from
_MAX_KEYS = 65_536
_MAX_TENSORS = 1 << 16
_ALIGNMENT = 32  # of the tensors, where the file says nothing else
_MAX_ITEMS = 1 << 24  # no vocabulary comes near; bounds the walk over a hostile array
_MAX_STRING = 1 << 26  # bytes; the longest templates are a hundred kilobytes


@dataclass(frozen=True, slots=True)
class _Value:
    type: int
    count: int
    offset: int
    is_array: bool


class GgufMetadata:
    """The key-value pairs of one open file; values stay in the file until asked for."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._read_offset = 4
        self._locations_by_key: dict[str, _Value] = {}
        if data[:4] != b"GGUF":
            raise NotGguf(path, "it does not begin with the letters GGUF")
        version = self._read_number("I")
        if version not in (2, 3):
            raise NotGguf(path, f"version {version:#x} is neither 2 nor 3 (little-endian)")
        self._tensor_count = self._read_number("Q")
        count = self._read_number("Q")
        if count > _MAX_KEYS:
            raise NotGguf(path, f"it claims {count} metadata keys; {_MAX_KEYS} is the most allowed")
        for _ in range(count):
            key = self._read_string_bytes().decode("utf-8", "replace")
            self._locations_by_key[key] = self._read_location_and_skip_value(key)

    def _skip_bytes(self, size: int) -> int:
        start, end = self._read_offset, len(self._data)
        if size > end - start:
            raise NotGguf(self._path, f"it ends inside its metadata (at byte {end})")
        self._read_offset = start + size
        return start

    def _read_number(self, letter: str) -> int:
        form = struct.Struct(f"<{letter}")
        return int(form.unpack_from(self._data, self._skip_bytes(form.size))[0])

    def _read_string_bytes(self) -> bytes:
        size = self._read_number("Q")
        start = self._skip_bytes(size)
        if size > _MAX_STRING:
            raise NotGguf(self._path, f"it has a string of {size} bytes; {_MAX_STRING} is the most")
        return self._data[start : start + size]

    def _read_location_and_skip_value(self, key: str) -> _Value:
        kind = self._read_number("I")
        is_array = kind == _ARRAY
        kind, count = (self._read_number("I"), self._read_number("Q")) if is_array else (kind, 1)
        if kind != _STRING and kind not in _LETTERS:
            what = "is an array of the unsupported" if is_array else "has the unknown"
            raise NotGguf(self._path, f"key {key!r} {what} type {kind}")
        least = 8 if kind == _STRING else struct.calcsize(f"<{_LETTERS[kind]}")
        if is_array and (count > _MAX_ITEMS or count * least > len(self._data) - self._read_offset):
            raise NotGguf(self._path, f"key {key!r} claims {count} items, more than the file holds")
        value = _Value(kind, count, self._read_offset, is_array)
        if kind != _STRING:
            self._skip_bytes(count * least)
        elif is_array:
            self._skip_strings(count)
        else:
            self._read_string_bytes()
        return value

    def _skip_strings(self, count: int) -> None:
        data, end, at = self._data, len(self._data), self._read_offset
        for _ in range(count):
            if at + 8 > end:
                break
            at += 8 + _SIZE(data, at)[0]
        self._skip_bytes(max(at - self._read_offset, 8 * count))

    def require_tensors(self) -> None:
        """Raise :class:`NotGguf` if the file ends before its last tensor begins."""
        if (count := self._tensor_count) > _MAX_TENSORS:
            raise NotGguf(self._path, f"it claims {count} tensors; {_MAX_TENSORS} is most")
        last = 0
        for _ in range(self._tensor_count):
            _ = self._skip_bytes(self._read_number("Q"))  # the name
            _ = self._skip_bytes(8 * self._read_number("I") + 4)  # dimensions and type
            last = max(last, self._read_number("Q"))
        alignment = max(self.integer("general.alignment") or _ALIGNMENT, 1)
        begins = -(-self._read_offset // alignment) * alignment + last
        if self._tensor_count and begins >= len(self._data):
            raise NotGguf(
                self._path,
                f"it ends at byte {len(self._data):,} and its last tensor begins at byte "
                f"{begins:,}; fetch or copy it again",
            )

    def _numbers_of_key(self, key: str) -> tuple[int | float | bool, ...]:
        value = self._locations_by_key.get(key)
        if value is None or value.type == _STRING:
            return ()
        return struct.unpack_from(f"<{value.count}{_LETTERS[value.type]}", self._data, value.offset)

    def length(self, key: str) -> int:
        """Return the number of items of an array; 0 where there is none."""
        value = self._locations_by_key.get(key)
        return value.count if value is not None and value.is_array else 0

    def integers(self, key: str) -> tuple[int, ...]:
        """Return the numbers under ``key``: of an array, or a single one; empty without any."""
        return tuple(int(item) for item in self._numbers_of_key(key) if isinstance(item, int))

    def integer(self, key: str) -> int | None:
        """Return the number under ``key`` (the greatest of an array), or ``None``."""
        return max(self.integers(key), default=None)

    def numbers_below(self, prefix: str) -> dict[str, float]:
        """Return the numbers under keys that begin with ``prefix``, by the rest of each key."""
        return {
            key.removeprefix(prefix): number if isinstance(number, int) else float(f"{number:.6g}")
            for key, value in self._locations_by_key.items()
            if key.startswith(prefix) and not value.is_array
            for number in self._numbers_of_key(key)
            if not isinstance(number, bool)
        }

    def text(self, key: str) -> str:
        value = self._locations_by_key.get(key)
        if value is None or value.is_array or value.type != _STRING:
            return ""
        return b"".join(self._strings_of_value(value)).decode("utf-8", "replace")

    def strings(self, key: str) -> list[bytes]:
        value = self._locations_by_key.get(key)
        if value is None or not value.is_array or value.type != _STRING:
            return []
        return list(self._strings_of_value(value))

    def _strings_of_value(self, value: _Value) -> Iterator[bytes]:
        data, at = self._data, value.offset
        for _ in range(value.count):
            size = _SIZE(data, at)[0]
            yield data[at + 8 : at + 8 + size]
            at += 8 + size


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


class _Quantization(Struct, frozen=True):
    file_type: int
    bits: float | None = None
    usual: bool = False


_QUANTIZATIONS = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("quantizations.toml").read_text("utf-8")),
    dict[str, _Quantization],
)
_QUANTIZATION_NAMES = {one.file_type: name for name, one in _QUANTIZATIONS.items()}
_QUANTIZATION_IN_NAME = re.compile(
    r"(?<![a-z0-9])(i?q[1-8]_(?:[0-9]|k|[xsmln]+)(?:_[sml]|_xl)?|bf16|f16|f32|mxfp4|tq[12]_0)"
    r"(?![a-z0-9_])",
    re.IGNORECASE,
)


def quantization_of_name(name: str) -> str | None:
    """Return the last quantization that a file's name contains, or ``None``."""
    found = _QUANTIZATION_IN_NAME.findall(name)
    return found[-1].upper() if found else None


def smaller_that_fits(name: str | None, size: int, room: int) -> tuple[str, int] | None:
    """Return the largest usual quantization below ``name`` that fits into ``room``, with its bytes.

    The model has ``size`` bytes in the quantization ``name``. The result has the estimated bytes;
    ``None`` where nothing smaller fits, or ``name`` is not known.
    """
    known = _QUANTIZATIONS.get(name or "")
    if known is None or known.bits is None:
        return None
    estimates = (
        (other, round(size * one.bits / known.bits))
        for other, one in _QUANTIZATIONS.items()
        if one.usual and one.bits is not None and one.bits < known.bits
    )
    return next((found for found in estimates if found[1] <= room), None)


_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_MAX_LAYERS = 4_096  # bounds what a hostile block count makes us build
_NAME_KEYS = ("name", "basename", "base_model.0.name")  # the most telling first
_FORGETTING = ("attention.sliding_window", "ssm.state_size", "shortconv.l_cache", "wkv.head_size")


@dataclass(frozen=True, slots=True)
class Header:
    """Facts of a model file. Numbers absent from the file are ``None`` or 0."""

    path: Path
    file_size: int  # in bytes, of all parts of a split model
    architecture: str
    context_length: int  # length that the model was trained for, in tokens
    block_count: int
    embedding_length: int
    head_count_kv: tuple[int, ...]  # one number a layer
    key_length: int
    value_length: int
    latent_length: int
    vocabulary_size: int
    chat_template: str
    names: tuple[str, ...]  # names of the model and of the one that it was made from
    sampling: Mapping[str, float]  # recommended sampling, by the keys of the file
    file_type: int | None = None  # number of the quantization that most tensors have
    pooling: int | None = None  # number of the pooling of an embedding model
    cuts_back: bool = True
    """Prompts can be cut back to any token: sliding windows and recurrent layers forget."""

    @property
    def kept_elements(self) -> int:
        """Return how many elements of the key-value cache a token takes in all layers together."""
        if self.latent_length:
            return self.latent_length * self.block_count
        return sum(self.head_count_kv) * (self.key_length + self.value_length)

    @property
    def quantization(self) -> str | None:
        """Return the name of the quantization, as the file or its name says it."""
        told = None if self.file_type is None else _QUANTIZATION_NAMES.get(self.file_type)
        return told or quantization_of_name(self.path.stem)


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
        arch = data.text("general.architecture")
        if not arch:
            raise NotGguf(path, "it names no architecture (general.architecture)")
        data.require_tensors()

        def number(key: str) -> int:
            return max(data.integer(f"{arch}.{key}") or 0, 0)

        blocks, heads = number("block_count"), number("attention.head_count")
        width = number("embedding_length")
        per_head = width // heads if heads else 0
        latent = number("attention.kv_lora_rank")
        kv_heads = _kv_heads_per_layer(data, arch, blocks, heads)
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
            sampling=data.numbers_below("general.sampling."),
            file_type=data.integer("general.file_type"),
            pooling=data.integer(f"{arch}.pooling_type"),
            cuts_back=all(kv_heads) and not any(map(number, _FORGETTING)),
        )


def _kv_heads_per_layer(data: GgufMetadata, arch: str, blocks: int, heads: int) -> tuple[int, ...]:
    # Hybrid models have key-value heads in some layers only.
    blocks = min(blocks, _MAX_LAYERS)
    given: Sequence[int] = data.integers(f"{arch}.attention.head_count_kv") or (heads,)
    per_layer = list(given) if len(given) > 1 else list(given) * blocks
    interval = data.integer(f"{arch}.full_attention_interval") or 1
    if interval > 1 and len(given) == 1:
        per_layer = [n if (i + 1) % interval == 0 else 0 for i, n in enumerate(per_layer)]
    return tuple(max(n, 0) for n in per_layer[: blocks or None])


# Projectors: the files (`mmproj`) that make an image into tokens of a text model. One lies beside
# the weights, in a repository or in a folder, and fits models of one width.

_MMPROJ = re.compile(r"(?<![a-z0-9])mmproj(?![a-z0-9])", re.IGNORECASE)
# The smallest projector that loses nothing comes first.
_BEST_KINDS = ("F16", "BF16", "Q8_0", "F32")
_WORD = re.compile(r"[a-z0-9]+")


def choose_projector(files: Iterable[str]) -> tuple[str, ...]:
    """Return the name of the projector among the files of a repository; empty without one."""
    found = [name for name in files if name.lower().endswith(".gguf") and _MMPROJ.search(name)]
    return tuple(sorted(found, key=_projector_quantization_rank)[:1])


def projector_beside(header: Header) -> Path | None:
    """Return the best-named fitting projector in a model's folder, or ``None``. Blocks."""
    if _MMPROJ.search(header.path.name):
        return None
    try:
        files = [file for file in header.path.parent.iterdir() if choose_projector([file.name])]
    except OSError:
        return None
    fitting = [file for file in files if _projection_width(file) == header.embedding_length]
    own = _words_of_name(header.path)
    fitting.sort(
        key=lambda file: (-len(own & _words_of_name(file)), _projector_quantization_rank(file.name))
    )
    return fitting[0] if fitting else None


def _projector_quantization_rank(name: str) -> tuple[int, str]:
    kind = quantization_of_name(name.removesuffix(".gguf"))
    return _BEST_KINDS.index(kind) if kind in _BEST_KINDS else len(_BEST_KINDS), name


def _words_of_name(file: Path) -> set[str]:
    return set(_WORD.findall(file.stem.lower()))


def check_projector(file: Path) -> None:
    """Raise :class:`NotGguf` unless a file is a projector for images. Blocks."""
    with open_metadata(file) as data:
        if data.integer("clip.vision.projection_dim") is None:
            raise NotGguf(file, "it is no projector for images (`mmproj`)")


def reads_images_whole(file: Path) -> bool:
    """Return whether an image's tokens attend to each other, so one step has to read them all."""
    with open_metadata(file) as data:
        return data.text("clip.projector_type").startswith("gemma")


def _projection_width(file: Path) -> int | None:
    try:
        with open_metadata(file) as data:
            return data.integer("clip.vision.projection_dim")
    except NotGguf:
        return None
