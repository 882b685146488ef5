"""Requests at a router's door, over HTTP, with upstreams that answer, fail or are full."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from faultkit import Broken, Fault, Reply, upstream
from servicekit import ServiceView, service_view

from causerie.cli.keys import digest_line, new_key

R = "/router/v1"
KEY = new_key()
FEW = "max_output_tokens = 2"


def config(good: str, bad: str, full: str, *, keys: str = '"off"') -> str:
    endpoints = "".join(
        f'[[providers]]\nname = "{name}"\nbase_url = "{url}"\ndialect = "vllm"\n'
        '[providers.health]\npath = ""\n'
        for name, url in (("good", good), ("bad", bad), ("full", full))
    )
    entries = {
        "a/both": [("bad", "1"), ("good", "2")],
        "a/bad": [("bad", "1")],
        "a/full": [("full", "1")],
        "a/good": [("good", "3")],
        "a/good:free": [("good", "0")],
        "a/other:free": [("good", "0")],
    }
    catalog = ""
    for id, offers in entries.items():
        catalog += f'[[catalog]]\nid = "{id}"\n'
        for name, price in offers:
            catalog += (
                f'[[catalog.endpoints]]\nprovider = "{name}"\nmodel = "m"\n'
                f'price = {{ prompt = "{price}", completion = "{price}" }}\n'
            )
    return f"""\
[free]
requests_per_minute = 3
[[doors]]
name = "router"
kind = "router"
keys = {keys}
[[doors]]
name = "gateway"
kind = "gateway"
keys = "off"
{endpoints}
[[aliases]]
id = "plain"
targets = [{{ provider = "good", model = "m" }}]
{catalog}
[[catalog]]
id = "a/probed"
[[catalog.endpoints]]
provider = "good"
model = "m"
supported_parameters = ["max_tokens", "temperature"]
context_length = 100
[[catalog]]
id = "a/over"
ends = 2025-01-31
[[catalog.endpoints]]
provider = "good"
model = "m"
"""


class Market:
    """A service whose endpoint ``good`` answers, ``bad`` fails and ``full`` has no room."""

    def __init__(self, folder: Path, *, keys: str = '"off"') -> None:
        self._folder = folder
        self._keys = keys

    async def __aenter__(self) -> ServiceView:
        self.good = upstream([Reply("Yes.")])
        self.bad = upstream([Fault.SERVER_ERROR])
        self.full = upstream([Fault.TOO_MANY_SECONDS])
        ups = [await each.__aenter__() for each in (self.good, self.bad, self.full)]
        self.ups = ups
        text = config(*(up.base_url for up in ups), keys=self._keys)
        self.service_view = service_view(self._folder, text)
        return await self.service_view.__aenter__()

    async def __aexit__(self, *failure: Any) -> None:
        await self.service_view.__aexit__(*failure)
        for each in (self.good, self.bad, self.full):
            await each.__aexit__(*failure)


async def test_another_endpoint_answers_where_the_cheapest_fails(tmp_path: Path) -> None:
    async with Market(tmp_path) as there:
        status, headers, answer = await there.ask(
            R, "a/both", provider={"order": ["bad"]}, session_id="s"
        )
        assert (status, answer["model"]) == (200, "a/both")
        assert (headers["x-served-by"], headers["x-attempts"]) == ("good/m", "2")
        assert "x-served-model" not in headers
        status, _, answer = await there.ask(R, "a/both", provider={"only": ["bad"]})
        assert (status, answer["error"]["type"]) == (502, "upstream_error")


async def test_an_answer_names_its_provider(tmp_path: Path) -> None:
    """Pydantic AI's class for the well-known router takes no plain answer without the name."""
    async with Market(tmp_path) as there:
        _, _, answer = await there.ask(R, "a/both", provider={"only": ["good"]})
        assert answer["provider"] == "good"


async def test_nothing_said_to_the_router_reaches_an_upstream(tmp_path: Path) -> None:
    market = Market(tmp_path)
    async with market as there:
        said = {"provider": {"sort": "price"}, "transforms": [], "usage": {}, "odd": 1}
        _, headers, _ = await there.ask(R, "a/good", **said)
        [seen] = market.ups[0].requests
        assert not {*said, "models"} & set(seen.body)
        assert headers["x-request-changes"] == "odd dropped"
        _, headers, _ = await there.ask("/gateway/v1", "plain", **said)
        assert not {*said, "models"} & set(market.ups[0].requests[-1].body)
        assert headers["x-request-changes"].split(", ") == [f"{name} dropped" for name in said]
        _, _, answer = await there.ask("/gateway/v1", "plain")
        assert "cost" not in answer["usage"]
        assert "provider" not in answer


