"""Promises of docs/guides/router.md, over HTTP, unless another test holds the service to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faultkit import Fault, Received, Reply, Upstream, upstream
from hostedkit import office
from servicekit import ServiceView, service_view

from causerie.hosted.accounts.bounds import Limit, LimitsAndBudgets

R = "/router/v1"
THOUGHT = "Let me see."
NAMES = ("cheap", "mid", "dear")


def config(up: Mapping[str, Upstream]) -> str:
    endpoints = "".join(
        f'[[providers]]\nname = "{name}"\nbase_url = "{each.base_url}"\ndialect = "{dialect}"\n'
        f'[providers.health]\npath = ""\n'
        for name, each, dialect in (
            ("cheap", up["cheap"], "vllm"),
            ("mid", up["mid"], "openai"),
            ("dear", up["dear"], "vllm"),
        )
    )
    return f"""\
[[doors]]
name = "router"
kind = "router"
keys = "off"
[[doors]]
name = "gateway"
kind = "gateway"
keys = "off"
{endpoints}
[[aliases]]
id = "plain"
targets = [{{ provider = "cheap", model = "m" }}]
[[catalog]]
id = "a/m"
aliases = ["m-latest"]
[[catalog.endpoints]]
provider = "cheap"
model = "m"
price = {{ prompt = "1", completion = "1" }}
context_length = 4096
quantization = "int4"
supported_parameters = ["max_tokens", "temperature", "reasoning", "reasoning_effort"]
[[catalog.endpoints]]
provider = "mid"
model = "m"
price = {{ prompt = "2", completion = "2" }}
context_length = 8192
keeps_data = false
supported_parameters = ["max_tokens", "temperature", "seed"]
[[catalog.endpoints]]
provider = "dear"
model = "m"
price = {{ prompt = "3", completion = "3" }}
context_length = 32768
[[catalog]]
id = "a/old"
ends = 2020-01-01
[[catalog.endpoints]]
provider = "cheap"
model = "m"
[[catalog]]
id = "a/even"
[[catalog.endpoints]]
provider = "cheap"
model = "m"
[[catalog.endpoints]]
provider = "dear"
model = "m"
"""


@dataclass
class Street:
    """A router before three endpoints."""

    service_view: ServiceView
    up: Mapping[str, Upstream]

    async def served(self, model: str = "a/m", **fields: Any) -> str:
        """Return the provider that answered, without the name of the model there."""
        status, headers, answer = await self.service_view.ask(R, model, **fields)
        assert status == 200, answer
        assert answer["model"] == model
        return headers["x-served-by"].partition("/")[0]

    async def refused(self, **fields: Any) -> tuple[int, Any]:
        status, _, answer = await self.service_view.ask(R, "a/m", **fields)
        return status, answer["error"]


@pytest.fixture
async def street(tmp_path: Path) -> AsyncIterator[Street]:
    async with AsyncExitStack() as held:
        up = {
            name: await held.enter_async_context(
                upstream(lambda _: Reply("Yes, indeed.", reasoning=THOUGHT))
            )
            for name in NAMES
        }
        yield Street(await held.enter_async_context(service_view(tmp_path, config(up))), up)


async def test_a_model_has_other_names_and_a_last_day(street: Street) -> None:
    status, headers, answer = await street.service_view.ask(R, "m-latest")
    assert (status, answer["model"]) == (200, "m-latest")
    assert headers["x-served-model"] == "a/m"
    status, headers, answer = await street.service_view.ask(R, "m-latest:floor")
    assert (status, answer["model"]) == (200, "m-latest:floor")
    status, _, answer = await street.service_view.ask(R, "a/old")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert "2020-01-01" in answer["error"]["message"]


async def test_suffixes_choose_among_endpoints(street: Street) -> None:
    assert await street.served("a/m:floor") == "cheap"
    assert await street.served("a/m:extended") == "dear"


def speaking(pause: float) -> Callable[[Received], Reply]:
    """Return a provider's reply, with pauses."""
    return lambda _: Reply("Yes, indeed.", pause=pause)


