"""Environment of children: what their libraries need, what the operator names, and no secret."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_server_stand_in import program
from sourcekit import READS_SOURCE, nodes
from vllm_stand_in import model_folder

from causerie.chat.worker import WorkerProcess
from causerie.composition.vllm_engines import _build_options_by_replica
from causerie.engines.child_environment import (
    base_environment,
    engine_environment,
    package_index_environment,
)
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.engines.openvino import engine as openvino
from causerie.engines.options import VllmOptions
from causerie.engines.process import EngineProcess
from causerie.engines.vllm.engine import ServedFolder, VllmEngine
from causerie.settings.load import load

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="reads the environment of processes in /proc"
)

SECRETS = {
    "NORTH_API_KEY": "sk-of-a-provider",
    "CAUSERIE_STORE_URL": "postgresql://causerie:of-the-database@db/causerie",
    "CAUSERIE_STORE_SECRET_KEYS": "of-the-store",
    "PGPASSWORD": "of-the-database",
    "AWS_SECRET_ACCESS_KEY": "of-a-cloud",
    "VLLM_API_KEY": "of-another-vllm",
    "LLAMA_API_KEY": "of-another-llama",
    "HF_TOKEN": "of-the-hub",
    "GIT_AUTHOR_NAME": "somebody",
}
PASSED_ON = {"OMP_WAIT_POLICY": "passive", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "https_proxy": "p:1"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SECRETS, **PASSED_ON}.items():
        monkeypatch.setenv(name, value)


def children() -> set[int]:
    """Return the ids of all processes that descend from this one."""
    parents = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(each.name)] = int(fields[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def environment_of(pid: int) -> Mapping[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(each.split("=", 1) for each in text.split("\0") if "=" in each)


@asynccontextmanager
async def vllm(folder: Path, passed: tuple[str, ...] = ()) -> AsyncIterator[None]:
    model_folder(folder)
    command = VllmOptions(command=str(folder / "vllm"), parallel=2, environment=passed)
    engine = VllmEngine("m", ServedFolder(folder, weights=True), command)
    await engine.start()
    try:
        yield
    finally:
        await engine.stop()


@asynccontextmanager
async def llama(
    weights: Path, command: str | None = None, passed: tuple[str, ...] = ()
) -> AsyncIterator[None]:
    options = LlamaCppOptions(
        command=command, context=256, parallel=1, threads=1, environment=passed
    )
    engine = LlamaCppEngine("small", weights, options)
    await engine.start()
    try:
        yield
    finally:
        await engine.stop()


@asynccontextmanager
async def worker() -> AsyncIterator[None]:
    process = WorkerProcess("causerie.chat.template_worker")
    await process.start()
    try:
        yield
    finally:
        await process.kill()


@pytest.mark.parametrize("kind", ["vllm", "llama.cpp", "native llama.cpp", "worker"])
async def test_a_child_gets_no_secret_of_the_service(
    kind: str, tiny_gguf: Path, tmp_path: Path
) -> None:
    before = children()
    running = {
        "vllm": lambda: vllm(tmp_path),
        "llama.cpp": lambda: llama(tiny_gguf),
        "native llama.cpp": lambda: llama(tiny_gguf, program(tmp_path)),
        "worker": worker,
    }[kind]
    async with running():
        started = children() - before
        assert started
        for pid in started:
            found = environment_of(pid)
            assert not set(SECRETS.values()) & set(found.values())
            assert found["PATH"] == os.environ["PATH"]
            if kind != "worker":
                assert PASSED_ON.items() <= found.items()


@pytest.mark.parametrize("kind", ["vllm", "native llama.cpp"])
async def test_what_the_operator_names_is_passed_on(
    kind: str, tiny_gguf: Path, tmp_path: Path
) -> None:
    before, passed = children(), ("HF_TOKEN", "NOT_SET")
    engine = (
        vllm(tmp_path, passed) if kind == "vllm" else llama(tiny_gguf, program(tmp_path), passed)
    )
    async with engine:
        for pid in children() - before:
            found = environment_of(pid)
            assert found["HF_TOKEN"] == SECRETS["HF_TOKEN"]
            assert "NOT_SET" not in found
            assert SECRETS["NORTH_API_KEY"] not in found.values()


async def test_an_openvino_child_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    process = await EngineProcess.start(
        (sys.executable, "-c", "import signal; signal.pause()"),
        vars(openvino)["engine_environment"](()),
    )
    try:
        assert not set(SECRETS.values()) & set(environment_of(process.pid).values())
    finally:
        await process.end()


NAMES = st.builds(
    "{}{}{}".format,
    st.sampled_from(["VLLM_", "HF_", "GGML_", "CUDA_", "RAY_", "PIP_", "PYTHON", "", "NORTH_"]),
    st.sampled_from(["", "API_", "HUB_"]),
    st.sampled_from(["KEY", "TOKEN", "SECRET", "PASSWORD", "KEY_2", "SECRET_KEYS", "CREDENTIALS"]),
)


@given(NAMES)
def test_no_list_has_a_name_of_a_secret(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, "a secret")
        for made in (base_environment(), engine_environment(), package_index_environment()):
            assert name not in made
        assert engine_environment([name])[name] == "a secret"


@READS_SOURCE
def test_every_child_is_started_with_a_chosen_environment() -> None:
    found = {
        name
        for name, node in nodes(ast.Call)
        if isinstance(node.func, ast.Attribute)
        and (
            node.func.attr in ("create_subprocess_exec", "create_subprocess_shell", "Popen")
            or ast.unparse(node.func) == "subprocess.run"
        )
        and not any(each.arg == "env" for each in node.keywords)
    }
    assert not found, "give it an environment of causerie.engines.child_environment"


def test_the_file_names_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.delenv(name)
    file = tmp_path / "causerie.toml"
    file.write_text(
        '[[models]]\nid = "m"\nref = "hf:a/b"\nengine = "vllm"\n'
        '[models.vllm]\nenvironment = ["HF_TOKEN"]\n'
    )
    (model,) = load(file=file).settings.models
    (options,) = _build_options_by_replica(model.vllm).values()
    assert options.environment == ("HF_TOKEN",)