def own(id: str, lengths: str, *others: str) -> str:
    """An entry whose first offer is our own model, with these lengths."""
    text = f'[[catalog]]\nid = "{id}"\n[[catalog.endpoints]]\nmodel = "own"\n{lengths}\n'
    return text + "".join(
        f'[[catalog.endpoints]]\nprovider = "up"\nmodel = "m"\n{other}\n' for other in others
    )


async def test_an_offer_may_be_shorter_than_its_model(tmp_path: Path) -> None:
    text = '[[models]]\nid = "own"\nengine = "fake"\noptions = { replies = ["A b c d e f."] }\n'
    text += '[[doors]]\nname = "router"\nkind = "router"\nkeys = "off"\n'
    text += own("a/full", "") + own("a/short", "context_length = 4") + own("a/few", FEW)
    text += own("a/both", "context_length = 4", FEW)
    async with upstream(Reply("Yes.")) as up:
        text += f'[[providers]]\nname = "up"\nbase_url = "{up.base_url}"\n'
        async with service_view(tmp_path, text) as there:
            _, _, full = await there.ask(R, "a/full")
            status, _, answer = await there.ask(R, "a/short", max_tokens=9)
            assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
            prompt = full["usage"]["prompt_tokens"]
            assert answer["error"]["metadata"] == {
                "prompt_tokens": prompt, "max_tokens": 9, "context_length": 4,
            }  # fmt: skip
            for asked, told in (({}, None), ({"max_tokens": 9}, "max_tokens lowered to 2")):
                _, headers, answer = await there.ask(R, "a/few", **asked)
                assert answer["choices"][0]["finish_reason"] == "length"
                assert answer["usage"]["completion_tokens"] == 2
                assert headers.get("x-request-changes") == told
            wrong = {"structured_outputs": {"regex": "("}}
            status, headers, _ = await there.ask(R, "a/few", max_tokens=9, **wrong)
            assert (status, headers["x-request-changes"]) == (400, "max_tokens lowered to 2")
            _, headers, answer = await there.ask(R, "a/both", max_completion_tokens=9)
            assert headers["x-served-by"] == "up/m"
            assert headers["x-request-changes"] == "max_tokens lowered to 2"
            assert up.requests[-1].body["max_completion_tokens"] == 2
            _, headers, _ = await there.ask(R, "a/both", max_tokens=9, min_tokens=5)
            told = "max_tokens lowered to 2, min_tokens lowered to 2"
            assert headers["x-request-changes"] == told
            assert up.requests[-1].body["min_tokens"] == 2
            await there.ask(R, "a/both")
            assert not {"max_tokens", "max_completion_tokens"} & set(up.requests[-1].body)


async def test_models_to_fall_back_on(tmp_path: Path) -> None:
    async with Market(tmp_path) as there:
        status, headers, answer = await there.ask(R, "a/bad", models=["a/full", "a/good"])
        assert (status, answer["model"]) == (200, "a/bad")
        assert headers["x-served-model"] == "a/good"
        assert (headers["x-served-by"], headers["x-attempts"]) == ("good/m", "3")
        times = dict(part.split(";dur=") for part in headers["server-timing"].split(", "))
        assert float(times["route"]) > 0  # and not our own overhead
        status, headers, _ = await there.ask(R, "a/probed", models=["a/good"], seed=1)
        assert (status, headers["x-served-model"]) == (200, "a/good")
        status, _, answer = await there.ask(R, "a/full", models=["a/bad"])
        assert status in (502, 503)
        status, _, answer = await there.ask(R, "a/bad", models=["a/gone"])
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        assert answer["error"]["param"] == "models"
        status, _, answer = await there.ask(R, None, models=["a/gone"])
        assert (status, answer["error"]["param"]) == (404, "models")
        status, _, answer = await there.ask(R, "a/gone", models=["a/good"])
        assert (status, answer["error"]["param"]) == (404, "model")
        status, _, answer = await there.ask(R, "a/good", models=["a/bad"], temperature=9)
        assert (status, answer["error"]["param"]) == (400, "temperature")