async def test_nitro_takes_the_fastest_that_was_measured(tmp_path: Path) -> None:
    pauses = {"cheap": 0.1, "mid": 0.005, "dear": 0.1}
    async with AsyncExitStack() as held:
        up = {
            name: await held.enter_async_context(upstream(speaking(pause)))
            for name, pause in pauses.items()
        }
        there = await held.enter_async_context(service_view(tmp_path, config(up)))
        for _ in NAMES:  # one that nobody has measured comes first
            assert await there.stream(R, "a/m:nitro") == "Yes, indeed."
        assert {name: len(each.requests) for name, each in up.items()} == dict.fromkeys(NAMES, 1)
        assert await Street(there, up).served("a/m:nitro") == "mid"


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ({"order": ["dear", "mid"]}, "dear"),
        ({"order": ["mid/m"], "allow_fallbacks": False}, "mid"),
        ({"only": ["dear"]}, "dear"),
        ({"ignore": ["cheap"], "sort": "price"}, "mid"),
        ({"require_parameters": True, "ignore": ["cheap"]}, "mid"),
        ({"sort": "price"}, "cheap"),
        ({"sort": {"by": "price"}, "quantizations": ["unknown"]}, "mid"),
        ({"max_price": {"prompt": "1.5"}}, "cheap"),
        ({"data_collection": "deny"}, "mid"),
    ],
)
async def test_preferences_are_followed(
    street: Street, provider: dict[str, Any], name: str
) -> None:
    assert await street.served(provider=provider, max_tokens=50) == name


async def test_who_is_excluded_by_what_is_said(street: Street) -> None:
    status, error = await street.refused(
        seed=1, max_tokens=5, provider={"max_price": {"prompt": 2}, "ignore": ["mid"]}
    )
    assert (status, error["code"], error["param"]) == (400, "unsupported_parameter", "seed")
    assert error["metadata"]["excluded"] == {
        "cheap/m": "does not support `seed`",
        "mid/m": "is in `provider.ignore`",
        "dear/m": "costs $3.00 (prompt)",
    }
    for name, why in error["metadata"]["excluded"].items():
        assert f"{name} {why}" in error["message"]


@pytest.mark.parametrize("by", ["session_id", "header", "prompt_cache_key", "opening"])
async def test_a_conversation_stays_where_it_began(street: Street, by: str) -> None:
    homes: Counter[int] = Counter()
    for talk in range(8):
        seen = set()
        for turn in range(3):
            messages = [{"role": "user", "content": f"{talk} {turn if by != 'opening' else ''}"}]
            messages += [{"role": "assistant", "content": "Yes."}] * (turn > 0)
            messages += [{"role": "user", "content": f"And {turn}?"}] * (turn > 0)
            named = {by: f"talk {talk}"} if by in ("session_id", "prompt_cache_key") else {}
            seen.add(await _home(street, messages, named, f"talk {talk}" if by == "header" else ""))
        homes[len(seen)] += 1
    assert homes == {1: 8}


async def _home(street: Street, messages: list[Any], named: dict[str, Any], session: str) -> str:
    headers = {"x-session-id": session} if session else {}
    body = {"model": "a/even", "messages": messages, **named}
    url = f"{street.service_view.root}{R}/chat/completions"
    async with street.service_view.session.post(url, json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        return response.headers["x-served-by"]


async def test_what_was_rewritten_for_an_endpoint_is_told(street: Street) -> None:
    status, headers, _ = await street.service_view.ask(
        R,
        "a/m",
        provider={"only": ["cheap"]},
        max_completion_tokens=50,
        reasoning={"effort": "low"},
    )
    assert status == 200
    sent = street.up["cheap"].requests[-1].body
    assert "reasoning" not in sent
    assert "reasoning" in headers["x-request-changes"]


async def test_reasoning_has_both_names_on_this_door_only(street: Street) -> None:
    _, _, routed = await street.service_view.ask(R, "a/m", provider={"only": ["cheap"]})
    _, _, plain = await street.service_view.ask("/gateway/v1", "plain")
    message, other = (each["choices"][0]["message"] for each in (routed, plain))
    assert message["reasoning_content"] == message["reasoning"] == THOUGHT
    assert message["reasoning_details"][0]["text"] == THOUGHT
    assert other["reasoning_content"] == THOUGHT
    assert not {"reasoning", "reasoning_details"} & set(other)
    _, _, hidden = await street.service_view.ask(
        R, "a/m", provider={"only": ["cheap"]}, reasoning={"exclude": True}
    )
    assert not {"reasoning", "reasoning_content", "reasoning_details"} & set(
        hidden["choices"][0]["message"]
    )
    status, _, answer = await street.service_view.ask(
        "/gateway/v1", "plain", reasoning={"effort": "low"}
    )
    assert (status, answer["error"]["param"]) == (400, "reasoning")


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": {"effort": "high"}, "reasoning_effort": "low"},
        {"reasoning": {"effort": "none", "enabled": True}},
        {"reasoning": {"effort": "low", "max_tokens": 10}},
        {"reasoning": {"enabled": False}, "chat_template_kwargs": {"enable_thinking": True}},
        {"reasoning": {"max_tokens": 5}, "thinking_token_budget": 6},
    ],
)
async def test_contradictions_are_refused(street: Street, fields: dict[str, Any]) -> None:
    status, error = await street.refused(**fields)
    assert (status, error["type"]) == (400, "invalid_request_error")


