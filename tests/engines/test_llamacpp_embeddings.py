"""Vectors of texts from the embedded engine, and those of the bare engine."""

from __future__ import annotations

import asyncio
import json
import math
import urllib.request
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
import weightskit
import xllamacpp
from casekit import first_of
from servicekit import ServiceView, service_view
from waiting import eventually

from causerie.probe.interview import Interview, ProbeClient
from causerie.probe.question import Subject

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

TEXTS = ["A river in Europe.", "Ein Fluß – größer.", "x" * 300, "def f(): pass"]
CONFIG = """
[store]
folder = "{folder}"
[[models]]
id = "mean"
ref = "{gguf}"
operation = "embeddings"
[models.llamacpp]
pooling = "mean"
context = 256
threads = 2
[[models]]
id = "last"
ref = "{gguf}"
operation = "embeddings"
[models.llamacpp]
pooling = "last"
context = 256
threads = 2
[[models]]
id = "encoder"
ref = "{encoder}"
operation = "embeddings"
[models.llamacpp]
context = 256
threads = 2
[[models]]
id = "unpooled"
ref = "{gguf}"
operation = "embeddings"
[[models]]
id = "chat"
ref = "{gguf}"
"""


@pytest.fixture(scope="module")
def encoder(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "encoder.gguf"
    weightskit.write_encoder(path, tiny_gguf)
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(
    tiny_gguf: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ServiceView]:
    folder = tmp_path_factory.mktemp("embeddings")
    text = CONFIG.format(gguf=tiny_gguf, encoder=encoder, folder=folder / "data")
    async with service_view(folder, text) as view:
        yield view


class Bare:
    """The engine itself, without anything of ours."""

    def __init__(self, weights: Path, pooling: str = "") -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(weights)
        params.embedding = True
        if pooling:
            kinds = xllamacpp.llama_pooling_type
            params.pooling_type = getattr(kinds, f"LLAMA_POOLING_TYPE_{pooling.upper()}")
        params.n_ctx = params.n_batch = params.n_ubatch = 512
        params.n_parallel = 1
        params.cpuparams.n_threads = 2
        params.hostnames, params.port = ["127.0.0.1"], 0
        self._server = xllamacpp.Server(params)

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        request = urllib.request.Request(
            f"{self._server.listening_address}/v1/embeddings",
            json.dumps({"input": texts}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:
            return [one["embedding"] for one in json.load(response)["data"]]


@pytest.fixture(params=first_of(["mean", "encoder", "last"]))
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def embed(there: ServiceView, model: str, **body: Any) -> tuple[int, Any]:
    url = f"{there.root}/endpoints/{model}/v1/embeddings"
    async with there.session.post(url, json={"model": model, **body}) as response:
        return response.status, await response.json()


async def test_the_numbers_are_those_of_the_bare_engine(
    there: ServiceView, tiny_gguf: Path, encoder: Path, model: str
) -> None:
    status, reply = await embed(there, model, input=TEXTS)
    assert status == 200, reply
    weights, pooling = (encoder, "") if model == "encoder" else (tiny_gguf, model)
    bare = await asyncio.to_thread(lambda: Bare(weights, pooling).vectors(TEXTS))
    ours = [one["embedding"] for one in reply["data"]]
    assert [one["index"] for one in reply["data"]] == [0, 1, 2, 3]
    for mine, theirs in zip(ours, bare, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-4)
        assert math.hypot(*mine) == pytest.approx(1, abs=1e-4)
    assert reply["model"] == model
    assert reply["usage"]["total_tokens"] == reply["usage"]["prompt_tokens"] > 0


async def test_the_official_client_and_shorter_vectors(there: ServiceView) -> None:
    base = f"{there.root}/endpoints/mean/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
        whole = await client.embeddings.create(model="mean", input="A text.")  # as base64
        short = await client.embeddings.create(model="mean", input="A text.", dimensions=16)
    full, cut = whole.data[0].embedding, short.data[0].embedding
    assert (len(full), len(cut)) == (weightskit.WIDTH, 16)
    length = math.hypot(*full[:16])
    assert cut == pytest.approx([value / length for value in full[:16]], abs=1e-5)


async def test_tokens_give_the_vector_of_their_text(there: ServiceView) -> None:
    [by_text, again] = (await embed(there, "mean", input=["Hello", "Hello"]))[1]["data"]
    assert by_text["embedding"] == pytest.approx(again["embedding"], abs=1e-4)
    [by_tokens] = (await embed(there, "mean", input=[19556]))[1]["data"]
    assert by_tokens["embedding"] == pytest.approx(by_text["embedding"], abs=1e-4)


async def test_control_tokens_in_texts_are_plain_text(there: ServiceView) -> None:
    _, reply = await embed(there, "mean", input="<|im_end|>")
    assert reply["usage"]["prompt_tokens"] > 3


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"input": "a " * 400}, "input", "context_length_exceeded"),
        ({"input": ["a", ""]}, "input[1]", "invalid_value"),
        ({"input": "a", "dimensions": 577}, "dimensions", "invalid_value"),
        ({"input": [10**9]}, "input", "invalid_value"),
        ({"input": ["a"] * 2049}, "input", "invalid_value"),
    ],
)
async def test_wrong_requests(there: ServiceView, body: Any, param: str, code: str) -> None:
    status, reply = await embed(there, "mean", **body)
    assert status == 400
    assert (reply["error"]["param"], reply["error"]["code"]) == (param, code)


async def test_a_short_request_comes_between_the_texts_of_a_long_one(there: ServiceView) -> None:
    long = asyncio.ensure_future(embed(there, "mean", input=[f"Text {n}." for n in range(200)]))

    async def computing() -> bool:
        _, health = await there.get("/health")
        return any(each["busy"] for each in health["engines"])

    await eventually(computing)
    status, _ = await embed(there, "mean", input="short")
    assert (status, long.done()) == (200, False)
    assert (await long)[0] == 200


async def test_each_model_serves_one_operation(there: ServiceView) -> None:
    status, reply = await embed(there, "chat", input="a")
    assert (status, reply["error"]["code"]) == (400, "unsupported_operation")
    status, _, reply = await there.ask("/endpoints/mean/v1", "mean")
    assert (status, reply["error"]["code"]) == (400, "unsupported_operation")
    _, entry = await there.get("/endpoints/mean/v1/models/mean")
    assert entry["architecture"]["output_modalities"] == ["embeddings"]
    assert entry["context_length"] == 256


async def test_a_probe_finds_what_it_serves(there: ServiceView) -> None:
    base_url = f"{there.root}/endpoints/mean/v1"
    async with ProbeClient(base_url, None) as asks:
        probed = await Interview(Subject(base_url, "mean"), asks).run()
    assert probed.complete
    assert probed.values()["operations"] == ["embeddings"]


async def test_a_file_without_pooling_says_what_to_set(there: ServiceView) -> None:
    status, _ = await embed(there, "unpooled", input="a")
    assert status == 503
    _, health = await there.get("/health")
    [engine] = [one for one in health["engines"] if one["model"] == "unpooled"]
    assert "llamacpp.pooling" in engine["detail"]
