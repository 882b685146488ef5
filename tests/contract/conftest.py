"""The engines that the contract is asked of. Loaded once for all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio
from enginekit import CONTEXT, SLOTS, THREADS, Subject, Vllm
from openvinokit import write_openvino_folder

from causerie.engines.fleet import ManagedEngine
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.engines.openvino.engine import OpenVinoEngine, OpenVinoOptions
from causerie.engines.options import VllmOptions
from causerie.engines.registry import FakeEngine
from causerie.engines.vllm.client import Elsewhere
from causerie.engines.vllm.engine import ServedFolder, VllmEngine
from causerie.protocol.parameters import refused_by

# Of these the fake one tells as much with every run, and llama.cpp takes seconds.
_LONG = (
    "test_a_full_context_ends_a_text[llamacpp]",
    "test_a_grammar_goes_on_behind_what_it_has_accepted[llamacpp-",
)


@pytest.hookimpl(tryfirst=True)  # before it is decided by marks what is run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the longest cases to ``make test-all``."""
    for item in items:
        if item.name.startswith(_LONG):
            item.add_marker(pytest.mark.full)


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        "fake",
        pytest.param("llamacpp", marks=pytest.mark.engine),
        pytest.param("llamacpp-native", marks=pytest.mark.engine),
        pytest.param("openvino", marks=pytest.mark.engine),
        pytest.param("openvino-folder", marks=pytest.mark.engine),
        pytest.param("vllm", marks=pytest.mark.engine),
    ],
)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """Every engine of ours in turn."""
    engine: ManagedEngine
    if request.param == "fake":
        engine = FakeEngine("a", context_length=CONTEXT, slots=SLOTS)
    elif request.param.startswith("openvino"):
        if find_spec("openvino_genai") is None:
            pytest.skip("needs OpenVINO GenAI; `make openvino` installs it")
        model: Path = request.getfixturevalue("gguf")
        if request.param == "openvino-folder":
            factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
            model = write_openvino_folder(model, factory.mktemp("openvino") / "model")
        chosen = OpenVinoOptions(context=CONTEXT, parallel=SLOTS, threads=THREADS)
        engine = OpenVinoEngine("a", model, chosen, 4 << 30)
    elif request.param == "vllm":
        vllm: Vllm = request.getfixturevalue("vllm")
        wanted = _options(vllm)
        served = ServedFolder(vllm.folder, weights=isinstance(wanted, VllmOptions))
        engine = VllmEngine("a", served, wanted)
    else:
        weights: Path = request.getfixturevalue("gguf")
        native = request.param == "llamacpp-native"
        command = request.getfixturevalue("llama_server") if native else None
        options = LlamaCppOptions(command=command, context=CONTEXT, parallel=SLOTS, threads=THREADS)
        engine = LlamaCppEngine("a", weights, options)
    await engine.start()
    try:
        lacks = refused_by(request.param.partition("-")[0])
        if request.param.startswith("openvino"):
            lacks |= {"cached_tokens"}
        yield Subject(engine, await engine.facts(), lacks)
    finally:
        await engine.stop()


def _options(vllm: Vllm) -> VllmOptions | Elsewhere:
    """A vLLM that is started, or one that runs at an address."""
    if vllm.command.startswith("http://"):
        return Elsewhere(vllm.command, context=CONTEXT, parallel=SLOTS)
    return VllmOptions(command=vllm.command, context=CONTEXT, parallel=SLOTS, args=vllm.args)
