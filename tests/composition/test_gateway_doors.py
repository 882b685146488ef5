"""Doors of a whole service: who may enter where, what is behind, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from faultkit import Reply, upstream
from gatewaykit import settled
from servicekit import ServiceView, service_view

from causerie.cli.keys import digest_line, new_key

KEYS = {name: new_key() for name in ("server", "own", "gate")}
DIGESTS = {name: digest_line(key) for name, key in KEYS.items()}
YES = Reply("Yes.")


def config(base_url: str) -> str:
    return f"""\
keys = ["{DIGESTS["server"]}"]
public_host = "llm.example"

[[doors]]
name = "gateway"
kind = "gateway"
hosts = ["chat.example.org"]
keys = ["{DIGESTS["gate"]}"]
reasoning = true
[[doors]]
name = "half"
kind = "gateway"
prefix = "/team/half/v1"
models = ["remote"]

[[models]]
id = "Mine"
aliases = ["me"]
engine = "fake"
keys = ["{DIGESTS["own"]}"]
[[models]]
id = "open"
engine = "fake"
keys = "off"

[[providers]]
name = "up"
base_url = "{base_url}"
key = {{ env = "UP_KEY" }}
[providers.health]
path = ""
[[providers.models]]
id = "m"
context_length = 4096
supported_parameters = ["max_tokens", "seed"]

