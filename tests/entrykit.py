"""Public entries of a service: their usual inputs, what may stand where, and how to send one."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from hostilekit import NUMBERS, SCHEMAS, TEXTS, VALUES, Entry, every_place
from kvkit import EngineCache, Publisher
from loopkit import HI, PATHS
from pageentrykit import catalog, configuration, management, managing, pages
from shapeentrykit import directories, further_replies, further_shapes, price_lists
from sitekit import (
    CLIENT_SECONDS,
    USUAL_ANSWER,
    USUAL_CALL,
    USUAL_LIST,
    Site,
    posting,
    site,
    text_of,
)
from valkey.asyncio import Valkey

from causerie.engines.pool.kv_events import KvEndpoint, KvSubscriber, KvView, PrefixIndex
from causerie.errors import ServiceError
from causerie.hosted.identity.provider import (
    IdentityHttp,
    OidcProvider,
    ProviderOptions,
    Returned,
    SignInAttempt,
)

_ROUTER = "/router/v1/chat/completions"
_HEAD_MOST = 40_000  # bytes; longer ones are refused unread
_TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "d",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
}
_MESSAGES: Sequence[Any] = (
    {"role": "system", "content": "a"},
    {"role": "user", "content": "hi", "name": "bob"},
    {
        "role": "assistant",
        "content": "b",
        "reasoning_content": "r",
        "reasoning_details": [{"type": "reasoning.text", "text": "t"}],
        "tool_calls": [USUAL_CALL],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "x"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        ],
    },
    {"role": "user", "content": "hi"},
)
# A request with everything, for a model of a provider; one of the engine takes some of it.
_EVERYTHING: Mapping[str, Any] = {
    "model": "far",
    "models": ["far"],
    "messages": _MESSAGES,
    "tools": [_TOOL],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "stop": ["a"],
    "stop_token_ids": [1],
    "seed": 1,
    "temperature": 1,
    "max_tokens": 5,
    "logit_bias": {"5": 1},
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}},
    },
    "user": "u",
    "session_id": "s",
    "metadata": {"a": "b"},
    "chat_template_kwargs": {"x": 1},
    "documents": [{"title": "t", "text": "x"}],
    "prediction": {"type": "content", "content": "x"},
    "provider": {"order": ["a"], "max_price": {"prompt": 1}},
    "reasoning_effort": "low",
    "stream": True,
    "stream_options": {"include_usage": True},
    "unknown": "x",
}
BODY_FAMILIES = (*TEXTS, *NUMBERS, *VALUES)
_SCHEMA_FAMILIES = (*SCHEMAS, *SCHEMAS, *SCHEMAS, *TEXTS, *NUMBERS, *VALUES)
_DOCUMENTS = ("keys", "list", "different", "deep", "chain", "letters", "words", "digits", "lines")
_HEADERS = (
    *("accept", "accept-encoding", "accept-language", "authorization", "cookie", "content-type"),
    *("content-length", "transfer-encoding", "connection", "expect", "host", "origin", "referer"),
    *("if-none-match", "if-modified-since", "forwarded", "x-forwarded-for", "x-forwarded-proto"),
    *("traceparent", "tracestate", "x-session-id", "x-tag", "x-title", "http-referer", "x-api-key"),
    *("x-unknown-params", "user-agent", "range", "x-form-token", "hx-current-url", "upgrade"),
)
_CHUNK = {
    "id": "r1",
    "choices": [
        {
            "index": 0,
            "delta": {
                "content": "hi",
                "reasoning_content": "r",
                "tool_calls": [{"index": 0, **USUAL_CALL}],
            },
            "finish_reason": None,
        }
    ],
    "usage": None,
}
_END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
_FAILURE = {
    "error": {"message": "m", "type": "t", "code": "c", "param": "p", "metadata": {"raw": "x"}},
    "detail": [{"loc": ["body", "x"], "msg": "m"}],
}


@asynccontextmanager
async def entries(folder: Path) -> AsyncIterator[dict[str, Entry]]:
    """Yield the entries of a service that runs meanwhile, by name."""
    async with AsyncExitStack() as held:
        world = await held.enter_async_context(site(folder))
        found = [
            *_completions(world),
            *await pages(world),
            *await management(world),
            *configuration(world),
            *catalog(world),
            *_heads(world),
            *_replies(world),
            *further_shapes(world),
            *further_replies(world),
            *[each async for each in directories(world)],
            *price_lists(world, folder),
            *_sign_in(world),
            *_replicas(world),
            await held.enter_async_context(_pool()),
        ]
        yield {entry.name: entry for entry in found}


def _completions(world: Site) -> Iterator[Entry]:
    """Requests with everything, to a provider; of an engine's model, schemas, too."""
    for door in ("gateway", "router"):
        path = PATHS.get(door, _ROUTER)
        usual = msgspec.to_builtins(_EVERYTHING)
        if door == "router":
            usual |= {"model": "author-1/model-1", "models": ["author-2/model-2"]}
            usual["reasoning"] = {"effort": usual.pop("reasoning_effort")}
        yield Entry(
            f"completions.{door}", usual, posting(world, path),
            every_place(usual, BODY_FAMILIES), most=2_000_000,
        )  # fmt: skip
    usual = {name: _EVERYTHING[name] for name in ("messages", "tools", "stop", "logit_bias")}
    usual |= {"model": "near", "max_tokens": 5, "chat_template_kwargs": {"x": 1}}
    near = posting(world, PATHS["endpoint"])
    usual["messages"] = [each for each in _MESSAGES if not isinstance(each["content"], list)]
    yield Entry("completions.near", usual, near, every_place(usual, BODY_FAMILIES))
    for door, path in (("near", PATHS["endpoint"]), ("router", _ROUTER)):
        post = posting(world, path)
        yield Entry(
            f"model.{door}",
            {"model": "x", "messages": HI},
            post,
            {"model": tuple(TEXTS)},
            most=1_000,
        )
    yield from _schemas(world)


