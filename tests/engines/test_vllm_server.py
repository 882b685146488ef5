"""vLLM that others run as an engine of ours: found, examined, lost and found again.

On a program that answers like vLLM, at a port; nothing of it is started by the service.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from certificates import Certificates
from hub import serving
from servicekit import service_view
from test_vllm_engine import GREEDY, asked, behave, made, run, until, written
from vllm_stand_in import CONTEXT, Server, listening

from causerie.composition.providers import tls_context
from causerie.engines.base import EngineFailed, EngineState, Stopped, TextRequest
from causerie.engines.vllm import engine
from causerie.engines.vllm import engine as module
from causerie.engines.vllm.client import Elsewhere
from causerie.engines.vllm.engine import ServedFolder, VllmEngine
from causerie.engines.weights import HubOptions, Silent
from causerie.engines.weights.cache import Cache
from causerie.engines.weights.errors import Offline, WeightsNotFound
from causerie.engines.weights.fetching import fetch_folder
from causerie.http.client import Reach
from causerie.settings.credentials import read_credentials
from causerie.settings.engine import Vllm
from causerie.settings.load import load
from causerie.settings.problems import SettingsError
from causerie.settings.provider import TlsSettings
from causerie.settings.values import Secret

KEY = "correct-horse"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model's folder as who asks has it: without weights."""
    (made(tmp_path) / "model.safetensors").unlink()
    return tmp_path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def elsewhere(port: int, key: str | None = KEY, name: str | None = None) -> Elsewhere:
    return Elsewhere(f"http://127.0.0.1:{port}", key, name, parallel=2)


@asynccontextmanager
async def engine_of(
    folder: Path, where: Elsewhere, load_seconds: float = 30.0
) -> AsyncIterator[VllmEngine]:
    engine = VllmEngine("m", ServedFolder(folder, weights=False), where, load_seconds=load_seconds)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.stop()


async def refused(folder: Path, where: Elsewhere) -> str:
    """Why the engine cannot be loaded."""
    with pytest.raises(EngineFailed) as failure:
        async with engine_of(folder, where, 0.3):
            pass
    assert not failure.value.loading
    return str(failure.value)


async def test_a_text_goes_through(folder: Path) -> None:
    async with listening(Server(folder, KEY)) as port, engine_of(folder, elsewhere(port)) as engine:
        assert (engine.pid, engine.memory_bytes, engine.slots) == (None, 0, 2)
        facts = await engine.facts()
        assert (facts.context_length, facts.parallel) == (CONTEXT, 2)
        assert facts.template == "{{ messages[0].content }}"
        prompt = await engine.tokenize(["the <think>é日本"], special=True)
        *tokens, stopped = await run(engine, TextRequest(prompt, 40, GREEDY))
        assert written(tokens) == "the <think>é日本"
        assert stopped == Stopped("stop", len(prompt), len(prompt) + 1, cached_tokens=2)
        assert asked(folder)[-1]["model"] == "model"
        await engine.stop()
        assert engine.status().state is EngineState.ABSENT
        async with engine_of(folder, elsewhere(port, name="lora")) as other:  # the server is there
            await run(other, TextRequest(prompt, 1))
            assert (asked(folder)[-1]["model"], other.context) == ("lora", CONTEXT)


async def test_less_context_than_the_server_has(folder: Path) -> None:
    async with listening(Server(folder, None)) as port:
        for context in (16, 4096):
            where = Elsewhere(f"http://127.0.0.1:{port}", context=context)
            async with engine_of(folder, where) as engine:
                assert (await engine.facts()).context_length == min(context, CONTEXT)
                assert engine.slots == 256


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("two", "has several models, or none; set `served_name` .* model, lora, other"),
        ("words", "vocabulary is not the one of the model's folder"),
        ("no ids", r"no token ids \(`return_token_ids`\)"),
        ("free", r"does not keep to grammars of llguidance; .*\"backend\": \"guidance\""),
        ("xgrammar", r"no grammars of llguidance; .*\"guidance\".* \(.*400: Invalid grammar\)"),
        ("error", r"no grammars of llguidance; .*\(the engine failed: Grammar error"),
        ("few", r"no 20 alternatives .* --max-logprobs 20 \(.*at most 5 logprobs\)"),
    ],
)
async def test_what_a_server_lacks_is_said(folder: Path, how: str, why: str) -> None:
    behave(folder, how)
    async with listening(Server(folder, KEY)) as port:
        with pytest.raises(EngineFailed, match=why):
            async with engine_of(folder, elsewhere(port)):
                pass


