"""The whole service, put together from settings and run in this process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest
from hub import gguf, serving

from causerie.composition.app import run_service
from causerie.composition.startup import CannotStart
from causerie.engines.base import EngineStatus
from causerie.engines.weights import Progress, Silent
from causerie.engines.weights.errors import WeightsError
from causerie.settings.entries import Entry
from causerie.settings.load import Loaded, load
from causerie.settings.tree import Settings


@dataclass
class Seen:
    """An announcer that keeps the address."""

    settings: Settings = Settings()  # noqa: RUF009 - frozen
    download: Progress = field(default_factory=Silent)
    address: asyncio.Future[tuple[str, int]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def loading(self, engines: Sequence[EngineStatus]) -> None:
        pass

    def ready(self, host: str, port: int) -> None:
        self.address.set_result((host, port))

    def stopping(self) -> None:
        pass

    def stop(self) -> None:
        pass


async def serve(folder: Path, text: str, seen: Seen) -> None:
    file = folder / "causerie.toml"
    file.write_text("[server]\nport = 0\ndrain_seconds = 0.1\n" + text, encoding="utf-8")

    def read(entries: Sequence[Entry] = (), text: str | None = None) -> Loaded:
        environ = {"XDG_CACHE_HOME": str(folder)}
        return load(file=file, text=text, environ=environ, entries=entries)

    await run_service(read(), read, seen)


FAKE = """
[[models]]
id = "fake"
aliases = ["also"]
engine = "fake"
options = { replies = ["Hello there."] }
[[models]]
id = "other"
engine = "fake"
preload = true
[[doors]]
name = "endpoint"
[[doors]]
name = "tiny"
models = ["other"]
"""


async def test_a_service_from_settings_answers(tmp_path: Path) -> None:
    seen = Seen()
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as client:
        group.create_task(serve(tmp_path, FAKE, seen))
        root = "http://{}:{}".format(*await seen.address)
        body = {"model": "also", "messages": [{"role": "user", "content": "Hi"}]}
        async with client.post(f"{root}/v1/chat/completions", json=body) as response:
            answer = await response.json()
            assert response.status == 200, answer
            assert response.headers["x-served-by"] == "fake"
        async with client.get(f"{root}/endpoints/tiny/v1/models") as response:
            listed = await response.json()
        async with client.get(f"{root}/metrics") as response:
            metrics = await response.text()
        os.kill(os.getpid(), signal.SIGTERM)
    assert answer["choices"][0]["message"]["content"] == "Hello there."
    assert answer["model"] == "also"
    assert [entry["id"] for entry in listed["data"]] == ["other"]
    assert 'causerie_requests_total{code="",door="endpoint",finish="stop",model="fake"' in metrics
    assert 'causerie_engine_state{model="fake",state="ready"} 1.0' in metrics


async def test_the_cache_is_reported(tmp_path: Path) -> None:
    seen = Seen()
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as client:
        group.create_task(serve(tmp_path, FAKE, seen))
        url = "http://{}:{}/v1/chat/completions".format(*await seen.address)

        async def asked(system: str, *more: str, stream: bool = False) -> str:
            said = ["user", *(["assistant", "user"] if more else [])]
            messages = [{"role": "system", "content": system}]
            for role, content in zip(said, ("Hi", *more), strict=True):
                messages.append({"role": role, "content": content})
            body = {"model": "fake", "messages": messages, "stream": stream}
            async with client.post(url, json=body) as response:
                await response.read()
                return response.headers["x-cache"]

        reports = [
            await asked("Be kind. " * 5),
            await asked("Be kind. " * 5, "Hello there.", "And now?"),
            await asked("Now. Be kind. " * 5, "Hello there.", "And now?", stream=True),
        ]
        os.kill(os.getpid(), signal.SIGTERM)
    first, again, changed = reports
    assert re.fullmatch(r"reused=0, prompt=\d+", first)
    assert re.fullmatch(r"reused=[1-9]\d*, prompt=\d+", again)
    miss = r'miss="system prompt changed at messages\[0\] \(line 1\)"'
    assert re.fullmatch(rf"reused=\d+, prompt=\d+, reusable=\d+, {miss}", changed)


async def test_a_billing_line_that_changes_at_every_turn_costs_no_prompt(tmp_path: Path) -> None:
    seen = Seen()
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as client:
        group.create_task(serve(tmp_path, FAKE, seen))
        url = "http://{}:{}/v1/chat/completions".format(*await seen.address)
        heads = []
        for checksum in ("0f3e1", "9ab27"):
            system = f"x-anthropic-billing-header: cc_version=2.1; cch={checksum};\nBe kind. "
            said = [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]
            async with client.post(url, json={"model": "fake", "messages": said}) as response:
                await response.read()
                heads.append(response.headers)
        os.kill(os.getpid(), signal.SIGTERM)
    told = "billing line of the system prompt left out"
    assert [head["x-request-changes"] for head in heads] == [told, told]
    again = re.fullmatch(r"reused=(\d+), prompt=(\d+)", heads[1]["x-cache"])
    assert again is not None
    assert int(again[1]) >= int(again[2]) - 1


async def test_the_cache_report_is_silent_on_the_conversations_of_others(tmp_path: Path) -> None:
    seen, keys = Seen(), {name: f"ck_{name}_{'x' * 40}" for name in ("ann", "bob")}
    digests = [f"ck_{name}:{sha256(key.encode()).hexdigest()}" for name, key in keys.items()]
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as client:
        group.create_task(serve(tmp_path, f"keys = {json.dumps(digests)}\n{FAKE}", seen))
        url = "http://{}:{}/v1/chat/completions".format(*await seen.address)

        async def asked(who: str, system: str) -> str:
            said = [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]
            body, head = (
                {"model": "fake", "messages": said},
                {"Authorization": f"Bearer {keys[who]}"},
            )
            async with client.post(url, json=body, headers=head) as response:
                await response.read()
                assert response.status == 200
                return response.headers["x-cache"]

        await asked("ann", "Be kind. " * 5)
        others, own = await asked("bob", "Now. " * 9), await asked("ann", "Well. " * 9)
        os.kill(os.getpid(), signal.SIGTERM)
    assert "miss" in own
    assert "miss" not in others


async def test_who_tells_of_the_service_is_told_of_a_reload(tmp_path: Path) -> None:
    seen = Seen()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(tmp_path, FAKE, seen))
        await seen.address
        file = tmp_path / "causerie.toml"
        file.write_text(file.read_text().replace('"fake"\naliases', '"anew"\naliases'))
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(60):
            while seen.settings.models[0].id != "anew":  # noqa: ASYNC110 - from outside
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)


async def test_weights_that_are_here_wait_for_no_download(tmp_path: Path) -> None:
    (tmp_path / "near.gguf").write_bytes(gguf())
    seen = Seen()
    async with serving() as hub, asyncio.TaskGroup() as group, aiohttp.ClientSession() as client:
        hub.repositories["org/far"] = {"far.gguf": gguf(padding=1000)}
        hub.behaviour.held = 100
        group.create_task(
            serve(
                tmp_path,
                "[engines]\nload_wait_seconds = 2\n"
                f'[weights]\ncache = "{tmp_path}"\nhub_endpoint = "{hub.url}"\n'
                '[[models]]\nid = "far"\nref = "hf:org/far"\n'
                '[[models]]\nid = "near"\nref = "near.gguf"\n',
                seen,
            )
        )
        root = "http://{}:{}".format(*await seen.address)

        async def why(model: str) -> str:
            body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
            async with client.post(f"{root}/v1/chat/completions", json=body) as response:
                return str((await response.json())["error"]["code"])

        far = group.create_task(why("far"))
        await hub.sending.wait()
        assert await why("near") == "no_endpoint"  # it was read, and is no model
        assert await far == "engine_loading"
        os.kill(os.getpid(), signal.SIGTERM)


async def test_weights_that_cannot_be_had_are_the_reason(tmp_path: Path) -> None:
    text = '[[models]]\nid = "a"\nref = "./none.gguf"\n'
    with pytest.raises(WeightsError, match=r"none\.gguf does not exist; name a \.gguf file"):
        await serve(tmp_path, text, Seen())


async def test_an_engine_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    text = '[[models]]\nid = "a"\nengine = "fake"\noptions = { relpies = [] }\n'
    with pytest.raises(CannotStart, match=r"^a did not load: the fake engine has no option"):
        await serve(tmp_path, text, Seen())