def _schemas(world: Site) -> Iterator[Entry]:
    """The engine repeats what the user said, as far as the grammar lets it: it is the document."""
    post = posting(world, PATHS["endpoint"])

    def asked(made: Any) -> dict[str, Any]:
        said = made["document"]
        return {
            "model": "near",
            "messages": [{"role": "user", "content": text_of(said)}],
            "max_tokens": 50_000,
        }

    async def response_format(made: Any) -> int:
        form = {"name": "s", "schema": made["schema"]}
        given = {"response_format": {"type": "json_schema", "json_schema": form}}
        return await post(asked(made) | given)

    async def tool(made: Any) -> int:
        function = {"name": "f", "parameters": made["schema"], "strict": True}
        tools = {
            "tools": [{"type": "function", "function": function}],
            "tool_choice": "required",
        }
        return await post(asked(made) | tools)

    async def structured(made: Any) -> int:
        return await post(asked(made) | {"structured_outputs": made["structured"]})

    usual = {"schema": {"type": "object"}, "document": "hi"}
    places = {"schema": _SCHEMA_FAMILIES, "document": _DOCUMENTS}
    yield Entry("schema.format", usual, response_format, places, most=80_000)
    yield Entry("schema.tool", usual, tool, places, most=80_000)
    for kind, given, families in (
        ("regex", "a", tuple(TEXTS)),
        ("grammar", 'start: "a"', tuple(TEXTS)),
        ("choice", ["a"], ("different", "list", "letters", "words", "foreign")),
    ):
        usual_of = {"structured": {kind: given}, "document": "hi"}
        yield Entry(
            f"structured.{kind}", usual_of, structured,
            {f"structured.{kind}": families, "document": _DOCUMENTS}, most=200_000,
        )  # fmt: skip