@pytest.mark.parametrize("stream", [False, True])
async def test_of_several_models_that_are_full_the_one_with_room_first_is_told(
    tmp_path: Path, stream: bool
) -> None:
    waits = {"late": 30, "soon": 3, "later": 60}
    async with AsyncExitStack() as held:
        text = '[[doors]]\nname = "router"\nkind = "router"\nkeys = "off"\n'
        for name, seconds in waits.items():
            full = Broken(Fault.TOO_MANY_SECONDS, retry_after=seconds)
            up = await held.enter_async_context(upstream(full))
            text += f'[[providers]]\nname = "{name}"\nbase_url = "{up.base_url}"\n'
            text += f'[[catalog]]\nid = "a/{name}"\n'
            text += f'[[catalog.endpoints]]\nprovider = "{name}"\nmodel = "m"\n'
        there = await held.enter_async_context(service_view(tmp_path, text))
        others = ["a/soon", "a/later"]
        status, headers, _ = await there.ask(R, "a/late", models=others, stream=stream)
        assert (status, headers["Retry-After"]) == (429, "3")


async def test_a_model_that_has_ended_is_passed_over(tmp_path: Path) -> None:
    async with Market(tmp_path) as there:
        status, headers, _ = await there.ask(R, "a/over", models=["a/good"])
        assert (status, headers["x-served-model"]) == (200, "a/good")
        status, _, answer = await there.ask(R, "a/full", models=["a/over"])
        assert (status, answer["error"]["type"]) == (429, "rate_limit_error")
        status, _, answer = await there.ask(R, "a/over", models=["a/over"])
        assert (status, answer["error"]["code"]) == (404, "model_not_found")


async def test_a_streamed_answer_falls_back_too(tmp_path: Path) -> None:
    async with Market(tmp_path) as there:
        body = {
            "models": ["a/bad", "a/good"],
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
            "usage": {"include": True},
        }
        url = f"{there.root}{R}/chat/completions"
        async with there.session.post(url, json=body) as response:
            text = await response.text()
            assert response.status == 200
            assert response.headers["x-served-model"] == "a/good"
        assert '"prompt_tokens"' in text
        assert '"cost":' in text
        assert text.count('"provider":"good"') == text.count('"id":')
        assert text.rstrip().endswith("data: [DONE]")


async def test_free_models_have_limits_of_their_own(tmp_path: Path) -> None:
    async with Market(tmp_path) as there:
        statuses = [
            (await there.ask(R, model))[0]
            for model in ("a/good:free", "a/other:free", "a/good:free", "a/other:free")
        ]
        assert statuses == [200, 200, 200, 429]
        status, headers, answer = await there.ask(R, "a/good:free")
        assert (status, answer["error"]["code"]) == (429, "requests")
        assert int(headers["Retry-After"]) > 0
        assert (await there.ask(R, "a/good"))[0] == 200
        status, headers, _ = await there.ask(R, "a/good:free", models=["a/good"])
        assert (status, headers["x-served-model"]) == (200, "a/good")


async def test_suffixes_are_told_and_checked(tmp_path: Path) -> None:
    market = Market(tmp_path)
    async with market as there:
        status, headers, answer = await there.ask(R, "a/good:thinking")
        assert market.ups[0].requests[-1].body["chat_template_kwargs"]["enable_thinking"] is True
        assert (status, answer["model"]) == (200, "a/good:thinking")
        assert headers["x-served-model"] == "a/good"
        assert "model:thinking->reasoning.enabled" in headers["x-request-changes"]
        assert (await there.ask(R, "a/both:floor"))[0] == 200
        status, _, answer = await there.ask(R, "a/probed:thinking")
        assert (status, answer["error"]["param"]) == (400, "reasoning")


async def test_what_no_endpoint_supports_is_refused_with_reasons(tmp_path: Path) -> None:
    async with Market(tmp_path) as there:
        status, _, answer = await there.ask(R, "a/probed", seed=1)
        error = answer["error"]
        assert (status, error["code"], error["param"]) == (400, "unsupported_parameter", "seed")
        assert error["metadata"]["excluded"] == {"good/m": "does not support `seed`"}


async def test_only_what_a_key_opens_needs_one(tmp_path: Path) -> None:
    async with Market(tmp_path, keys=f'["{digest_line(KEY)}"]') as there:
        for path in ("/models", "/models/count", "/models/a/good", "/models/a/good/endpoints"):
            assert (await there.get(R + path))[0] == 200
        assert (await there.get(f"{R}/models/user"))[0] == 401
        status, mine = await there.get(f"{R}/models/user", KEY)
        assert (status, mine["total_count"]) == (200, 7)
        assert (await there.ask(R, "a/good"))[0] == 401
        assert (await there.ask(R, "a/good", KEY))[0] == 200
        assert (await there.get("/gateway/v1/models/count"))[0] == 404