[[aliases]]
id = "remote"
targets = [{{ provider = "up", model = "m" }}]
[[aliases]]
id = "both"
description = "Here or there."
targets = [
  {{ provider = "up", model = "m" }},
  {{ model = "open", priority = 1 }},
]
"""


DOORS = {
    "/gateway/v1": ("gate", ["remote", "both"]),
    "/v1": ("gate", ["remote", "both"]),
    "/team/half/v1": ("server", ["remote"]),
    "/endpoints/mine/v1": ("own", ["Mine"]),
    "/endpoints/open/v1": ("", ["open"]),
}


async def test_every_door_has_its_models_and_its_keys(tmp_path: Path) -> None:
    async with (
        upstream(lambda _: YES) as up,
        service_view(tmp_path, config(up.base_url), UP_KEY="sk-up") as service,
    ):
        for base, (owner, models) in DOORS.items():
            if owner:
                assert await service.models(base, KEYS[owner]) == models
            for other in ("", *KEYS):
                if other != owner and owner:
                    key = KEYS.get(other, "")
                    assert (await service.get(f"{base}/models", key))[0] == 401, (base, other)
        for placeholder in ("", "anything", KEYS["gate"]):
            assert await service.models("/endpoints/open/v1", placeholder) == ["open"]
        for name, found in (("Mine", 200), ("me", 200), ("open", 404), ("mee", 404)):
            status, shown = await service.get(f"/endpoints/mine/v1/models/{name}", KEYS["own"])
            assert status == found
            assert shown.get("id", "Mine") == "Mine"


HOSTS = {
    "gateway.llm.example": ("gate", ["remote", "both"]),
    "chat.example.org": ("gate", ["remote", "both"]),
    "CHAT.Example.ORG.:443": ("gate", ["remote", "both"]),
    "half.llm.example": ("server", ["remote"]),
    "mine.llm.example:8000": ("own", ["Mine"]),
    "open.llm.example": ("", ["open"]),
}


async def test_host_names_lead_to_doors_and_nothing_else(tmp_path: Path) -> None:
    async with (
        upstream(lambda _: YES) as up,
        service_view(tmp_path, config(up.base_url), UP_KEY="sk-up") as service,
    ):
        for host, (owner, models) in HOSTS.items():
            assert await service.models("/v1", KEYS.get(owner, ""), host=host) == models
        every = [*KEYS.values(), ""]
        for host, path, expected in [
            ("router.llm.example", "/v1/models", {404}),
            ("x.mine.llm.example", "/v1/models", {404}),
            ("mine.localhost", "/v1/models", {404}),
            ("mine.llm.example", "/gateway/v1/models", {404}),
            ("mine.llm.example", "/endpoints/open/v1/models", {404}),
            ("evil.example", "/endpoints/open/v1/models", {404}),
            ("evil.example/@open.llm.example", "/v1/models", {400}),
            ("open.llm.example#", "/v1/models", {400}),
            ("a b", "/v1/models", {400}),
        ]:
            found = {(await service.get(path, key, host=host))[0] for key in every}
            assert found == expected, (host, path)


async def test_what_a_gateway_serves(tmp_path: Path) -> None:
    async with (
        upstream(lambda _: YES) as up,
        service_view(tmp_path, config(up.base_url), UP_KEY="sk-up") as service,
    ):

        async def ask(model: str, base: str = "/v1", **fields: object) -> tuple[int, str, str]:
            status, headers, body = await service.ask(base, model, KEYS["gate"], **fields)
            error = body.get("error", {})
            return status, headers.get("x-served-by", ""), error.get("param") or ""

        assert await ask("remote", seed=1) == (200, "up/m", "")
        assert await ask("both") == (200, "up/m", "")
        assert await ask("both", top_k=5) == (200, "open", "")
        assert await ask("remote", top_k=5) == (400, "", "top_k")
        assert await ask("both", top_k=5, reasoning={"enabled": False}) == (200, "open", "")
        assert await ask("Mine") == (404, "", "model")
        assert await ask("up/m") == (404, "", "model")
        status, listed = await service.get("/v1/models/both", KEYS["gate"])
        assert (status, listed["description"]) == (200, "Here or there.")
        assert {"top_k", "seed", "reasoning"} <= set(listed["supported_parameters"])
        _, listed = await service.get("/v1/models/remote", KEYS["gate"])
        assert listed["context_length"] == 4096
        assert "tools" not in listed["supported_parameters"]
        assert {sent.headers["authorization"] for sent in up.requests} == {"Bearer sk-up"}
        assert {sent.body["model"] for sent in up.requests} == {"m"}


async def test_the_reasoning_object_is_for_doors_that_have_it(tmp_path: Path) -> None:
    async with (
        upstream(lambda _: YES) as up,
        service_view(tmp_path, config(up.base_url), UP_KEY="sk-up") as service,
    ):
        status, _, body = await service.ask(
            "/endpoints/mine/v1", "me", KEYS["own"], reasoning={"enabled": False}
        )
        assert (status, body["error"]["param"]) == (400, "reasoning")


async def limits_of(service: ServiceView, model: str) -> tuple[int, str, str]:
    status, headers, body = await service.ask("/v1", model)
    return (
        status,
        headers.get("x-ratelimit-remaining-requests", ""),
        body.get("error", {}).get("code", ""),
    )


async def test_an_alias_has_limits_that_outlive_a_reload(tmp_path: Path) -> None:
    def text(more: str) -> str:
        return (
            '[[models]]\nid = "own"\nengine = "fake"\n[[aliases]]\nid = "x"\n'
            f'targets = [{{ model = "own" }}]\n[aliases.limits]\nrequests_per_minute = 3\n{more}\n'
        )

    async with service_view(tmp_path, text("")) as service:
        assert await limits_of(service, "x") == (200, "2", "")
        assert await limits_of(service, "x") == (200, "1", "")
        assert (await service.reload(text("tokens_per_minute = 100000"))).applied
        assert await limits_of(service, "x") == (200, "0", "")
        assert await limits_of(service, "x") == (429, "0", "requests")
        assert (await service.reload(text("").replace("= 3", "= 5"))).applied
        assert await limits_of(service, "x") == (200, "1", "")


async def test_providers_are_asked_whether_they_are_there(tmp_path: Path) -> None:
    """Also those that come with a reload; one without a path for it is left alone."""

    def text(asked: str, path: str) -> str:
        return (
            f'[[providers]]\nname = "up"\nbase_url = "{asked}"\n'
            f'[providers.health]\npath = "{path}"\ninterval_seconds = 0.1\n'
            '[[aliases]]\nid = "x"\ntargets = [{ provider = "up", model = "m" }]\n'
        )

    async with upstream(lambda _: YES) as first, upstream(lambda _: YES) as second:
        async with service_view(tmp_path, text(first.base_url, "/models")) as service:
            await settled(lambda: first.connections)
            assert (await service.reload(text(second.base_url, "/models"))).applied
            await settled(lambda: second.connections)
            await settled(lambda: not first.open_connections)
            assert (await service.reload(text(first.base_url, ""))).applied
            await settled(lambda: not second.open_connections)
        assert not first.requests
        assert not second.requests


@pytest.mark.parametrize("path", ["/v1", "/gateway", "/gateway/v1/", "/endpoints/none/v1"])
async def test_no_door_is_404(tmp_path: Path, path: str) -> None:
    async with service_view(tmp_path, '[[models]]\nid = "own"\nengine = "fake"\n') as service:
        status, body = await service.get(path)
        assert (status, body["error"]["code"]) == (404, "unknown_path")