async def test_a_server_that_is_alive_and_makes_no_token(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_CHECK_SECONDS", 0.2)
    behave(folder, "mute")
    async with listening(Server(folder, KEY)) as port:
        with pytest.raises(EngineFailed, match=r"has not answered within 0\.2 s"):
            async with engine_of(folder, elsewhere(port)):
                pass


async def test_who_stands_before_it_may_hide_what_is_not_needed(folder: Path) -> None:
    behave(folder, "no tokenize")
    async with listening(Server(folder, KEY)) as port, engine_of(folder, elsewhere(port)):
        pass


async def test_what_cannot_be_had_there(folder: Path) -> None:
    async with listening(Server(folder, KEY)) as port:
        assert "no model 'x'; set `served_name` to one that it lists: model, lora" in (
            await refused(folder, elsewhere(port, name="x"))
        )
        for key in ("wrong-horse", None):
            why = await refused(folder, elsewhere(port, key))
            assert "refuses the key (401); `key` must lead to the key" in why
            assert "horse" not in why
        nowhere = Elsewhere(f"http://127.0.0.1:{port}/v2", KEY)
        assert "no vLLM at the address: the engine answered 404" in await refused(folder, nowhere)
    why = await refused(folder, elsewhere(port))
    assert f"no vLLM at the address: 127.0.0.1:{port} refused" in why


async def test_the_key_shows_nowhere(folder: Path) -> None:
    assert KEY not in repr(elsewhere(1)) + repr(
        VllmEngine("m", ServedFolder(folder, weights=False), elsewhere(1))
    )


async def test_away_at_first_and_then_there(folder: Path) -> None:
    where = elsewhere(free_port())
    port = int(where.address.rpartition(":")[2])
    engine = VllmEngine("m", ServedFolder(folder, weights=False), where)
    loading = asyncio.create_task(engine.start())
    try:
        await until(lambda: engine.status().state is EngineState.LOADING)
        with pytest.raises(EngineFailed) as failure:
            await run(engine, TextRequest([5], 1))
        assert failure.value.loading
        async with listening(Server(folder, KEY), port):
            await loading
            *_, stopped = await run(engine, TextRequest([5], 1))
            assert isinstance(stopped, Stopped)
    finally:
        loading.cancel()
        await engine.stop()


async def test_it_goes_away_in_a_stream_and_comes_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SERVER_QUESTIONS", (("/health", 0.05),))
    async with AsyncExitStack() as stack:
        server = AsyncExitStack()
        port = await server.enter_async_context(listening(Server(folder, KEY)))
        engine = await stack.enter_async_context(engine_of(folder, elsewhere(port)))
        behave(folder, "endless")
        with pytest.raises(EngineFailed, match="broke"):
            async with engine.generate(TextRequest([5], 9)) as outputs:
                await anext(outputs)
                await server.aclose()
                async for _ in outputs:
                    pass
        with pytest.raises(EngineFailed) as failure:  # noticed or not
            await run(engine, TextRequest([5], 9))
        assert failure.value.loading
        await until(lambda: engine.status().state is EngineState.LOADING)
        behave(folder, "words")  # another one comes back in its place
        await stack.enter_async_context(listening(Server(folder, KEY), port))
        await until(lambda: "vocabulary" in engine.status().detail)
        behave(folder, "")
        await until(lambda: engine.status().state is EngineState.READY)
        assert engine.status().restarts > 1
        *_, stopped = await run(engine, TextRequest([5], 9))
        assert isinstance(stopped, Stopped)


async def test_over_tls(folder: Path, certificates: Certificates) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificates.certificate, certificates.key)

    def trusting(file: Path) -> Reach:
        return Reach(tls=tls_context(TlsSettings(ca_file=str(file))))

    async with listening(Server(folder, KEY), tls=own) as port:
        url = f"https://127.0.0.1:{port}"
        async with engine_of(folder, Elsewhere(url, KEY, reach=trusting(certificates.ca))):
            pass
        # Which waiting does not mend.
        wrong = Elsewhere(url, KEY, reach=trusting(certificates.other))
        with pytest.raises(EngineFailed, match="certificate"):
            await asyncio.wait_for(
                VllmEngine("m", ServedFolder(folder, weights=False), wrong).start(), 60
            )