def _heads(world: Site) -> Iterator[Entry]:
    """Heads as they are read before anything else: names, values, and how many."""
    usual: dict[str, Any] = {
        "method": "GET", "target": "/router/v1/models/count", "name": "x",
        "headers": dict.fromkeys(_HEADERS, ""), "count": [],
    }  # fmt: skip

    async def send(made: Any) -> int:
        headers = [(n, _line(v)) for n, v in made["headers"].items() if v != ""]
        headers += [
            (f"{_line(made['name'])[:60_000]}{at}", "v") for at, _ in enumerate(made["count"])
        ]
        return await world.sender().send(_line(made["method"]), _line(made["target"]), b"", headers)

    texts = tuple(TEXTS)
    places: dict[str, Sequence[str]] = {
        **{f"headers.{name}": texts for name in _HEADERS},
        "method": ("letters", "digits", "spaces"), "target": texts, "name": texts,
        "count": ("list",),
    }  # fmt: skip
    yield Entry("head", usual, send, places, most=_HEAD_MOST)

    async def chat(made: Any) -> int:
        headers = [(n, _line(v)) for n, v in made["headers"].items() if v != ""]
        headers.append(("content-type", "application/json"))
        body = msgspec.json.encode({"model": "near", "messages": HI, "max_tokens": 1})
        return await world.sender().send("POST", PATHS["endpoint"], body, headers)

    usual = {"headers": dict.fromkeys(_HEADERS, "")}
    places = {f"headers.{name}": texts for name in _HEADERS if name != "content-length"}
    yield Entry("head.chat", usual, chat, places, most=_HEAD_MOST)


def _line(value: Any) -> str:
    return text_of(value).replace("\r", " ").replace("\n", " ")


def _event(chunk: Any) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _replies(world: Site) -> Iterator[Entry]:
    """Replies of a provider: plain, streamed, a failure, its list of models."""
    provider, ask = world.provider, posting(world, PATHS["gateway"])
    asked = {"model": "far", "messages": HI, "tools": [_TOOL], "logprobs": True}

    async def plain(made: Any) -> int:
        with provider.answering("application/json", (msgspec.json.encode(made),)):
            return await ask(asked)

    async def failed(made: Any) -> int:
        with provider.answering("application/json", (msgspec.json.encode(made),), status=400):
            return await ask(asked)

    yield Entry(
        "reply.plain", USUAL_ANSWER, plain, every_place(USUAL_ANSWER, BODY_FAMILIES), most=8_000_000
    )
    yield Entry("reply.failure", _FAILURE, failed, every_place(_FAILURE, BODY_FAMILIES))
    for streamed in (True, False):

        async def stream(made: Any, streamed: bool = streamed) -> int:
            with provider.answering("text/event-stream", tuple(_pieces(made))):
                return await ask({**asked, "stream": streamed})

        usual = {"chunk": _CHUNK, "events": [1], "line": "", "cut": []}
        places = every_place(usual, BODY_FAMILIES)
        places |= {"events": ("list",), "line": tuple(TEXTS), "cut": ("list",)}
        del places["events.0"]
        name = "streamed" if streamed else "gathered"
        yield Entry(f"reply.{name}", usual, stream, places, most=16_000_000)

    async def listed(made: Any) -> int:
        with provider.listing(made):
            return await test({"path": {}, "query": {}, "body": {"settings": settings}})

    settings = {"name": "new", "base_url": f"{provider.url}/v1"}
    test = managing(world, "POST", "/api/providers/test")
    yield Entry(
        "list.models", USUAL_LIST, listed, every_place(USUAL_LIST, BODY_FAMILIES), most=2_000_000
    )

    async def offered(made: Any) -> int:
        with provider.listing(made):
            return await offers({"path": {"provider": "p0"}, "query": {}})

    offers = managing(world, "GET", "/api/providers/{provider}/offers")
    yield Entry(
        "list.offers", USUAL_LIST, offered, every_place(USUAL_LIST, BODY_FAMILIES), most=2_000_000
    )


