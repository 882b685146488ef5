"""Rules of the interface on ways of access, keys, events and versions, by their number.

One service with every way at once. What a model says is in ``test_interface.py``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from faultkit import Reply, Upstream, upstream
from hostedkit import Office, office
from servicekit import ServiceView, service_view

from causerie.cli.keys import digest_line, new_key

OWN_KEY, PROVIDER_KEY = new_key(), "sk-of-the-provider"
HOSTED, ROUTER, GATEWAY, ELSEWHERE = "/hosted/v1", "/router/v1", "/gateway/v1", "/team/models"
OPEN, LOCKED = "/endpoints/small/v1", "/endpoints/locked/v1"
KINDS = ["reasoning_content", "content"]
MODELS = {
    HOSTED: "fast",
    OPEN: "small",
    LOCKED: "locked",
    GATEWAY: "fast",
    ELSEWHERE: "fast",
    ROUTER: "acme/fast",
}


def config(base_url: str) -> str:
    return f"""\
[store]
folder = "data"
[[doors]]
name = "hosted"
kind = "hosted"
[[doors]]
name = "gateway"
kind = "gateway"
keys = "off"
[[doors]]
name = "elsewhere"
kind = "gateway"
prefix = "{ELSEWHERE}"
keys = "off"
[[doors]]
name = "router"
kind = "router"
[[models]]
id = "small"
engine = "fake"
keys = "off"
[[models]]
id = "locked"
engine = "fake"
keys = ["{digest_line(OWN_KEY)}"]
[[providers]]
name = "provider"
base_url = "{base_url}"
dialect = "vllm"
key = {{ env = "PROVIDER_KEY" }}
[providers.health]
path = ""
[[providers.models]]
id = "m"
supported_parameters = ["max_tokens", "temperature", "reasoning", "reasoning_effort"]
[[aliases]]
id = "fast"
targets = [{{ provider = "provider", model = "m" }}]
[[catalog]]
id = "acme/fast"
[[catalog.endpoints]]
provider = "provider"
model = "m"
context_length = 8192
[[catalog]]
id = "own/small"
[[catalog.endpoints]]
model = "small"
[[catalog]]
id = "own/small:free"
[[catalog.endpoints]]
model = "small"
context_length = 64
"""


@dataclass
class City:
    """The service, the provider behind it, and a key of an account, good for all its doors."""

    service_view: ServiceView
    provider: Upstream
    office: Office
    key: str

    def key_of(self, door: str) -> str:
        return {HOSTED: self.key, ROUTER: self.key, LOCKED: OWN_KEY}.get(door, "")

    async def ask(self, door: str, model: str = "", **fields: Any) -> tuple[int, Any]:
        """Status and JSON, with the key that the door wants."""
        named = model or MODELS[door]
        status, _, answer = await self.service_view.ask(door, named, self.key_of(door), **fields)
        return status, answer


@pytest.fixture
async def city(tmp_path: Path) -> AsyncIterator[City]:
    async with (
        upstream(lambda _: Reply("Yes, indeed.", reasoning="Let me see.")) as up,
        service_view(tmp_path, config(up.base_url), PROVIDER_KEY=PROVIDER_KEY) as running,
        office(tmp_path / "data") as opened,
    ):
        yield City(running, up, opened, (await opened.key()).credential)


async def test_1_1_identifiers_and_parameters_differ_by_way_of_access(city: City) -> None:
    served = {
        (door, model)
        for door in MODELS
        for model in ("small", "locked", "fast", "acme/fast")
        if (await city.ask(door, model))[0] == 200
    }
    theirs = {(HOSTED, "small"), (HOSTED, "locked")}  # a hosted door has all there is
    assert served == {*MODELS.items(), *theirs}
    for door in MODELS:
        status, answer = await city.ask(door, reasoning={"effort": "low"})
        assert (status == 200) is (door == ROUTER), answer
    assert (await city.ask(OPEN, top_k=5))[0] == 200
    status, answer = await city.ask(GATEWAY, top_k=5)
    assert (status, answer["error"]["param"]) == (400, "top_k")


async def test_1_2_a_way_of_access_tells_what_it_supports(city: City) -> None:
    """And keeps to it. What others say is measured: ``test_probe_enforced.py``."""
    asked: dict[str, Any] = {"top_k": 5, "temperature": 0.5, "reasoning": {"effort": "low"}}
    for door, model in MODELS.items():
        _, entry = await city.service_view.get(f"{door}/models/{model}", city.key_of(door))
        for name, value in asked.items():
            status, _ = await city.ask(door, **{name: value})
            assert status == (200 if name in entry["supported_parameters"] else 400), (door, name)
        status, _ = await city.service_view.get(f"{door}/models/count", city.key_of(door))
        assert status == (200 if door == ROUTER else 404), door


async def test_1_3_4_1_5_5_the_routers_catalog_is_open(city: City) -> None:
    status, listed = await city.service_view.get(f"{ROUTER}/models")
    assert status == 200
    entries = {entry["id"]: entry for entry in listed["data"]}
    assert [id for id in entries if id.startswith("own/")] == ["own/small", "own/small:free"]
    assert {"temperature", "reasoning"} <= set(entries["acme/fast"]["supported_parameters"])
    assert "top_k" in entries["own/small"]["supported_parameters"]
    assert all(isinstance(entry["name"], str) for entry in entries.values())
    status, answer = await city.ask(ROUTER, "acme/fast", top_k=5)
    assert (status, answer["error"]["param"]) == (400, "top_k")


async def test_1_4_8_free_and_paid_variants_differ_in_context(city: City) -> None:
    long = [{"role": "user", "content": "word " * 50}]
    assert (await city.ask(ROUTER, "own/small", messages=long))[0] == 200
    _, listed = await city.service_view.get(f"{ROUTER}/models")
    lengths = {entry["id"]: entry["context_length"] for entry in listed["data"]}
    assert (lengths["own/small"], lengths["own/small:free"]) == (8192, 64)
    status, answer = await city.ask(ROUTER, "own/small:free", messages=long)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert answer["error"]["metadata"]["context_length"] == 64


async def test_2_1_only_the_router_names_its_models(city: City) -> None:
    for door, model in MODELS.items():
        _, listed = await city.service_view.get(f"{door}/models", city.key_of(door))
        entries = {entry["id"]: entry for entry in listed["data"]}
        assert ("name" in entries[model]) is (door == ROUTER), door


async def test_5_1_hosted_and_router_need_a_key(city: City) -> None:
    for door in (HOSTED, ROUTER):
        for key, code in (("", "missing_api_key"), (OWN_KEY, "invalid_api_key")):
            status, headers, answer = await city.service_view.ask(door, MODELS[door], key)
            assert (status, answer["error"]["code"]) == (401, code)
            assert headers["www-authenticate"] == "Bearer"
        assert (await city.ask(door))[0] == 200


async def test_5_2_a_model_of_ones_own_needs_the_key_that_is_set_for_it(city: City) -> None:
    for key in ("", "placeholder", OWN_KEY):
        assert (await city.service_view.ask(OPEN, "small", key))[0] == 200
        expected = 200 if key == OWN_KEY else 401
        assert (await city.service_view.ask(LOCKED, "locked", key))[0] == expected
        assert (await city.service_view.get("/v1/models", key, host="small.localhost"))[0] == 200
        status, _ = await city.service_view.get("/v1/models", key, host="locked.localhost")
        assert status == expected


async def test_5_3_every_way_of_access_has_keys_of_its_own(city: City) -> None:
    """The console, where people make theirs: ``test_console_keys.py``."""
    made = await city.office.key(doors=frozenset({"router"}))
    assert (await city.service_view.ask(ROUTER, "acme/fast", made.credential))[0] == 200
    assert (await city.service_view.ask(HOSTED, "fast", made.credential))[0] in (401, 403)
    assert (await city.service_view.ask(LOCKED, "locked", city.key))[0] == 401
    keys = {sent.headers["authorization"] for sent in city.provider.requests}
    assert keys == {f"Bearer {PROVIDER_KEY}"}


async def test_5_4_no_key_is_kept_as_it_is(city: City, capfd: pytest.CaptureFixture[str]) -> None:
    for door in MODELS:
        status, answer = await city.ask(door)
        assert status == 200, answer
    written = [file for file in city.service_view.file.parent.rglob("*") if file.is_file()]
    assert "causerie.db" in {file.name for file in written}
    told = "".join(capfd.readouterr())
    for secret in (city.key.removeprefix("ck_").partition("_")[2], OWN_KEY, PROVIDER_KEY):
        assert [file for file in written if secret.encode() in file.read_bytes()] == []
        assert secret not in told


async def test_6_events_come_in_one_order_through_every_door(city: City) -> None:
    for door in (HOSTED, GATEWAY, ELSEWHERE, ROUTER):
        for usage in (False, True):
            chunks = await streamed(city, door, usage)
            if usage:
                last = chunks.pop()
                assert last["choices"] == []
                assert last["usage"]["total_tokens"] > 0
            assert not any("usage" in chunk for chunk in chunks)
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
            assert deltas[0]["role"] == "assistant"
            kinds = [kind for delta in deltas for kind in KINDS if delta.get(kind)]
            assert [kind for kind, _ in groupby(kinds)] == KINDS


async def streamed(city: City, door: str, usage: bool) -> list[dict[str, Any]]:
    """The chunks of a stream, which has nothing but these and its end."""
    body = {
        "model": MODELS[door],
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": usage},
    }
    url = f"{city.service_view.root}{door}/chat/completions"
    key = {"authorization": f"Bearer {city.key_of(door)}"}
    async with city.service_view.session.post(url, json=body, headers=key) as response:
        *lines, done, rest = (await response.text()).split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def test_9_the_version_is_in_the_address(city: City) -> None:
    """All but a gateway that was given another address."""
    for door in MODELS:
        key = city.key_of(door)
        assert (await city.service_view.get(f"{door}/models", key))[0] == 200
        other = f"{door}/v1" if door == ELSEWHERE else door.removesuffix("/v1")
        status, answer = await city.service_view.get(f"{other}/models", key)
        assert (status, answer["error"]["code"]) == (404, "unknown_path")
    for host in ("small.localhost", "gateway.localhost", "router.localhost"):
        assert (await city.service_view.get("/v1/models", host=host))[0] == 200
        assert (await city.service_view.get("/models", host=host))[0] == 404
        assert (await city.service_view.get("/v2/models", host=host))[0] == 404