def configuration(ref: str | Path, port: int, more: str = "") -> str:
    return (
        f'[[models]]\nid = "m"\nengine = "vllm"\nref = "{ref}"\npreload = true\n[models.vllm]\n'
        f'address = "http://127.0.0.1:{port}"\nkey = {{ env = "VLLM_KEY" }}\n{more}'
    )


async def test_a_service_answers_with_it(folder: Path) -> None:
    async with listening(Server(folder, KEY)) as port:
        text = configuration(folder, port)
        async with service_view(folder, text, VLLM_KEY=KEY) as service:
            status, headers, answer = await service.ask("/v1", "m")
            assert (status, headers["x-served-by"]) == (200, "m")
            assert answer["choices"][0]["message"]["content"] == "Hi"
            examined = len(asked(folder))
            assert (await service.reload(text + "served_name = 'model'\n")).applied
            assert (await service.ask("/v1", "m"))[0] == 200
            assert len(asked(folder)) > examined + 1  # another engine, which has looked itself
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("VLLM_KEY", "wrong-horse")
                assert (await service.reload()).applied
                assert (await service.ask("/v1", "m"))[0] == 503
                _, health = await service.get("/health")
                assert "refuses the key" in json.dumps(health)
                assert "horse" not in json.dumps(health)


async def test_weights_stay_where_they_are(folder: Path, tmp_path: Path) -> None:
    """Only what tells how the model reads and writes is fetched."""
    names = ("config.json", "tokenizer.json", "chat_template.jinja")
    small = {name: (folder / name).read_bytes() for name in names}
    index = b'{"weight_map": {"a": "model-1.safetensors"}}'
    large = {"model.safetensors.index.json": index, "model-1.safetensors": b"1" * 100_000}
    async with serving() as hub, listening(Server(folder, KEY)) as port:
        hub.repositories["org/repo"] = {**small, **large}
        text = configuration("hf:org/repo", port) + f'[weights]\nhub_endpoint = "{hub.url}"\n'
        async with service_view(tmp_path, text, VLLM_KEY=KEY) as service:
            assert (await service.ask("/v1", "m"))[0] == 200
        assert hub.downloads() == len(small)
        cache = tmp_path / "causerie"
        again = partial(fetch_folder, "hf:org/repo", cache, progress=Silent())
        nowhere = HubOptions(offline=True)
        outline = await again(hub=nowhere, weights=False)
        with pytest.raises(Offline):
            await again(hub=nowhere)
        whole = await again(hub=HubOptions(endpoint=hub.url))
        assert {file.name for file in whole.path.iterdir()} >= {*small, *large}
        assert whole.path != outline.path
        assert await again(hub=nowhere, weights=False) == whole  # it has all that is needed
        assert {one.path for one in Cache(cache).every()} == {whole.path, outline.path}
        hub.repositories["org/bare"] = {"tokenizer.json": b"{}"}
        with pytest.raises(WeightsNotFound, match=r"holds no config\.json"):
            await fetch_folder(
                "hf:org/bare", cache, progress=Silent(), hub=HubOptions(hub.url), weights=False
            )


