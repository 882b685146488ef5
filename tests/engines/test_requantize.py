"""Weights of slow types are converted to Q8_0 once, by the engine's own functions."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from causerie.engines.base import EngineFailed, TextRequest, Token
from causerie.engines.llamacpp import requantize
from causerie.engines.llamacpp.conversion import converted
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions, for_machine
from causerie.engines.llamacpp.process import converted_weights
from causerie.engines.llamacpp.requantize import conversion, copies, slow_weights
from causerie.engines.weights.errors import NotGguf
from causerie.engines.weights.gguf import read_header, read_vocabulary
from causerie.engines.weights.metadata import MetadataFile, TensorTable
from causerie.protocol.parameters import SamplingParams

Q4_1, Q8_0 = 3, 8


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requantize, "has_fast_q8_0", lambda: True)


def table(path: Path) -> TensorTable:
    with MetadataFile(path) as data:
        return data.tensors()


def blocks(path: Path, name: bytes, size: int, count: int) -> list[bytes]:
    """The first ``count`` blocks of a tensor."""
    found = table(path)
    offset = next(one.offset for one in found.tensors if one.name == name)
    with path.open("rb") as file:
        file.seek(found.data + offset)
        return [file.read(size) for _ in range(count)]


def test_a_copy_has_the_same_numbers(gguf: Path, tmp_path: Path) -> None:
    told: list[float] = []
    copy = converted(gguf, tmp_path / "own" / "1", told.append)
    old, new = table(gguf), table(copy)
    assert [(one.name, one.shape) for one in old.tensors] == [
        (one.name, one.shape) for one in new.tensors
    ]
    assert {one.type for one in old.tensors} - {one.type for one in new.tensors} == {Q4_1}
    assert told == sorted(told)
    assert told[0] < 0.1
    assert told[-1] > 0.9
    name = next(one.name for one in old.tensors if one.type == Q4_1)
    pairs = zip(blocks(gguf, name, 20, 500), blocks(copy, name, 34, 500), strict=True)
    for before, after in pairs:
        scale, least = struct.unpack_from("<ee", before)
        low = [byte & 15 for byte in before[4:]] + [byte >> 4 for byte in before[4:]]
        (step,) = struct.unpack_from("<e", after)
        wanted = [scale * number + least for number in low]
        found = [step * number for number in struct.unpack_from("<32b", after, 2)]
        bound = abs(step) * 0.57 + 1e-6  # half a step, and the step itself is rounded
        assert all(abs(a - b) <= bound for a, b in zip(wanted, found, strict=True))
    kept = next(one.name for one in old.tensors if one.type == Q8_0)
    assert blocks(gguf, kept, 34, 100) == blocks(copy, kept, 34, 100)
    assert read_vocabulary(copy) == read_vocabulary(gguf)
    assert copy.stat().st_size == slow_size(gguf)
    for one, following in pairwise(sorted(new.tensors, key=lambda tensor: tensor.offset)):
        assert one.offset % new.alignment == 0
        assert one.offset < following.offset


def slow_size(path: Path) -> int:
    slow = slow_weights(path)
    assert slow is not None
    assert slow.names == "Q4_1"
    assert 1.5 < slow.gain < 1.7
    return slow.converted_size


def test_which_weights_are_converted(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = slow_weights(gguf)
    made = conversion(gguf, slow, "auto", tmp_path)
    assert made is not None
    assert not made.required
    assert made.folder.parent == copies(tmp_path, gguf)
    launch = for_machine(gguf, LlamaCppOptions(cache=tmp_path), read_header(gguf))
    plain = for_machine(gguf, LlamaCppOptions(requantize="off"), read_header(gguf))
    assert launch.memory - plain.memory == made.size - gguf.stat().st_size
    assert conversion(gguf, slow, "off", tmp_path) is None
    assert conversion(gguf, slow, "q8_0", None) is None
    monkeypatch.setattr(requantize, "_MOST_AUTOMATIC", made.size - 1)
    assert conversion(gguf, slow, "auto", tmp_path) is None
    forced = conversion(gguf, slow, "q8_0", tmp_path)
    assert forced is not None
    assert forced.required
    monkeypatch.setattr(requantize, "_MOST_AUTOMATIC", made.size)
    monkeypatch.setattr(requantize, "has_fast_q8_0", lambda: False)
    assert conversion(gguf, slow, "auto", tmp_path) is None


def test_a_copy_is_made_once_and_replaces_that_of_an_older_file(gguf: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.symlink_to(gguf)
    old = copies(tmp_path, own) / "older"
    old.mkdir(parents=True)
    (old / "own.gguf").touch()
    made = conversion(own, slow_weights(own), "auto", tmp_path)
    assert made is not None
    made.folder.mkdir()
    left = made.folder / ".own.gguf.0"  # by a conversion that was ended in the middle
    left.touch()
    os.utime(left, (0, 0))
    copy = converted(own, made.folder, lambda _: None)
    inode = copy.stat().st_ino
    assert not old.exists()
    assert converted(own, made.folder, pytest.fail) == copy
    assert copy.stat().st_ino == inode
    assert sorted(file.name for file in made.folder.iterdir()) == ["own.gguf"]


def test_a_disk_is_not_filled(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = slow_size(gguf) + 2**20
    usage = SimpleNamespace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OSError, match="No space left"):
        converted(gguf, tmp_path / "own" / "1", lambda _: None)
    assert not list((tmp_path / "own" / "1").iterdir())


def test_a_damaged_table_is_an_error(gguf: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(gguf.read_bytes()[: table(gguf).data - 100])
    with pytest.raises(NotGguf, match="ends"):
        slow_weights(cut)


async def test_the_engine_answers_with_converted_weights(gguf: Path, tmp_path: Path) -> None:
    with capture_logs() as lines:
        first = await answer(gguf, LlamaCppOptions(256, 1, cache=tmp_path))
    assert [line for line in lines if line["event"] == "weights are converted"]
    with capture_logs() as lines:
        second = await answer(gguf, LlamaCppOptions(256, 1, cache=tmp_path))
    assert not [line for line in lines if line["event"] == "weights are converted"]
    assert first == second
    assert len(first) == 8
    launch = LlamaCppEngine("small", gguf, LlamaCppOptions(256, 1, cache=tmp_path))._launch
    assert launch.conversion is not None
    copy = await converted_weights(launch, 60.0)  # for a native build, which does not convert
    assert copy == str(launch.conversion.folder / gguf.name)
    with capture_logs() as lines:
        await answer(gguf, LlamaCppOptions(256, 1, cache=tmp_path, requantize="off"))
    (told,) = [line for line in lines if line["event"] == "weights have slow types"]
    assert told["types"] == "Q4_1"
    assert "1.6 times as fast" in told["advice"]


async def test_a_conversion_that_fails(gguf: Path, tmp_path: Path) -> None:
    """A file stands where the folder is to be."""
    (tmp_path / "converted").touch()
    automatic = LlamaCppOptions(256, 1, cache=tmp_path)
    with capture_logs() as lines:
        assert len(await answer(gguf, automatic)) == 8
    assert [line for line in lines if line["event"] == "weights are not converted"]
    asked = LlamaCppOptions(256, 1, cache=tmp_path, requantize="q8_0")
    with pytest.raises(EngineFailed, match="cannot be converted"):
        await answer(gguf, asked)


async def answer(gguf: Path, options: LlamaCppOptions) -> list[int]:
    """The tokens of a short answer, and that the engine comes to its end."""
    engine = LlamaCppEngine("small", gguf, options)
    await engine.start()
    try:
        prompt = await engine.tokenize(["The capital of France is"], special=False)
        async with engine.generate(
            TextRequest(prompt, 8, SamplingParams(temperature=0.0))
        ) as output:
            return [one.id async for one in output if isinstance(one, Token)]
    finally:
        await asyncio.wait_for(engine.stop(), 60)
