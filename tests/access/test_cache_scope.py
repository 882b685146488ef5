"""A project reuses its own prompts, and neither uses nor is told of those of others."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from faultkit import Reply, Upstream, upstream
from hostedkit import Office, office
from servicekit import ServiceView, service_view

from causerie.hosted.accounts.people import SYSTEM
from causerie.protocol.request import ChatRequest, Message
from causerie.routing.target_selector import affinity_key

FIXED = {name: f"sk-{name}-{'0' * 40}" for name in ("one", "two")}
CACHED = 7
CONFIG = """
[store]
folder = "data"
journal = "off"
[[doors]]
name = "hosted"
kind = "hosted"
[[doors]]
name = "shared"
kind = "gateway"
keys = "accounts"
cache_scope = "service"
[[doors]]
name = "fixed"
kind = "gateway"
keys = [{digests}]
cache_scope = "project"
[[doors]]
name = "together"
kind = "gateway"
keys = [{digests}]
[[models]]
id = "own"
engine = "fake"
price = {{ prompt = "1000", completion = "2000", cached = "100" }}
[[aliases]]
id = "fake"
targets = [{{ model = "own" }}]
"""
PROVIDER = """
[[providers]]
name = "{dialect}"
base_url = "{url}"
dialect = "{dialect}"
[[aliases]]
id = "at-{dialect}"
price = {{ prompt = "1000", completion = "2000", cached = "100" }}
[[aliases.targets]]
provider = "{dialect}"
model = "m"
"""
DIALECTS = ("vllm", "sglang", "deepseek", "llama-server", "generic")


@dataclass
class Tenants:
    """A service before a provider that always reports cached tokens; keys of two projects."""

    service_view: ServiceView
    office: Office
    up: Upstream
    keys: Mapping[str, str]

    async def cached(self, door: str, model: str, key: str, text: str) -> int:
        """Ask; return the cached tokens of its usage, which its header agrees with."""
        messages = [{"role": "user", "content": text}]
        status, headers, told = await self.service_view.ask(
            f"/{door}/v1", model, key, messages=messages
        )
        assert status == 200, told
        found: int = told["usage"]["prompt_tokens_details"]["cached_tokens"]
        if (report := headers.get("x-cache")) is not None:
            assert re.match(r"reused=(\d+)", report)[1] == str(found)
        return found


@pytest.fixture
async def tenants(tmp_path: Path) -> AsyncIterator[Tenants]:
    async with opened(tmp_path) as made:
        yield made


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Tenants]:
    digests = ", ".join(
        f'"ck_{name}:{sha256(key.encode()).hexdigest()}"' for name, key in FIXED.items()
    )
    async with upstream(lambda _: Reply("Yes.", cached_tokens=CACHED)) as up:
        text = CONFIG.format(digests=digests)
        text += "".join(PROVIDER.format(dialect=one, url=up.base_url) for one in DIALECTS)
        async with service_view(folder, text) as there, office(folder / "data") as first:
            other = await first.accounts.projects.create(SYSTEM, "Other")
            async with office(folder / "data", other.id) as second:
                keys = {
                    "a": (await first.key()).credential,
                    "a2": (await first.key()).credential,
                    "b": (await second.key()).credential,
                }
                yield Tenants(there, first, up, keys)


async def test_a_first_request_finds_nothing_that_another_project_has_sent(
    tenants: Tenants,
) -> None:
    text = "The same long instructions for everybody."
    found = [await tenants.cached("hosted", "own", tenants.keys[key], text) for key in "aab"]
    again = await tenants.cached("hosted", "own", tenants.keys["b"], text)
    colleague = await tenants.cached("hosted", "own", tenants.keys["a2"], text)
    assert (found[0], found[2]) == (0, 0)
    assert found[1] == again == colleague > len(text)
    costs = [one.amount for one in await tenants.office.records()]
    assert len(set(costs)) == 2  # a whole prompt, twice; and one that is cached, three times
    assert costs.count(max(costs)) == 2


async def test_a_door_may_share_its_cache(tenants: Tenants) -> None:
    text = "Instructions of the house."
    first = await tenants.cached("shared", "fake", tenants.keys["a"], text)
    second = await tenants.cached("shared", "fake", tenants.keys["b"], text)
    assert (first, second > len(text)) == (0, True)
    assert not await tenants.cached("hosted", "own", tenants.keys["b"], text)


async def test_keys_of_the_file_share_unless_their_door_keeps_them_apart(tenants: Tenants) -> None:
    found = [
        await tenants.cached(door, "fake", FIXED[key], f"At {door}.") > 0
        for door in ("fixed", "together")
        for key in ("one", "two", "one")
    ]
    assert found == [False, False, True, False, True, True]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("more", [{}, {"top_k": 3}])  # the second is written field by field
async def test_servers_that_take_a_salt_get_one_of_the_project(
    tenants: Tenants, stream: bool, more: Mapping[str, Any]
) -> None:
    fields: dict[str, Any] = {"stream": stream, "max_tokens": 5, **more}
    salts = []
    for door, key in [("hosted", "a"), ("hosted", "a2"), ("hosted", "b"), ("shared", "a")]:
        body = {"model": "at-vllm", "messages": [{"role": "user", "content": "Hi"}], **fields}
        url = f"{tenants.service_view.root}/{door}/v1/chat/completions"
        headers = {"authorization": f"Bearer {tenants.keys[key]}"}
        async with tenants.service_view.session.post(url, json=body, headers=headers) as response:
            assert response.status == 200
            assert "cache" not in response.headers.get("x-request-changes", "")
            await response.read()
        sent = tenants.up.requests[-1].body
        assert (sent["max_tokens"], sent["messages"]) == (5, body["messages"])
        salts.append(sent.get("cache_salt"))
    assert salts[0] == salts[1] != salts[2]
    assert salts[3] is None
    assert all(re.fullmatch("[0-9a-f]{32}", salt) for salt in salts[:3])
    assert tenants.office.project not in str(salts)


@pytest.mark.parametrize(
    ("dialect", "told"),
    [
        ("vllm", True),
        ("sglang", True),
        ("deepseek", True),
        ("llama-server", False),
        ("generic", False),
    ],
)
async def test_the_cache_that_a_server_shares_token_by_token_is_not_told(
    tenants: Tenants, dialect: str, told: bool
) -> None:
    expected = CACHED if told else 0
    assert await tenants.cached("hosted", f"at-{dialect}", tenants.keys["a"], "Hi") == expected
    assert await tenants.cached("shared", f"at-{dialect}", tenants.keys["a"], "Hi") == CACHED
    shared, hosted = await tenants.office.records()
    assert (hosted.cached, shared.cached) == (expected, CACHED)
    assert hosted.amount - shared.amount == (CACHED - expected) * Decimal("0.0009")


@pytest.mark.parametrize("known_by", [{}, {"session_id": "s"}, {"cache_key": "k"}])
def test_a_conversation_has_a_target_of_its_own_in_each_scope(known_by: dict[str, Any]) -> None:
    """Else who answers would tell that somebody has asked the same."""
    request = ChatRequest("m", (Message("user", "Hi"),), **known_by)
    keys = {
        affinity_key(ChatRequest("m", (Message("user", "Hi"),), cache_scope=scope, **known_by))
        for scope in ("", "a", "b")
    }
    assert len(keys) == 3
    assert affinity_key(request) in keys