HERE = """[[models]]
id = "m"
engine = "vllm"
ref = "hf:org/repo"
[models.vllm]
"""
THERE = HERE + 'address = "http://10.0.0.7:8000"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (THERE + "tensor_parallel = 2", "tensor_parallel: means nothing alongside `address`"),
        (THERE + "pipeline_parallel = 2", "pipeline_parallel: means nothing"),
        (THERE + "data_parallel = 2", "data_parallel: means nothing"),
        (THERE + 'command = "/opt/vllm"', "command: means nothing"),
        (THERE + "gpu_memory = 0.5", "gpu_memory: means nothing"),
        (THERE + 'dtype = "half"', "dtype: means nothing"),
        (THERE + 'quantization = "fp8"', "quantization: means nothing"),
        (THERE + 'args = ["--enforce-eager"]', "args: means nothing"),
        (THERE + 'key = "sk-secret"', "key: stands in the file itself"),
        (THERE + 'key = { env = "A", file = "b" }', "key: has `env` and `file`"),
        (
            HERE + 'address = "https://h:1"\ntls = { ca_file = "none.pem" }',
            'tls.ca_file: there is no file "',
        ),
        (THERE + "tls = { verify = false }", "tls: means nothing to an address that begins with"),
        (HERE + 'address = "http://a:b@h"', "address: holds a user name or a password"),
        (HERE + 'address = "http://h:1/v1"', "address: ends in /v1"),
        (HERE + 'address = "h:1"', "address: is"),
        (THERE + 'addresses = ["http://h:1"]', "addresses: stands alongside `address`"),
        (HERE + 'addresses = ["http://h:1", "http://h:2/v1"]', "addresses[1]: ends in /v1"),
        (HERE + 'addresses = ["http://h:1", "http://h:1/"]', "addresses[1]: stands there twice"),
        (
            HERE + 'addresses = ["http://h:1", "http://h:2"]\nkv_events = {}',
            "addresses[1]: is on the host of another one",
        ),
        (
            HERE + 'replicas = 2\ndevices = ["0"]',
            "devices: has 1 entries; it takes one for each of 2",
        ),
        (THERE + "replicas = 2", "replicas: means nothing alongside `address`"),
        (HERE + "kv_events = {}", "kv_events: is for a vLLM that others run"),
        (THERE + "kv_events = { ranks = 2 }", "kv_events: is for a pool"),
        (HERE + 'addresses = ["http://_http._tcp.h:1"]', "addresses[0]: has a port, which its SRV"),
        (HERE + 'address = "http://_http._tcp.h"', "address: names a service, which may have"),
        (HERE + 'addresses = ["http://h:1"]\ndtype = "half"', "dtype: means nothing alongside"),
        (HERE + 'key = { env = "A" }', "key: is for a vLLM that others run"),
        (HERE + 'served_name = "x"', "served_name: is for a vLLM that others run"),
        (HERE + "tls = { verify = false }", "tls: is for a vLLM that others run"),
    ],
)
def test_configurations_that_do_not_hold(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as failure:
        load(text=text, file=tmp_path / "c.toml", environ={"HOME": str(tmp_path)})
    (said,) = map(str, failure.value.problems)
    assert f"models[0].vllm.{problem}" in said
    assert "secret" not in said


def test_a_configuration_that_holds(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("correct-horse\n")
    text = THERE + 'parallel = 8\ncontext = 4096\nserved_name = "org/repo"\nkey = { file = "key" }'
    loaded = load(text=text, file=tmp_path / "c.toml", environ={"HOME": str(tmp_path)})
    (model,) = loaded.settings.models
    assert model.vllm == Vllm(
        address="http://10.0.0.7:8000",
        key=Secret(file=str(tmp_path / "key")),
        served_name="org/repo",
        parallel=8,
        context=4096,
    )
    credentials = read_credentials(loaded, {})
    assert credentials.models == {"m": "correct-horse"}
    assert "horse" not in repr(credentials)
