"""Embeddings, rerank and plain completions at every door that has a provider behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import pytest_asyncio
from casekit import each_of, first_of
from passedkit import RANKED, VECTORS, Upstream, text_chunk, upstream
from servicekit import ServiceView, service_view

from causerie.metering.meter import Contents
from causerie.protocol.events import PassedBytes, TextDelta, Usage
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.shapes.passed_through import PassedThroughReply, parse

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIG = """
[store]
folder = "{folder}"
[[doors]]
name = "gateway"
kind = "gateway"
models = ["embed", "order", "code", "talk", "any/*", "limited"]
[[doors]]
name = "router"
kind = "router"
keys = "off"
[[doors]]
name = "strict"
kind = "gateway"
unknown_params = "reject"
models = ["embed"]
[[providers]]
name = "first"
base_url = "{first}"
key = {{ env = "FIRST_KEY" }}
passes = ["task"]
health = {{ path = "" }}
max_reply_bytes = 300000
models = [
  {{ id = "their-embed", operations = ["embeddings"] }},
  {{ id = "their-order", operations = ["rerank"] }},
  {{ id = "their-code", operations = ["completions"] }},
  {{ id = "their-chat", operations = ["chat"] }},
]
[[providers]]
name = "second"
base_url = "{second}"
health = {{ path = "" }}
[[aliases]]
id = "embed"
targets = [
  {{ provider = "first", model = "their-embed" }},
  {{ provider = "second", model = "other-embed", priority = 1 }},
]
[[aliases]]
id = "order"
targets = [{{ provider = "first", model = "their-order" }}]
[[aliases]]
id = "code"
targets = [{{ provider = "first", model = "their-code" }}]
[[aliases]]
id = "talk"
targets = [{{ provider = "first", model = "their-chat" }}]
[[aliases]]
id = "any/*"
targets = [{{ provider = "second", model = "*" }}]
[[aliases]]
id = "limited"
limits = {{ tokens_per_minute = 100 }}
targets = [{{ provider = "first", model = "their-embed" }}]
[[catalog]]
id = "maker/embed"
[[catalog.endpoints]]
provider = "first"
model = "their-embed"
price = {{ prompt = "1000000" }}
[[catalog]]
id = "maker/order"
[[catalog.endpoints]]
provider = "first"
model = "their-order"
price = {{ request = "3" }}
[[catalog]]
id = "maker/chat"
[[catalog.endpoints]]
provider = "first"
model = "their-chat"
"""


@dataclass
class There:
    view: ServiceView
    first: Upstream
    second: Upstream

    async def post(
        self, path: str, body: Any, **headers: str
    ) -> tuple[int, Any, aiohttp.typedefs.LooseHeaders]:
        url = self.view.root + path
        async with self.view.session.post(url, json=body, headers=headers) as response:
            return response.status, await response.json(), response.headers


@asynccontextmanager
async def service(folder: Path) -> AsyncIterator[There]:
    async with AsyncExitStack() as held:
        first = await held.enter_async_context(upstream())
        second = await held.enter_async_context(upstream())
        text = CONFIG.format(first=first.base_url, second=second.base_url, folder=folder / "data")
        view = await held.enter_async_context(service_view(folder, text, FIRST_KEY="sk-first"))
        yield There(view, first, second)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[There]:
    async with service(tmp_path_factory.mktemp("passed")) as there:
        yield there


@pytest.fixture
def there(shared: There) -> There:
    for one in (shared.first, shared.second):
        one.replies.clear()
        one.got.clear()
        one.hold = False
        one.gone.clear()
    return shared


@pytest.mark.parametrize(("door", "model"), [("gateway", "embed"), ("router", "maker/embed")])
async def test_the_official_client_gets_vectors(there: There, door: str, model: str) -> None:
    there.first.replies.append((200, VECTORS))
    base = f"{there.view.root}/{door}/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="mine", max_retries=0) as client:
        reply = await client.embeddings.create(
            model=model, input=["one text"], encoding_format="float", dimensions=2
        )
    assert reply.data[0].embedding == [0.25, -0.5]
    assert (reply.model, reply.usage.prompt_tokens) == (model, 7)
    [(path, sent, key)] = there.first.got
    assert path == "/v1/embeddings"
    assert sent == {
        **{"model": "their-embed", "input": ["one text"]},
        **{"encoding_format": "float", "dimensions": 2},
    }
    assert key == "Bearer sk-first"


async def test_only_listed_fields_pass_and_the_others_are_named(there: There) -> None:
    there.first.replies.append((200, VECTORS))
    body = {"model": "embed", "input": "x", "task": "retrieval", "api_base": "http://x", "y": 1}
    status, reply, headers = await there.post("/gateway/v1/embeddings", body)
    assert status == 200
    [(_, sent, _)] = there.first.got
    assert sent == {"model": "their-embed", "input": "x", "task": "retrieval"}
    assert headers["x-request-changes"] == "api_base dropped, y dropped"
    assert headers["x-served-by"] == "first/their-embed"
    assert headers["x-attempts"] == "1"
    assert headers["x-request-id"].startswith("embd-")
    assert reply["usage"] == {"prompt_tokens": 7, "total_tokens": 7}, "not what we are charged"
    status, refused, _ = await there.post("/strict/v1/embeddings", body)
    assert (status, refused["error"]["param"]) == (400, "api_base")


async def test_another_target_answers_before_the_first_byte(there: There) -> None:
    there.first.replies.append((500, {"error": {"message": "no"}}))
    there.second.replies.append((200, {**VECTORS, "model": "other-embed"}))
    body = {"model": "embed", "input": [[1, 2], [3]]}
    status, reply, headers = await there.post("/gateway/v1/embeddings", body)
    assert (status, reply["model"], headers["x-attempts"]) == (200, "embed", "2")
    assert headers["x-served-by"] == "second/other-embed"
    assert there.second.got[0][1] == {"model": "other-embed", "input": [[1, 2], [3]]}


@pytest.mark.parametrize("status", first_of([400, 429]))
async def test_a_refusal_is_that_of_chat(there: There, status: int) -> None:
    there.second.replies += [(status, {"error": {"message": "too much of it"}})] * 2
    chat = {"model": "any/x", "messages": [{"role": "user", "content": "Hi"}]}
    embed = {"model": "any/x", "input": "Hi"}
    first = await there.post("/gateway/v1/chat/completions", chat)
    second = await there.post("/gateway/v1/embeddings", embed)
    assert first[:2] == second[:2]
    assert first[0] != 200
    assert ("Retry-After" in first[2]) is ("Retry-After" in second[2]) is (status == 429)


async def test_rerank_is_charged_by_search_units(there: There) -> None:
    there.first.replies.append((200, RANKED))
    body = {
        **{"model": "maker/order", "query": "q", "documents": ["a", {"text": "b", "url": "x"}]},
        **{"top_n": 1, "provider": {"order": ["first"]}},
    }
    status, reply, headers = await there.post("/router/v1/rerank", body)
    assert (status, reply) == (200, RANKED)
    [(path, sent, _)] = there.first.got
    assert path == "/v1/rerank"
    assert sent == {
        **{"model": "their-order", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1}
    }
    assert headers["x-request-changes"] == "documents.url dropped"
    bare = [{"index": 0, "score": 0.5}]  # of a server that reports nothing else
    there.first.replies.append((200, bare))
    body = {"model": "order", "query": "q", "documents": ["a"]}
    assert (await there.post("/gateway/v1/rerank", body))[:2] == (200, bare)


@each_of(
    ("path", "body", "param"),
    [
        ("embeddings", {"model": "embed"}, "input"),
        ("embeddings", {"model": "embed", "input": []}, "input"),
        ("embeddings", {"model": "embed", "input": ["a", 1]}, "input"),
        ("embeddings", {"model": "embed", "input": "a", "dimensions": "3"}, "dimensions"),
        ("rerank", {"model": "order", "query": "q", "documents": [3]}, "documents[0]"),
        ("completions", {"model": "code", "prompt": "a", "n": 99}, "n"),
        ("embeddings", {"model": "talk", "input": "a"}, "model"),
        ("chat/completions", {"model": "embed", "messages": []}, "messages"),
    ],
)
async def test_wrong_requests_name_their_field(
    there: There, path: str, body: Any, param: str
) -> None:
    status, reply, _ = await there.post(f"/gateway/v1/{path}", body)
    assert (status, reply["error"]["param"]) == (400, param), reply
    assert not there.first.got


async def test_chat_at_an_embedding_model_says_what_it_serves(there: There) -> None:
    ask = {"messages": [{"role": "user", "content": "Hi"}]}
    for door, model in (("gateway", "limited"), ("router", "maker/embed")):
        path = f"/{door}/v1/chat/completions"
        status, reply, _ = await there.post(path, {"model": model, **ask})
        assert (status, reply["error"]["code"]) == (400, "unsupported_operation")
        assert "serves embeddings, not chat" in reply["error"]["message"]
    # One of its targets may serve chat: nothing is known of it.
    there.second.replies.append((200, {"choices": [{"message": {"content": "Hi"}}]}))
    status, _, headers = await there.post("/gateway/v1/chat/completions", {"model": "embed", **ask})
    assert (status, headers["x-served-by"]) == (200, "second/other-embed")


async def test_the_catalog_lists_what_models_return(there: There) -> None:
    async def ids(query: str) -> list[str]:
        _, listed = await there.view.get(f"/router/v1/{query}")
        return [entry["id"] for entry in listed["data"]]

    assert await ids("models") == ["maker/chat"]
    assert await ids("models?output_modalities=rerank") == ["maker/order"]
    assert await ids("embeddings/models") == ["maker/embed"]
    assert len(await ids("models?output_modalities=all")) == 3
    _, entry = await there.view.get("/router/v1/models/maker/embed")
    assert entry["architecture"]["output_modalities"] == ["embeddings"]
    assert entry["architecture"]["modality"] == "text->embeddings"
    assert entry["supported_parameters"] == []
    assert (await there.view.get("/router/v1/models/count"))[1] == {"data": {"count": 1}}
    _, served = await there.view.get("/gateway/v1/models/limited")
    assert served["architecture"]["output_modalities"] == ["embeddings"]


async def test_fallback_models_of_a_router(there: There) -> None:
    there.first.replies.append((200, VECTORS))
    body = {"models": ["maker/chat", "maker/embed"], "input": "x"}
    status, reply, _ = await there.post("/router/v1/embeddings", body)
    assert (status, reply["model"], reply["usage"]["cost"]) == (200, "maker/chat", 7)
    status, reply, _ = await there.post("/router/v1/embeddings", {"model": "no", "input": "x"})
    assert (status, reply["error"]["param"]) == (404, "model")


async def test_what_is_kept_of_a_request_and_its_stream() -> None:
    body = json.dumps({"model": "code", "prompt": "x", "stream": True}).encode()
    request = parse("completions", body, ParsingRules())
    identity = CompletionIdentity("req-1", 1, "req-1")
    kept = Contents(request, ResponseContext(identity, "code", ""), PassedThroughReply().completion)
    for text in "ab":
        kept.see([TextDelta(text), PassedBytes(json.dumps(text_chunk(text)).encode())])
    assert json.loads(kept.request().text) == {"model": "code", "prompt": "x", "stream": True}
    reply = json.loads(kept.reply(Usage(5, 2)).text)
    assert reply["choices"] == [{"text": "ab"}]
    assert reply["usage"]["completion_tokens"] == 2


async def test_limits_count_the_input(there: There) -> None:
    there.first.replies += [(200, {**VECTORS, "usage": {"prompt_tokens": 60}})]
    body = {"model": "limited", "input": "abcd" * 50}
    status, _, headers = await there.post("/gateway/v1/embeddings", body)
    assert status == 200
    assert headers["x-ratelimit-limit-tokens"] == "100"
    assert headers["x-ratelimit-remaining-tokens"] == "50", "as reserved, until it is settled"
    status, reply, headers = await there.post("/gateway/v1/embeddings", body)
    assert (status, reply["error"]["code"]) == (429, "tokens")
    assert reply["error"]["metadata"]["used"] == 60, "as reported"
    assert int(headers["Retry-After"]) >= 1


async def test_a_large_reply_passes_unread_and_a_longer_one_fails(there: There) -> None:
    large = {**VECTORS, "data": [{"index": 0, "embedding": [0.123456] * 25_000}]}
    there.first.replies.append((200, large))
    body = {"model": "limited", "input": "a"}
    status, reply, _ = await there.post("/gateway/v1/embeddings", body)
    assert status == 200, reply
    assert (reply["model"], reply["data"]) == ("limited", large["data"])
    longer = {**VECTORS, "data": [{"index": 0, "embedding": [0.123456] * 50_000}]}
    there.first.replies.append((200, longer))
    status, reply, _ = await there.post("/gateway/v1/embeddings", body)
    assert (status, reply["error"]["type"]) == (502, "upstream_error")


async def test_a_completion_of_nothing_and_without_a_limit(there: There) -> None:
    there.first.replies.append((200, text_chunk("mid", "stop")))
    body = {"model": "code", "prompt": "", "suffix": "return", "max_tokens": -1}
    status, reply, headers = await there.post("/gateway/v1/completions", body)
    assert (status, reply["choices"][0]["text"]) == (200, "mid")
    assert headers["x-request-changes"] == "max_tokens -1 dropped"
    assert there.first.got[0][1] == {"model": "their-code", "prompt": "", "suffix": "return"}


async def test_a_plain_completion_fills_in_the_middle(there: There) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    there.first.replies.append((200, text_chunk("mid", "length", usage=usage)))
    base = f"{there.view.root}/gateway/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="mine", max_retries=0) as client:
        reply = await client.completions.create(
            model="code", prompt="def f(", suffix="return", max_tokens=2, temperature=0
        )
    assert (reply.choices[0].text, reply.model) == ("mid", "code")
    assert there.first.got[0][1] == {
        **{"model": "their-code", "prompt": "def f(", "suffix": "return"},
        **{"max_tokens": 2, "temperature": 0},
    }


@pytest.mark.parametrize("asked", [True, False])
async def test_a_stream_passes_event_by_event(there: There, asked: bool) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    there.first.replies.append(
        [
            text_chunk("", usage=None),
            text_chunk("a"),
            text_chunk("b", "stop"),
            {**text_chunk(""), "choices": [], "usage": usage},
            "[DONE]",
        ]
    )
    options = {"stream_options": {"include_usage": True}} if asked else {}
    base = f"{there.view.root}/gateway/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="mine", max_retries=0) as client:
        stream: Any = await client.completions.create(
            model="code", prompt="x", stream=True, extra_body=options
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == "ab"
    assert {chunk.model for chunk in chunks} == {"code"}
    assert len(chunks) == 3 + asked
    told = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert [(one.prompt_tokens, one.completion_tokens) for one in told] == [(5, 2)] * asked
    assert there.first.got[0][1]["stream_options"] == {"include_usage": True}


async def test_a_broken_stream_ends_with_an_error(there: There) -> None:
    there.first.replies.append([text_chunk("a"), text_chunk("b")])
    url = f"{there.view.root}/gateway/v1/completions"
    body = {"model": "code", "prompt": "x", "stream": True}
    async with there.view.session.post(url, json=body) as response:
        lines = [line async for line in response.content if line.startswith(b"data: ")]
    *chunks, error, done = lines
    assert [json.loads(one[6:])["choices"][0]["text"] for one in chunks] == ["a", "b"]
    assert json.loads(error[6:])["error"]["type"] == "upstream_error"
    assert done == b"data: [DONE]\n"


async def test_leaving_frees_the_provider(there: There) -> None:
    there.first.replies.append([text_chunk("a")])
    there.first.hold = True
    url = f"{there.view.root}/gateway/v1/completions"
    body = {"model": "code", "prompt": "x", "stream": True}
    async with there.view.session.post(url, json=body) as response:
        await response.content.readline()
        response.close()
    async with asyncio.timeout(10):
        await there.first.gone.wait()


async def test_a_wildcard_passes_the_name(there: There) -> None:
    there.second.replies.append((200, VECTORS))
    body = {"model": "any/text-embedding-3-small", "input": "x"}
    status, reply, _ = await there.post("/gateway/v1/embeddings", body)
    assert (status, reply["model"]) == (200, body["model"])
    assert there.second.got[0][1]["model"] == "text-embedding-3-small"
