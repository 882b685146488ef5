"""Adapters and draft models, with the real engine and files made here."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import struct
from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from casekit import first_of
from enginekit import THREADS
from hub import item, text

from causerie.engines.base import EngineFailed, EngineState, TextRequest, Token
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.engines.weights.gguf import read_header
from causerie.protocol.parameters import SamplingParams

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

PROMPT = "<|im_start|>user\nCount from one to fifty.<|im_end|>\n<|im_start|>assistant\n"
MADE = 8
RANK = 4
ALIGNMENT = 32
F32 = 0


@dataclass(frozen=True, slots=True)
class Matrix:
    """A tensor of a file: ``columns`` vary fastest, as GGUF counts dimensions."""

    columns: int
    rows: int
    values: Sequence[float]

    def content(self) -> bytes:
        """As the file has it, with what aligns the next one."""
        raw = array("f", self.values).tobytes()
        return raw + bytes(-len(raw) % ALIGNMENT)


def noise(columns: int, rows: int, scale: float) -> Matrix:
    drawn = random.Random(7)
    return Matrix(columns, rows, [drawn.gauss(0, scale) for _ in range(columns * rows)])


def write_adapter(path: Path, matrices: Mapping[str, Matrix]) -> None:
    """A GGUF file of a low-rank adapter (version 3 of the format, little-endian)."""
    facts = {
        "general.type": "adapter",
        "general.architecture": "llama",
        "adapter.type": "lora",
        "adapter.lora.alpha": float(RANK),
    }
    infos, data = b"", b""
    for name, matrix in matrices.items():
        infos += text(name) + struct.pack("<IQQIQ", 2, matrix.columns, matrix.rows, F32, len(data))
        data += matrix.content()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(matrices), len(facts))
    head += b"".join(item(key, value) for key, value in facts.items()) + infos
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)


def adapter(width: int, blocks: int, scale: float) -> dict[str, Matrix]:
    """One that adds to what every block's attention asks for and gives back."""
    made = {}
    for block in range(blocks):
        for part in ("attn_q", "attn_output"):
            made[f"blk.{block}.{part}.weight.lora_a"] = noise(width, RANK, 1.0)
            made[f"blk.{block}.{part}.weight.lora_b"] = noise(RANK, width, scale)
    return made


@asynccontextmanager
async def engine(gguf: Path, **options: object) -> AsyncIterator[LlamaCppEngine]:
    chosen = LlamaCppOptions(  # type: ignore[arg-type]  # fields by name
        context=256, parallel=1, threads=THREADS, **options
    )
    made = LlamaCppEngine("small", gguf, chosen)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def said(engine: LlamaCppEngine) -> list[int]:
    prompt = await engine.tokenize([PROMPT], special=True)
    request = TextRequest(prompt, MADE, SamplingParams(temperature=0.0), ignore_eos=True)
    async with engine.generate(request) as outputs:
        return [output.id async for output in outputs if isinstance(output, Token)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(gguf: Path) -> list[int]:
    """Return the model's output without an adapter."""
    async with engine(gguf) as alone:
        return await said(alone)


@pytest.mark.parametrize(("scale", "same"), first_of([(0.5, False), (0.0, True)]))
async def test_an_adapter_is_added_to_the_weights(
    gguf: Path, tmp_path: Path, plain: list[int], scale: float, same: bool
) -> None:
    header = read_header(gguf)
    file = tmp_path / "adapter.gguf"
    write_adapter(file, adapter(header.embedding_length, header.block_count, scale))
    async with engine(gguf, lora=(str(file),)) as adapted:
        assert (await said(adapted) == plain) is same


async def test_an_adapter_of_another_model_is_refused(gguf: Path, tmp_path: Path) -> None:
    file = tmp_path / "adapter.gguf"
    write_adapter(file, adapter(64, 1, 0.0))
    with pytest.raises(EngineFailed, match="incorrect shape"):
        async with engine(gguf, lora=(str(file),)):
            pass


async def test_an_adapter_that_is_missing_is_named(gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"nowhere\.gguf"):
        async with engine(gguf, lora=(str(tmp_path / "nowhere.gguf"),)):
            pass


@pytest.mark.parametrize("option", first_of(["lora", "draft"]))
async def test_a_file_beside_the_weights_that_is_wrong_is_named(
    gguf: Path, tmp_path: Path, option: str
) -> None:
    file = tmp_path / "text.gguf"
    file.write_text("hello")
    given = {option: (str(file),) if option == "lora" else str(file)}
    with pytest.raises(EngineFailed, match=rf"with {file}: .*invalid magic"):
        async with engine(gguf, **given):
            pass


@pytest.mark.parametrize("option", first_of(["lora", "draft"]))
async def test_a_file_beside_the_weights_that_is_gone_is_not_waited_for(
    gguf: Path, tmp_path: Path, option: str
) -> None:
    file = tmp_path / "alongside.gguf"
    if option == "draft":
        file.symlink_to(gguf)
    else:
        write_adapter(file, adapter(read_header(gguf).embedding_length, 1, 0.0))
    given = {option: (str(file),) if option == "lora" else str(file)}
    async with engine(gguf, **given) as made:
        file.unlink()
        assert made.pid is not None
        os.kill(made.pid, signal.SIGKILL)
        while made.status().state is not EngineState.ABSENT:
            await asyncio.sleep(0.01)
            assert made.status().restarts <= 1
        assert f"{file} does not exist any more" in made.status().detail


@pytest.mark.full
async def test_a_draft_model_says_ahead_and_changes_nothing(gguf: Path, plain: list[int]) -> None:
    async with engine(gguf, draft=str(gguf)) as drafted:
        assert await said(drafted) == plain
        body = {"prompt": PROMPT, "n_predict": 32, "temperature": 0, "ignore_eos": True}
        timings = (await drafted._client().ask("POST", "/completion", body))["timings"]
    assert 0 < timings["draft_n_accepted"] <= timings["draft_n"]
