"""Writes a model file anew with its slow tensors in Q8_0, by the engine's own functions.

Belongs to the child process, which has the engine. The functions are called by their symbols,
since the binding has no call for them; a build of it that does not export them cannot convert.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import xllamacpp

from causerie.engines.llamacpp.requantize import BLOCK, Q8_0_BYTES, SLOW_TYPES
from causerie.engines.weights.gguf import parts
from causerie.engines.weights.metadata import MetadataFile, Tensor, TensorTable

_Q8_0 = 8  # number of the type
_AT_ONCE = 32_768 * BLOCK  # elements; 4 MB as floats
_SLACK = 32 << 20  # bytes left free on the disk
_LEFT_SECONDS = 60.0  # a conversion that goes on writes many times a second
_FROM_FLOATS = "ggml_quantize_chunk"
_TO_FLOATS = "dequantize_row_{}"


class CannotConvert(Exception):
    """This build of the engine does not export what a conversion needs."""


def converted(weights: Path, folder: Path, tell: Callable[[float], None]) -> Path:
    """Return the copy of ``weights`` in ``folder``, which is made if it is not there.

    ``tell`` hears the fraction that is done. Copies of the same file as it was before are
    deleted. Raises :class:`CannotConvert`, and :class:`OSError` where the copy cannot be written.
    """
    files = parts(weights)
    missing = [file for file in files if not (folder / file.name).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        engine = _Engine()
        total = sum(file.stat().st_size for file in missing)
        done = 0
        for file in missing:
            for read in _convert(file, folder / file.name, engine):
                tell((done + read) / total)
            done += file.stat().st_size
        for other in folder.parent.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
    return folder / weights.name


class _Engine:
    """Functions of the engine's library."""

    def __init__(self) -> None:
        library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
        try:
            self._quantize = library[_FROM_FLOATS]
            self._floats = {
                number: library[_TO_FLOATS.format(slow.name.lower())]
                for number, slow in SLOW_TYPES.items()
            }
        except AttributeError as error:
            raise CannotConvert(str(error)) from error
        pointer, count = ctypes.c_void_p, ctypes.c_int64
        self._quantize.argtypes = (ctypes.c_int, pointer, pointer, count, count, count, pointer)
        self._quantize.restype = ctypes.c_size_t
        for function in self._floats.values():
            function.argtypes, function.restype = (pointer, pointer, count), None
        self._between = (ctypes.c_float * _AT_ONCE)()
        self._out = (ctypes.c_char * (_AT_ONCE // BLOCK * Q8_0_BYTES))()

    def q8_0(self, type: int, data: bytes) -> memoryview[Any]:
        """Return the blocks of ``data``, of the slow type ``type``, in Q8_0, until the next call.

        ``data`` holds at most ``_AT_ONCE`` elements.
        """
        count = len(data) // SLOW_TYPES[type].block_bytes * BLOCK
        self._floats[type](data, self._between, count)
        size = self._quantize(_Q8_0, self._between, self._out, 0, 1, count, None)
        return memoryview(self._out)[:size]


def _sweep(folder: Path) -> None:
    """Delete what conversions left behind that were ended in the middle."""
    now = datetime.now(UTC).timestamp()
    for partial in folder.glob(".*"):
        with suppress(OSError):  # it has become a copy meanwhile, say
            if now - partial.stat().st_mtime > _LEFT_SECONDS:
                partial.unlink()


def _convert(source: Path, target: Path, engine: _Engine) -> Iterator[int]:
    """Write ``target``; yield the bytes of ``source`` that are read, before each tensor."""
    partial = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with MetadataFile(source) as data:
            table = data.tensors()
        _ensure_space(target, table, source.stat().st_size)
        with source.open("rb") as old, partial.open("wb") as new:
            _write_head(old, new, table)
            for tensor, size in _placed(table, source.stat().st_size):
                _pad(new, table.alignment)
                yield old.seek(table.data + tensor.offset)
                for piece in _pieces(old, tensor, size, engine):
                    new.write(piece)
            new.flush()
            os.fsync(new.fileno())  # else a power cut leaves an empty file that counts as the copy
        partial.replace(target)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def _ensure_space(target: Path, table: TensorTable, end: int) -> None:
    """Raise :class:`OSError` before the disk is full, which others write to as well."""
    needed = table.data + sum(_new_size(tensor, size) for tensor, size in _placed(table, end))
    if needed + _SLACK > shutil.disk_usage(target.parent).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))


def _write_head(old: BinaryIO, new: BinaryIO, table: TensorTable) -> None:
    """Write metadata as they are, and the table with other types and places."""
    new.write(old.read(table.table))
    places: dict[bytes, int] = {}
    at = 0
    for tensor, size in _placed(table, old.seek(0, 2)):
        at = -(-at // table.alignment) * table.alignment
        places[tensor.name] = at
        at += _new_size(tensor, size)
    for tensor in table.tensors:
        new.write(struct.pack("<Q", len(tensor.name)) + tensor.name)
        new.write(struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape))
        type = _Q8_0 if tensor.type in SLOW_TYPES else tensor.type
        new.write(struct.pack("<IQ", type, places[tensor.name]))
    old.seek(0)


def _placed(table: TensorTable, end: int) -> Iterator[tuple[Tensor, int]]:
    """Yield the tensors in the order of their data, each with its bytes and what pads them."""
    ordered = sorted(table.tensors, key=lambda tensor: tensor.offset)
    ends = [*(tensor.offset for tensor in ordered[1:]), end - table.data]
    for tensor, behind in zip(ordered, ends, strict=True):
        yield tensor, behind - tensor.offset


def _new_size(tensor: Tensor, size: int) -> int:
    if tensor.type not in SLOW_TYPES:
        return size
    return math.prod(tensor.shape) // BLOCK * Q8_0_BYTES


def _pieces(
    old: BinaryIO, tensor: Tensor, size: int, engine: _Engine
) -> Iterator[bytes | memoryview[Any]]:
    slow = SLOW_TYPES.get(tensor.type)
    left = size if slow is None else math.prod(tensor.shape) // BLOCK * slow.block_bytes
    most = _AT_ONCE if slow is None else _AT_ONCE // BLOCK * slow.block_bytes
    while left:
        data = old.read(min(left, most))
        if not data:
            raise OSError(f"{tensor.name.decode('utf-8', 'replace')} ends too early")
        left -= len(data)
        yield data if slow is None else engine.q8_0(tensor.type, data)


def _pad(file: BinaryIO, alignment: int) -> None:
    file.write(bytes(-file.tell() % alignment))