ACCOUNTS = """\
[store]
folder = "data"
[[doors]]
name = "router"
kind = "router"
[[providers]]
name = "up"
base_url = "{base_url}"
max_concurrent = 1
[providers.health]
path = ""
[[catalog]]
id = "a/m"
[[catalog.endpoints]]
provider = "up"
model = "m"
price = {{ prompt = "1", completion = "1" }}
[[catalog]]
id = "a/m:free"
[[catalog.endpoints]]
provider = "up"
model = "m"
"""


async def test_free_and_paid_share_no_limit(tmp_path: Path) -> None:
    once = LimitsAndBudgets(limits=(Limit(requests_per_minute=1),))
    async with upstream(lambda _: Reply("Yes.")) as up:
        text = ACCOUNTS.format(base_url=up.base_url)
        async with service_view(tmp_path, text) as there, office(tmp_path / "data") as opened:
            key = (await opened.key(bounds=once)).credential
            for model in ("a/m", "a/m:free"):
                assert (await there.ask(R, model, key))[0] == 200
                assert (await there.ask(R, model, key))[0] == 429


async def test_free_requests_go_away_at_once_where_paid_ones_are(tmp_path: Path) -> None:
    script: list[Reply | Fault] = [Reply("Yes, it is. " * 20, pause=0.05), Reply("Yes.")]
    async with upstream(script) as up:
        text = ACCOUNTS.format(base_url=up.base_url)
        async with service_view(tmp_path, text) as there, office(tmp_path / "data") as opened:
            key = (await opened.key()).credential
            body = {"model": "a/m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
            url, headers = f"{there.root}{R}/chat/completions", {"authorization": f"Bearer {key}"}
            async with there.session.post(url, json=body, headers=headers) as paid:
                await paid.content.readline()
                status, told, refused = await there.ask(R, "a/m:free", key)
                assert (status, refused["error"]["code"]) == (429, "concurrency")
                assert int(told["Retry-After"]) > 0
                assert not paid.content.at_eof()
                assert (await paid.text()).rstrip().endswith("data: [DONE]")
            assert len(up.requests) == 1
            assert (await there.ask(R, "a/m:free", key))[0] == 200


SEVERAL = (
    ACCOUNTS
    + """\
[[providers]]
name = "ill"
base_url = "{ill}"
dialect = "llama-server"
[providers.health]
path = ""
[[catalog]]
id = "a/ill"
[[catalog.endpoints]]
provider = "ill"
model = "m"
price = {{ prompt = "1", completion = "1" }}
"""
)


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.RESET_MID_STREAM])
async def test_a_request_that_falls_back_is_one_request(tmp_path: Path, fault: Fault) -> None:
    once = LimitsAndBudgets(limits=(Limit(requests_per_minute=1),))
    async with upstream(Reply("Yes.")) as up, upstream(fault) as ill:
        text = SEVERAL.format(base_url=up.base_url, ill=ill.base_url)
        async with service_view(tmp_path, text) as there, office(tmp_path / "data") as opened:
            key = (await opened.key(bounds=once)).credential
            status, headers, answer = await there.ask(R, "a/ill", key, models=["a/m"])
            assert (status, headers["x-served-model"]) == (200, "a/m")
            assert headers["x-ratelimit-remaining-requests"] == "0"
            assert answer["choices"][0]["message"]["content"] == "Yes."
            status, _, refused = await there.ask(R, "a/ill", key, models=["a/m"])
            assert (status, refused["error"]["code"]) == (429, "requests")
            key = (await opened.key(bounds=once)).credential
            status, headers, _ = await there.ask(R, "a/ill", key, models=["a/ill:floor"])
            assert (status, headers["x-ratelimit-remaining-requests"]) == (502, "0")
