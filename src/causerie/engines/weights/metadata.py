"""The head of a GGUF file, versions 2 and 3, read safely: its metadata and its table of tensors.

Maps the file, checks every length against the file's end before it reads, and
never allocates by a number that the file merely claims. Knows nothing about
what the keys mean, about the numbers in a tensor, or about any engine.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from causerie.engines.weights.errors import NotGguf

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
_MAX_DIMENSIONS = 4
_ALIGNMENT = 32  # bytes, where the file names none


@dataclass(frozen=True, slots=True)
class _Array:
    """Position of a long array in the file."""

    type: int
    count: int
    offset: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the table."""

    name: bytes
    shape: tuple[int, ...]
    type: int
    """Number of its type."""
    offset: int
    """In bytes, from the start of the data of all tensors."""


@dataclass(frozen=True, slots=True)
class TensorTable:
    """All tensors of a file, and the places of what surrounds them."""

    tensors: tuple[Tensor, ...]
    table: int
    """Byte of the file where the table begins."""
    data: int
    """Byte of the file where the data of all tensors begin."""
    alignment: int
    """In bytes, of the data and of each tensor in them."""


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
        self._tensors = self._number(_U64)
        count = self._number(_U64)
        if count > _MAX_KEYS:
            raise NotGguf(
                path,
                f"it claims {count} metadata keys; {_MAX_KEYS} is the most allowed",
            )
        for _ in range(count):
            key = self._string().decode("utf-8", "replace")
            self.values[key] = self._value(self._number(_U32), key)
        self._table = self._at

    def tensors(self) -> TensorTable:
        """Return the table of tensors; raise :class:`NotGguf` where it is damaged."""
        self._at = self._table
        found = []
        for _ in range(self._tensors):
            name, dimensions = self._string(), self._number(_U32)
            if dimensions > _MAX_DIMENSIONS:
                raise NotGguf(self._path, f"it has a tensor of {dimensions} dimensions")
            shape = tuple(self._number(_U64) for _ in range(dimensions))
            found.append(Tensor(name, shape, self._number(_U32), self._number(_U64)))
        alignment = max(self.integer("general.alignment") or _ALIGNMENT, 1)
        data = -(-self._at // alignment) * alignment
        return TensorTable(tuple(found), self._table, data, alignment)

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
            raise NotGguf(
                self._path,
                f"key {key!r} claims {count} items, more than the file holds",
            )
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
        """Return the number of items of the array under ``key``; 0 if there is none."""
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
        """Return the text under ``key``; empty if there is none."""
        value = self.values.get(key)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""

    def strings(self, key: str) -> list[bytes]:
        """Return the strings of the array under ``key``; empty if there is none."""
        span = self.values.get(key)
        if not isinstance(span, _Array) or span.type != _STRING:
            return []
        data, at, unpack, items = self._data, span.offset, _U64.unpack_from, []
        for _ in range(span.count):
            size = unpack(data, at)[0]
            items.append(data[at + 8 : at + 8 + size])
            at += 8 + size
        return items


class MetadataFile:
    """An open model file as a context manager: yields its :class:`GgufMetadata`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map: mmap.mmap | None = None

    def __enter__(self) -> GgufMetadata:
        try:
            with self._path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise NotGguf(self._path, "it is empty") from None
        except OSError as error:
            raise NotGguf(self._path, error.strerror or str(error)) from None
        try:
            return GgufMetadata(self._path, self._map)
        except NotGguf:
            self._map.close()
            raise

    def __exit__(self, *_: object) -> None:
        if self._map is not None:
            self._map.close()
