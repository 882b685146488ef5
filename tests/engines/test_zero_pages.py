"""Memory of the engine's process: what it reserves costs nothing before it is used."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from casekit import each_of

from causerie.engines.base import TextRequest, Token
from causerie.engines.llamacpp.child import private_mappings
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.protocol.parameters import SamplingParams

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is done on Linux only")

MB = 10**6
BAR = 300 * MB  # for 98 MB of weights
LONG = 1000  # tokens of the conversation that the bar is about: they take some seconds to read
GREEDY = SamplingParams(temperature=0.0)

# Four pieces of 32 MiB that all are written to: zeros, ones, zeros with one byte, zeros.
WRITTEN = """
import mmap
from pathlib import Path
from causerie.engines.llamacpp.child import give_back_zero_pages
MIB = 2**20
memory = mmap.mmap(-1, 128 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(bytes(32 * MIB) + b"\\1" * 32 * MIB + bytes(64 * MIB))
memory[70 * MIB + 5] = 7
before = memory[:]
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
full = resident()
given = give_back_zero_pages()
print(given // MIB, (full - resident()) // MIB)
assert memory[:] == before
"""


def resident(engine: LlamaCppEngine) -> int:
    """The bytes of memory that the engine's process has, its share of the weights' file too."""
    status = Path(f"/proc/{engine.pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def test_zeros_are_given_back_and_nothing_else_is_changed() -> None:
    command = [sys.executable, "-P", "-c", WRITTEN]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    given, freed = (int(number) for number in done.stdout.split())
    # Of 96 MiB of zeros one huge page has a byte in it; two lie across the ends, which may
    # begin anywhere, and the copy that is compared is no smaller than a heap either.
    assert given >= 96 - 4 * 2
    assert freed >= 96 - 4 * 2 - 4


@each_of(
    ("line", "taken"),
    [
        ("7f0000000000-7f0008000000 rw-p 00000000 00:00 0", True),
        ("7f0000000000-7f0008000000 rw-p 00000000 00:00 0   [anon: glibc: mmap malloc]", True),
        ("7f0000000000-7f0004000000 rw-p 00000000 00:00 0", False),  # a heap of the C library
        ("7f0000000000-7f0008000000 rw-p 00000000 00:00 0   [heap]", False),
        ("7f0000000000-7f0008000000 rw-p 00000000 fe:00 77  /weights of mine.gguf", False),
        ("7f0000000000-7f0008000000 rw-s 00000000 00:01 77  /memfd:prompt (deleted)", False),
        ("7f0000000000-7f0008000000 ---p 00000000 00:00 0", False),
    ],
)
def test_only_large_private_mappings_without_a_file_are_looked_at(line: str, taken: bool) -> None:
    expected = [range(0x7F0000000000, 0x7F0008000000)] if taken else []
    assert list(private_mappings([line])) == expected


async def generated(engine: LlamaCppEngine, prompt: list[int]) -> list[int]:
    request = TextRequest(prompt, 4, GREEDY, ignore_eos=True)
    async with engine.generate(request) as outputs:
        return [output.id async for output in outputs if isinstance(output, Token)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(gguf: Path) -> AsyncIterator[LlamaCppEngine]:
    """With the defaults: four slots or more, each of which may become 8192 tokens long."""
    made = LlamaCppEngine("small", gguf, LlamaCppOptions())
    await made.start()
    yield made
    await made.stop()


@pytest.mark.full
@pytest.mark.engine
@pytest.mark.asyncio(loop_scope="module")
async def test_the_default_model_is_small_idle_and_with_a_conversation(
    engine: LlamaCppEngine,
) -> None:
    idle = resident(engine)
    assert engine.memory_bytes > 3 * BAR  # that is what it may need one day
    assert idle <= BAR
    prompt = [100 + index * 7919 % 40_000 for index in range(LONG)]
    first = await generated(engine, prompt)
    once = resident(engine)
    assert idle < once <= BAR
    assert await generated(engine, prompt) == first
    assert resident(engine) <= once + 2 * MB


@pytest.mark.engine
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.full
async def test_what_is_given_back_changes_no_answer(engine: LlamaCppEngine, gguf: Path) -> None:
    small = LlamaCppEngine("small", gguf, LlamaCppOptions(context=256, parallel=1, threads=2))
    await small.start()  # its cache is too small to be given back
    try:
        prompt = [100 + index * 7919 % 40_000 for index in range(60)]
        assert await generated(engine, prompt) == await generated(small, prompt)
    finally:
        await small.stop()
