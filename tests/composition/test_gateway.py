"""A whole gateway as it is configured: limits of an alias, own models behind providers, health."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any, cast

import httpx2 as httpx
import pytest
from faultkit import Fault, Reply, upstream
from gatewaykit import gateway
from openai import AsyncOpenAI, OpenAI, RateLimitError
from service import Service, serving
from structlog.testing import capture_logs

CONFIG = """
[[models]]
id = "small"
engine = "fake"
options = {{ replies = ["From our own engine."] }}
price = {{ prompt = "0.15", completion = "0.6", cached = "0.03" }}

[[doors]]
name = "gateway"
kind = "gateway"

[[providers]]
name = "there"
base_url = "{base_url}"
dialect = "vllm"
timeouts = {{ first_token = 5, between_chunks = 5 }}
health = {{ path = "" }}

[[aliases]]
id = "fast"
targets = [{{ provider = "there", model = "m" }}, {{ model = "small", priority = 1 }}]

[[aliases]]
id = "few"
targets = [{{ model = "small" }}]
limits = {{ requests_per_minute = 2 }}
price = {{ prompt = "2", request = "0.01" }}
"""
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A gateway whose provider is not there."""
    folder = tmp_path_factory.mktemp("alone")
    with serving(folder, CONFIG.format(base_url="http://127.0.0.1:9/v1")) as there:
        yield there


def test_limits_of_an_alias(alone: Service) -> None:
    base_url = f"{alone.root}/gateway/v1"
    with OpenAI(base_url=base_url, api_key="x", max_retries=0) as client:
        ask = client.chat.completions.with_raw_response.create
        for left in ("1", "0"):
            answer = ask(model="few", messages=HELLO)
            assert answer.headers["x-ratelimit-limit-requests"] == "2"
            assert answer.headers["x-ratelimit-remaining-requests"] == left
        with pytest.raises(RateLimitError) as refused:
            ask(model="few", messages=HELLO)
    assert refused.value.code == "requests"
    assert "few" in refused.value.message
    assert 1 <= int(refused.value.response.headers["retry-after"]) <= 60


def test_the_log_has_what_a_request_cost_without_accounts(alone: Service) -> None:
    base_url = f"{alone.root}/endpoints/small/v1"
    with OpenAI(base_url=base_url, api_key="x", max_retries=0) as client:
        answer = client.chat.completions.create(model="small", messages=HELLO)
    line = _logged(alone, answer.id)
    prompt, cached, completion = (int(line[name]) for name in ("prompt", "cached", "completion"))
    cost = 0.15 * (prompt - cached) + 0.03 * cached + 0.6 * completion
    assert line["cost"] == round(cost / 1e6, 9) > 0


def _logged(service: Service, request_id: str) -> dict[str, Any]:
    """The log line of a request, which is written a moment after its end."""
    ends = monotonic() + 60
    while monotonic() < ends:
        for text in service.log.read_text().splitlines():
            if request_id in text and '"event":"request"' in text:
                return cast("dict[str, Any]", json.loads(text))
        sleep(0.05)  # another process: there is nothing to await but its line
    raise AssertionError(service.log.read_text())


def test_the_list_of_models_says_what_they_cost(alone: Service) -> None:
    told = {
        entry["id"]: entry["pricing"]
        for door in ("gateway", "endpoints/small")
        for entry in httpx.get(f"{alone.root}/{door}/v1/models").json()["data"]
    }
    small = {"prompt": "0.00000015", "completion": "0.0000006", "input_cache_read": "0.00000003"}
    assert told == {
        "small": small | {"request": "0"},
        "few": {"prompt": "0.000002", "completion": "0", "request": "0.01"},
        # What its dearest target costs: the model that stands in for the provider.
        "fast": {"prompt": "0.00000015", "completion": "0.0000006", "request": "0"},
    }


def test_documents_are_listed_where_a_template_shows_them(alone: Service) -> None:
    ask = {"model": "small", "messages": HELLO, "documents": [{"text": "Foxes are red."}]}
    answer = httpx.post(f"{alone.root}/endpoints/small/v1/chat/completions", json=ask)
    refused = answer.json()["error"]
    assert (refused["code"], refused["param"]) == ("unsupported_parameter", "documents")
    listed = httpx.get(f"{alone.root}/gateway/v1/models").json()["data"]
    shown = {entry["id"]: "documents" in entry["supported_parameters"] for entry in listed}
    assert shown == {"fast": False, "few": False}  # of the provider nothing is measured


def test_our_own_engine_stands_in_for_an_provider_that_is_gone(alone: Service) -> None:
    base_url = f"{alone.root}/gateway/v1"
    with OpenAI(base_url=base_url, api_key="x", max_retries=0) as client:
        for _ in range(4):
            answer = client.chat.completions.with_raw_response.create(model="fast", messages=HELLO)
            assert answer.parse().choices[0].message.content == "From our own engine."
            assert answer.headers["x-served-by"] == "small"
    health = httpx.get(f"{alone.root}/health").json()
    states = {target["name"]: target["state"] for target in health["targets"]}
    assert states["small"] == "up"
    assert states["there/m"] != "up"  # down, and after a second or so worth a trial
    metrics = httpx.get(f"{alone.root}/metrics").text
    assert 'target="there/m"} 1.0' in metrics
    assert 'causerie_target_state{state="up",target="there/m"}' not in metrics


async def test_our_own_engine_goes_on_with_a_reply_of_an_provider(tmp_path: Path) -> None:
    async with upstream(Fault.RESET_MID_STREAM) as up:
        begun = "".join(delta["content"] for delta in Reply().deltas()[:2])
        with serving(tmp_path, CONFIG.format(base_url=up.base_url)) as there:
            base_url = f"{there.root}/gateway/v1"
            async with AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0) as client:
                stream = await client.chat.completions.create(
                    model="fast", messages=HELLO, stream=True
                )
                chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text.startswith(begun)
    assert len(text) > len(begun)
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_what_nobody_knows_is_named_where_our_own_engine_drops_it(alone: Service) -> None:
    ask = {"model": "fast", "messages": HELLO, "foo": 1, "b\nad": 2, "nothing": None}
    for more in ({}, {"stream": True}):
        answer = httpx.post(f"{alone.root}/gateway/v1/chat/completions", json=ask | more)
        assert answer.headers["x-served-by"] == "small"
        assert answer.headers["x-request-changes"] == "foo dropped, b%0Aad dropped"
        answer = httpx.post(
            f"{alone.root}/gateway/v1/chat/completions",
            json=ask | more,
            headers={"x-unknown-params": "reject"},
        )
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "foo"


async def test_who_is_alone_and_dead_is_named_with_the_next_step() -> None:
    with socket.socket() as taken, capture_logs() as logged:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        port = taken.getsockname()[1]
        async with gateway(f"http://127.0.0.1:{port}/v1") as there:
            answers = [await there.plain() for _ in range(4)] + [await there.stream()]
    assert [answer.status for answer in answers] == [502, 502, 502, 503, 503]
    for answer in answers:
        assert answer.error is not None
        message = answer.error["message"]
        assert "(e0). e0: The provider cannot be connected to." in message
        assert "`causerie probe`" in message
        assert "127.0.0.1" not in message
    [told] = [line for line in logged if line["event"] == "target down"]
    assert (told["target"], told["code"]) == ("e0", "connection")
    assert f"127.0.0.1:{port}" in told["cause"]