def _pieces(made: Any) -> Iterator[bytes]:
    """Yield a stream: an event many times, and a line; each in so many pieces as ``cut`` says."""
    event = _event(made["chunk"])
    whole = event * len(made["events"])
    if line := text_of(made["line"]):
        whole += line.encode("utf-8", "replace")
    whole += b"\n\n" + _END
    size = max(len(whole) // (len(made["cut"]) + 1), 1)
    for at in range(0, len(whole), size):
        yield whole[at : at + size]


def _sign_in(world: Site) -> Iterator[Entry]:
    """Documents of a provider that people sign in with: where it is, its keys, its tokens."""
    provider = world.provider
    issuer = f"{provider.url}/id"
    metadata = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "jwks_uri": f"{issuer}/jwks",
        "userinfo_endpoint": f"{issuer}/userinfo",
        "id_token_signing_alg_values_supported": ["RS256", "ES256"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic"],
    }
    keys = {
        "keys": [
            {"kty": "RSA", "kid": "k", "n": "A" * 342, "e": "AQAB"},
            {"kty": "EC", "kid": "e", "crv": "P-256", "x": "A" * 43, "y": "A" * 43},
            {"kty": "OKP", "kid": "o", "crv": "Ed25519", "x": "A" * 43},
        ]
    }
    token = {"head": {"alg": "RS256", "kid": "k"}, "claims": {"sub": "s"}, "signature": "A"}
    usual = {"metadata": metadata, "keys": keys, "token": token, "access_token": "a"}

    async def send(made: Any) -> int:
        signed = made["token"]
        if isinstance(signed, dict):
            head, claims = (_part(signed[name]) for name in ("head", "claims"))
            signed = f"{head}.{claims}.{text_of(signed['signature'])}"
        provider.documents |= {
            "/openid-configuration": made["metadata"],
            "/jwks": made["keys"],
            "/token": {"id_token": signed, "access_token": made["access_token"]},
        }
        options = ProviderOptions("p", "P", issuer, "client")
        way = OidcProvider(options, IdentityHttp(), now=time.time)
        attempt = SignInAttempt("p", "http://back", int(time.time()), "n", "v")
        try:
            await way.finish(attempt, Returned(code="c", issuer=issuer))
        except ServiceError as failure:
            return failure.status
        return 200

    places = every_place(usual, BODY_FAMILIES)
    yield Entry("sign-in", usual, send, places, most=500_000)


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).rstrip(b"=").decode()


def _replicas(world: Site) -> Iterator[Entry]:
    """Values in the server that replicas share."""

    async def stored(made: Any) -> int:
        """Put a text in the place of every value that the service keeps there."""
        chat = posting(world, "/hosted/v1/chat/completions", authorization=f"Bearer {world.bearer}")
        asked = {"model": "far", "messages": HI, "tools": [_TOOL]}
        await chat(asked)
        async with Valkey.from_url(world.shared.replace("valkey", "redis")) as client:
            for key in await client.keys("*"):
                await client.set(key, text_of(made["value"]).encode("utf-8", "replace"))
            status = await chat(asked)
            await client.flushdb()
        return status

    yield Entry("replicas.value", {"value": "x"}, stored, {"value": tuple(TEXTS)})


@asynccontextmanager
async def _pool() -> AsyncIterator[Entry]:
    """KV events of a member of a pool, over its sockets."""
    publisher = Publisher(EngineCache())
    [stored] = publisher.cache.read(list(range(16)))
    stored["block_hashes"] = [7]
    usual = {
        "ts": 1.0,
        "events": [stored, {"type": "BlockRemoved", "block_hashes": [7], "group_idx": 0}],
    }
    changed = asyncio.Event()
    async with publisher.listening():
        index = PrefixIndex(100_000)
        follower = KvSubscriber(
            KvEndpoint(publisher.events, publisher.replay), KvView(index, "c", "m"), changed.set
        )
        follower.start()

        async def send(made: Any) -> int:
            payload = await asyncio.to_thread(msgspec.msgpack.encode, made)
            changed.clear()
            async with asyncio.timeout(CLIENT_SECONDS):
                while not changed.is_set():  # nobody gets it while the reader connects anew
                    await publisher.send(payload)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(5):
                            await changed.wait()
            return 200

        async with asyncio.timeout(CLIENT_SECONDS):
            await changed.wait()
        try:
            places = every_place(usual, (*VALUES, *TEXTS))
            yield Entry("pool.events", usual, send, places, most=4_000_000)
        finally:
            await follower.stop()
