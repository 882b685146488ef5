"""A native build of llama.cpp as an engine: its program, how it is started, and what it lacks.

On a program that is started and asked like one; the contract of text engines is asked of a real
one.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from llama_server_stand_in import DEVICES, program, script
from vision_model import write_projector
from waiting import eventually, gone

from causerie.engines.base import EngineFailed, EngineState, LoadFailed, TextRequest
from causerie.engines.llamacpp.client import biases, completion_body
from causerie.engines.llamacpp.engine import (
    LlamaCppEngine,
    NativeBuild,
    examine_program,
    missing_program,
    native_arguments,
)
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.protocol.parameters import SamplingParams

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="waits for processes by pidfd"
)

BUILD = NativeBuild("/opt/llama-server", "0.5.0-b11549", gpu=False)


def engine_of(weights: Path, command: str, **options: Any) -> LlamaCppEngine:
    chosen = {"context": 256, "parallel": 2, "threads": 1, **options}
    return LlamaCppEngine("small", weights, LlamaCppOptions(command=command, **chosen))


def started(folder: Path) -> dict[str, Any]:
    """What the program was started with."""
    said: dict[str, Any] = json.loads((folder / "started.json").read_text())
    return said


async def until_back(engine: LlamaCppEngine) -> None:
    """Wait for the restart of a process, of which nothing tells."""

    async def back() -> bool:
        status = engine.status()
        return status.restarts >= 1 and status.state is EngineState.READY

    await eventually(back)


async def test_the_life_of_a_program(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_PORT", "1")
    monkeypatch.setenv("LLAMA_API_KEY", "somebody else's")
    engine = engine_of(tiny_gguf, program(tmp_path), args=("--numa", "distribute"))
    await engine.start()
    try:
        said = started(tmp_path)
        key = said["environment"]["LLAMA_API_KEY"]
        assert key != "somebody else's"
        assert key not in said["arguments"]  # which every user of the machine can read
        assert "LLAMA_ARG_PORT" not in said["environment"]
        assert said["environment"]["GOMP_SPINCOUNT"] == "1000"
        assert said["folder"] == str(tmp_path)
        assert said["arguments"][-2:] == ["--numa", "distribute"]
        facts = await engine.facts()
        assert facts.fingerprint.startswith("llamacpp-0.5.0-dev-b11549-llama-")
        os.kill(said["pid"], signal.SIGKILL)
        await until_back(engine)
        async with engine.generate(TextRequest([1, 2], 1)) as outputs:
            assert [output async for output in outputs]
    finally:
        await engine.stop()
    await gone(started(tmp_path)["pid"])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "error: invalid argument: --cache-ram",
            "does not know the argument --cache-ram; .* take a build as new",
        ),
        (
            "0.1 E srv load_model: failed to load model",
            r"\(0.5.0-dev-b11549\) could not load .*tiny.gguf: srv load_model: failed to load",
        ),
        (
            "llama-server: error while loading shared libraries: libcuda.so.1",
            "tiny.gguf: error while loading shared libraries: libcuda.so.1",
        ),
        ("terminated", "exit status 3"),
    ],
)
async def test_one_that_gives_up_says_why(
    tiny_gguf: Path, tmp_path: Path, line: str, why: str
) -> None:
    command = script(tmp_path, f"echo '{line}' >&2", "exit 3")
    with pytest.raises(EngineFailed, match=why):
        await engine_of(tiny_gguf, command).start()


async def test_one_that_is_too_old_is_named(tiny_gguf: Path, tmp_path: Path) -> None:
    engine = engine_of(tiny_gguf, program(tmp_path, old=True))
    with pytest.raises(LoadFailed, match="sends no `prompt_progress`: it is too old; "):
        await engine.start()
    await gone(started(tmp_path)["pid"])


async def test_what_is_no_such_program(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("#!/bin/sh\necho hello\n")
    assert missing_program("sh") is None
    for command, why in (
        (str(tmp_path / "none"), "does not exist; name the program `llama-server`"),
        (str(tmp_path), "is a folder"),
        (str(file), f"is not executable; .* chmod [+]x {file}"),
        ("no-such-program", "is not on the search path"),
    ):
        with pytest.raises(LoadFailed, match=f'the program "{command}" {why}'):
            await examine_program(command, LlamaCppOptions())
    file.chmod(0o755)
    with pytest.raises(LoadFailed, match=r"does not say its version \(hello\)"):
        await examine_program(str(file), LlamaCppOptions())


async def test_what_a_program_says_of_itself(tmp_path: Path) -> None:
    build = await examine_program(program(tmp_path, devices=DEVICES), LlamaCppOptions())
    assert (build.version, build.gpu) == ("0.5.0-dev-b11549", True)


def test_the_arguments_follow_the_launch(tiny_gguf: Path, tmp_path: Path) -> None:
    adapters = (str(tmp_path / "a.gguf"), str(tmp_path / "b,c.gguf"))
    for one in adapters:
        Path(one).touch()
    write_projector(eye := tmp_path / "eye.gguf")
    engine = engine_of(
        tiny_gguf, "llama-server", cache_tokens=300, flash_attention=False, gpu_layers=3,
        kv_type="q8_0", batch=96, lora=adapters, draft=str(tiny_gguf), mmproj=str(eye),
    )  # fmt: skip
    line = " ".join(native_arguments(BUILD, engine._launch, "/run/x.sock", "/proc/1/fd/"))
    for part in (
        f"/opt/llama-server --model {tiny_gguf} --host /run/x.sock ", "--parallel 2 --ctx-size 300",
        "--threads 1 --threads-batch 1 --batch-size 96 --ubatch-size 96", "--cache-type-k q8_0",
        "--cache-ram 0 --slot-save-path /proc/1/fd/", "--fit off", "--gpu-layers 3",
        "--flash-attn off", f'--lora {adapters[0]},"{adapters[1]}"', "--kv-unified",
        f"--mmproj {eye} --model-draft {tiny_gguf} --spec-draft-n-max 3",
    ):  # fmt: skip
        assert part in line
    whole = engine_of(tiny_gguf, "llama-server", speculation="ngram")._launch
    line = " ".join(native_arguments(BUILD, whole, 4711, "/tmp"))
    assert "--host 127.0.0.1 --port 4711" in line
    assert "--kv-unified" not in line
    assert "--spec-type ngram-simple" in line


def test_a_gpu_has_its_own_batches(tiny_gguf: Path) -> None:
    launch = engine_of(tiny_gguf, "llama-server")._launch
    gpu = NativeBuild("/opt/llama-server", "1", gpu=True)
    assert gpu.batches(launch) == (2048, 512)
    assert BUILD.batches(launch) == (launch.cpu_batch, launch.cpu_batch)


def test_only_allowed_tokens_can_be_drawn() -> None:
    plain = completion_body(TextRequest((1,), 1), 0)
    assert list(biases([2, 5], 8, plain)) == [(2, 1000.0), (5, 1000.0)]
    assert list(biases([0, 1, 2, 3, 5], 8, plain)) == [(4, False), (6, False), (7, False)]
    # A penalty would divide what they were raised by.
    sampling = SamplingParams(repetition_penalty=1.1)
    penalised = completion_body(TextRequest((1,), 1, sampling), 0)
    assert list(biases([2], 3, penalised)) == [(0, False), (1, False)]
