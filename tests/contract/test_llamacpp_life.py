"""llama.cpp's process: what a sudden end of it, or of us, leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from enginekit import CONTEXT, SLOTS, THREADS, Subject
from waiting import gone

from causerie.engines.base import EngineFailed, EngineState, Started, TextRequest, Token
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions

needs_pidfd = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="the end of a stranger's process can be awaited on Linux"
)

PARENT = """
import asyncio, sys
from pathlib import Path
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions

async def main():
    command = (*sys.argv[2:], None)[0]
    options = LlamaCppOptions(context=256, parallel=1, threads=1, command=command)
    engine = LlamaCppEngine("a", Path(sys.argv[1]), options)
    await engine.start()
    print("pid", engine.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(params=["package", "native"])
def command(request: pytest.FixtureRequest) -> str | None:
    """The program that runs the model, or ``None`` for the package that the service brings."""
    return request.getfixturevalue("llama_server") if request.param == "native" else None


@asynccontextmanager
async def running(weights: Path, command: str | None) -> AsyncIterator[LlamaCppEngine]:
    options = LlamaCppOptions(command=command, context=CONTEXT, parallel=SLOTS, threads=THREADS)
    engine = LlamaCppEngine("a", weights, options)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


def family(pid: int) -> list[int]:
    """Return the process and those that it has started."""
    started = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [pid, *started]


async def another(engine: LlamaCppEngine, pid: int) -> None:
    """Return once another process of the engine is ready. A restart has no event to wait for."""
    async with asyncio.timeout(60):
        while True:
            if engine.pid not in (None, pid):
                return
            await asyncio.sleep(0.02)


@pytest.mark.full
async def test_a_killed_process_fails_what_runs_and_comes_back(
    gguf: Path, command: str | None
) -> None:
    async with running(gguf, command) as engine:
        subject = Subject(engine, await engine.facts())
        prompt = await subject.prompt("Tell me a story.")
        pid = engine.pid
        assert pid is not None
        with pytest.raises(EngineFailed):
            async with engine.generate(TextRequest(prompt, 400, ignore_eos=True)) as output:
                async for item in output:
                    if isinstance(item, Token) and engine.pid == pid:
                        os.kill(pid, signal.SIGKILL)
        assert engine.status().busy == 0
        await another(engine, pid)
        status = engine.status()
        assert (status.state, status.restarts) == (EngineState.READY, 1)
        assert len((await subject.run(TextRequest(prompt, 3, ignore_eos=True))).tokens) == 3


async def test_signals_to_all_processes_of_the_service_do_not_end_it(
    gguf: Path, command: str | None
) -> None:
    """The service itself says when: it may reload, or finish running answers first."""
    async with running(gguf, command) as engine:
        subject = Subject(engine, await engine.facts())
        assert engine.pid is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(engine.pid, number)
        prompt = await subject.prompt("Tell me a story.")
        assert len((await subject.run(TextRequest(prompt, 3, ignore_eos=True))).tokens) == 3
        assert engine.status().restarts == 0


@pytest.mark.full
@needs_pidfd
async def test_stopping_ends_the_process(gguf: Path, command: str | None) -> None:
    async with running(gguf, command) as engine:
        assert engine.pid is not None
        processes = family(engine.pid)
    for pid in processes:
        await gone(pid)
    assert engine.status().state is EngineState.ABSENT
    assert engine.pid is None


@needs_pidfd
async def test_stopping_in_the_middle_ends_the_generation(gguf: Path, command: str | None) -> None:
    async with running(gguf, command) as engine:
        prompt = await Subject(engine, await engine.facts()).prompt("Tell me a story.")
        pid = engine.pid
        assert pid is not None
        with pytest.raises(EngineFailed):
            async with engine.generate(TextRequest(prompt, 400, ignore_eos=True)) as output:
                async for item in output:
                    if isinstance(item, Started):
                        await engine.stop()
        await gone(pid)


@needs_pidfd
async def test_no_orphan_when_the_parent_is_killed(gguf: Path, command: str | None) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, str(gguf), *([command] if command else ())),
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    while not (line := await parent.stdout.readline()).startswith(b"pid "):
        assert line, "it ended"
    child = int(line.split()[1])
    processes = family(child)
    parent.kill()
    await parent.wait()
    for pid in processes:
        await gone(pid)


@pytest.mark.full
async def test_an_abandoned_generation_frees_the_slot_of_the_process(
    gguf: Path, command: str | None
) -> None:
    async with running(gguf, command) as engine:
        subject = Subject(engine, await engine.facts())
        prompt = await subject.prompt("Tell me a story.")
        async with engine.generate(TextRequest(prompt, 450, ignore_eos=True)) as output:
            async for item in output:
                if isinstance(item, Token):
                    break
        # Far fewer tokens than the abandoned one would go on for.
        _ = await subject.run(TextRequest(prompt, 5, ignore_eos=True))
        slots = await engine._client().ask("GET", "/slots")
        assert [slot["is_processing"] for slot in slots] == [False, False]


async def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    file = tmp_path / "no.gguf"
    file.write_bytes(b"not a model at all")
    with pytest.raises(EngineFailed, match=r"no\.gguf"):
        LlamaCppEngine("a", file, LlamaCppOptions())


async def test_a_model_that_is_cut_off_is_refused(
    gguf: Path, tmp_path: Path, command: str | None
) -> None:
    file = tmp_path / "cut.gguf"
    with gguf.open("rb") as whole:
        file.write_bytes(whole.read(4_000_000))
    with pytest.raises(EngineFailed, match=r"cut\.gguf"):
        await LlamaCppEngine("a", file, LlamaCppOptions(command=command, context=256)).start()
