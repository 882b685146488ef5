"""The public entries of a service that runs in this process, and what one input costs it.

There is one service with every kind of door, accounts, a catalog of a thousand models, and a provider
that answers what a case says. :class:`Costs` is the processor time of the event loop in one piece, that
of all threads together, and the memory that was taken and kept.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import re
import signal
import socket
import socketserver
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import MagicMock
from urllib.parse import quote, urlencode

import msgspec
import pytest
from hostedkit import office
from hostilekit import NUMBERS, SCHEMAS, TEXTS, VALUES, Case, Entry, every_place
from kvkit import EngineCache, Publisher
from loopkit import HI, OPEN_DOORS, PATHS, Watch, slowness
from servicekit import ServiceView, service_view
from valkey.asyncio import Valkey
from valkeyserver import ValkeyServer

from causerie.accounts.people import SYSTEM
from causerie.accounts.sessions import SessionClient
from causerie.cli.key import digest_line
from causerie.console.fields import FormFields
from causerie.console.routes import routes
from causerie.engines.pool.kv_subscriber import KvEndpoint, KvSubscriber
from causerie.engines.pool.kv_view import KvView
from causerie.engines.pool.prefix_index import PrefixIndex
from causerie.errors import ServiceError
from causerie.identity.provider import OidcProvider, ProviderOptions, Returned, SignInAttempt
from causerie.identity.web import IdentityHttp

OPERATOR = "ck_ops_" + "0123456789abcdef" * 3
MODELS, ENDPOINTS = 1000, 5
WORK_SECONDS = 1.0
"""Processor time of all threads for one input, on a usual machine."""
TAKEN_MB = 256.0
"""Memory that one input may take while it is handled."""
_HEAD_MOST = 40_000  # bytes; longer ones are refused unread
_FORM_MOST = 200_000
_MANAGED_MOST = 60_000
_SECONDS = 120.0  # a client waits
_SAMPLE_SECONDS = 0.002
_HERE = str(Path(__file__).parent.parent / "src")

_CONFIG = (
    OPEN_DOORS
    + """
[store]
folder = "{folder}/data"
[console]
operator_keys = ["{operator}"]
api_requests_per_minute = 10000000
sign_up = true
public_rankings = true
[shared]
url = "{shared}"
[[doors]]
name = "hosted"
kind = "hosted"
[[doors]]
name = "router"
kind = "router"
keys = "off"
[[providers]]
name = "a"
base_url = "{url}/v1"
[[aliases]]
id = "far"
targets = [{{ provider = "a", model = "m" }}]
[[models]]
id = "near"
engine = "fake"
options = {{ context_length = 1000000 }}
"""
)


def large_catalog(base_url: str = "http://127.0.0.1:9") -> str:
    """Return tables of a thousand models, with five endpoints each."""
    parts = [
        f'[[providers]]\nname = "p{n}"\nbase_url = "{base_url}/{n}/v1"\n' for n in range(ENDPOINTS)
    ]
    for n in range(MODELS):
        parts.append(f'[[catalog]]\nid = "author-{n % 40}/model-{n}"\nname = "Model {n}"\n')
        parts += [
            f'[[catalog.endpoints]]\nprovider = "p{k}"\nmodel = "m{n}"\n'
            f'price = {{ prompt = "{n % 90 / 20 + k}", completion = "{n % 200 / 10}" }}\n'
            for k in range(ENDPOINTS)
        ]
    return "".join(parts)


_TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "d",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
}
_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_MESSAGES: Sequence[Any] = (
    {"role": "system", "content": "a"},
    {"role": "user", "content": "hi", "name": "bob"},
    {
        "role": "assistant",
        "content": "b",
        "reasoning_content": "r",
        "reasoning_details": [{"type": "reasoning.text", "text": "t"}],
        "tool_calls": [_CALL],
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
    "reasoning": {"effort": "low"},
    "stream": True,
    "stream_options": {"include_usage": True},
    "unknown": "x",
}
_BODY_FAMILIES = (*TEXTS, *NUMBERS, *VALUES)
_SCHEMA_FAMILIES = (*SCHEMAS, *SCHEMAS, *SCHEMAS, *TEXTS, *NUMBERS, *VALUES)
_DOCUMENTS = ("keys", "list", "different", "deep", "chain", "letters", "words", "digits", "lines")
_HEADERS = (
    *("accept", "accept-encoding", "accept-language", "authorization", "cookie", "content-type"),
    *("content-length", "transfer-encoding", "connection", "expect", "host", "origin", "referer"),
    *("if-none-match", "if-modified-since", "forwarded", "x-forwarded-for", "x-forwarded-proto"),
    *("traceparent", "tracestate", "x-session-id", "x-tag", "x-title", "http-referer", "x-api-key"),
    *("x-unknown-params", "user-agent", "range", "x-form-token", "hx-current-url", "upgrade"),
)
_ANSWER = {
    "id": "r1",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "hi",
                "reasoning_content": "r",
                "reasoning_details": [{"type": "reasoning.text", "text": "t"}],
                "tool_calls": [_CALL],
            },
            "logprobs": {"content": [{"token": "x", "logprob": -1.5, "top_logprobs": []}]},
            "finish_reason": "stop",
        }
    ],
    "usage": {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "cost": 0.1,
        "prompt_tokens_details": {"cached_tokens": 1},
    },
}
_CHUNK = {
    "id": "r1",
    "choices": [
        {
            "index": 0,
            "delta": {
                "content": "hi",
                "reasoning_content": "r",
                "tool_calls": [{"index": 0, **_CALL}],
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
_LISTED = {
    "data": [
        {
            "id": "m1",
            "name": "M",
            "description": "d",
            "context_length": 1000,
            "max_output_tokens": 10,
            "created": 1,
            "pricing": {
                "prompt": "0.1",
                "completion": "0.2",
                "request": "0.1",
                "input_cache_read": "0.1",
                "internal_reasoning": "0.1",
            },
            "supported_parameters": ["tools"],
            "architecture": {"input_modalities": ["text"]},
            "top_provider": {"max_completion_tokens": 10},
        }
    ]
}


@dataclass
class Costs:
    """Measurements of one input; times are of a processor, in seconds."""

    watch: Watch
    status: int
    work: float
    taken: float
    place: str = ""

    @property
    def excess(self) -> str:
        """Return what is more than may be; empty where nothing is."""
        found = []
        if self.watch.too_long:
            found.append(f"{self.watch.longest * 1000:.0f} ms in one piece of the loop")
        if self.work > WORK_SECONDS and self.work > WORK_SECONDS * slowness():
            found.append(f"{self.work:.1f} s of all threads")
        if self.taken > TAKEN_MB:
            found.append(f"{self.taken:.0f} MB taken")
        if self.status == 500:
            found.append("status 500")
        return ", ".join(found)


async def costs(entry: Entry, case: Case, *, sampled: bool = False) -> Costs:
    """Send a case and return what it cost; ``sampled`` finds where in the source."""
    made = entry.input(case)
    watch, places = Watch(), Counter[str]()
    before, work = _reset_peak(), time.process_time()
    with watch.looking(), _sampling(places if sampled else None):
        status = await entry.send(made)
    spent = time.process_time() - work
    place = ", ".join(f"{name} ({count})" for name, count in places.most_common(3))
    return Costs(watch, status, spent, _peak() - before, place)


def resident() -> float:
    """Return the memory of this process in MB, after what is of no use has been given up."""
    gc.collect()
    return _status("VmRSS")


def _reset_peak() -> float:
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> float:
    return _status("VmHWM")


def _status(name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


@contextmanager
def _sampling(places: Counter[str] | None) -> Iterator[None]:
    """Count the places of the source in which threads are while the processor is used."""
    if places is None:
        yield
        return

    def note(_: int, frame: FrameType | None) -> None:
        for thread, seen in sys._current_frames().items():
            at = _own(frame if thread == threading.get_ident() else seen)
            if at:
                places[at] += 1

    before = signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, _SAMPLE_SECONDS, _SAMPLE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _own(frame: FrameType | None) -> str:
    """Return the innermost place of the service's own source in a stack."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_HERE):
            name = file.removeprefix(f"{_HERE}/causerie/")
            return f"{name}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


class _Provider(socketserver.ThreadingTCPServer):
    """Answers a request for a list of models, and any other, in a thread.

    ``events`` is how often a stream repeats its chunk.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.documents: dict[str, Any] = {}  # by the end of their path
        self.status = 200
        self.body: Sequence[bytes] = (msgspec.json.encode(_ANSWER),)
        self.kind = "application/json"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Asked(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        provider = self.server
        assert isinstance(provider, _Provider)
        path = self.rfile.readline().split()[1].decode()
        length = 0
        while (line := self.rfile.readline().strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        self.rfile.read(length)
        kind, status, pieces = provider.kind, provider.status, provider.body
        named = next((each for each in provider.documents if path.endswith(each)), None)
        if named is not None:
            kind, status = "application/json", 200
            pieces = (msgspec.json.encode(provider.documents[named]),)
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n"
        try:
            self.wfile.write(head.encode())
            for piece in pieces:
                self.wfile.write(piece)
        except OSError:
            return  # the service has seen enough


@dataclass(frozen=True)
class Sender:
    """Sends from threads of their own, so that the loop is the service's alone."""

    home: ServiceView
    headers: Mapping[str, str]

    async def send(
        self, method: str, target: str, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()
    ) -> int:
        """Return the status of an answer that is read to its end; 0 without one."""
        named = {name for name, _ in headers}
        sent = [*((n, v) for n, v in self._usual(body).items() if n not in named), *headers]
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent)]
        head = "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n"
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.home.threads, self._exchange, head + body)

    def _usual(self, body: bytes) -> dict[str, str]:
        host = self.home.root.removeprefix("http://")
        length = {"content-length": str(len(body))} if body else {}
        return {"host": host, "connection": "close", **length, **self.headers}

    def _exchange(self, sent: bytes) -> int:
        host, port = self.home.root.removeprefix("http://").split(":")
        status = b""
        try:
            with socket.create_connection((host, int(port)), timeout=_SECONDS) as connection:
                connection.sendall(sent)
                while piece := connection.recv(1 << 16):
                    status = (status + piece[:16])[:16]
        except (ConnectionError, BrokenPipeError):
            pass  # refused before all of it was read
        return int(status[9:12] or 0)


@dataclass(frozen=True)
class _World:
    """The running service and what belongs to it."""

    home: ServiceView
    provider: _Provider
    shared: str
    project: str
    key: str
    user: str
    cookie: str
    form_token: str

    def sender(self, **headers: str) -> Sender:
        return Sender(self.home, {name.replace("_", "-"): value for name, value in headers.items()})


@asynccontextmanager
async def entries(folder: Path) -> AsyncIterator[dict[str, Entry]]:
    """Yield the entries of a service that runs meanwhile, by name."""
    async with AsyncExitStack() as held:
        world = await held.enter_async_context(_world(folder))
        found = [
            *_completions(world),
            *await _pages(world),
            *await _management(world),
            *_catalog(world),
            *_heads(world),
            *_replies(world),
            *_sign_in(world),
            *_replicas(world),
            await held.enter_async_context(_pool()),
        ]
        yield {entry.name: entry for entry in found}


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[_World]:
    with contextlib.ExitStack() as held:
        provider = held.enter_context(_Provider())
        thread = threading.Thread(target=provider.serve_forever, args=(0.05,))
        thread.start()
        held.callback(thread.join)
        held.callback(provider.shutdown)
        shared = ValkeyServer()
        shared.start()
        held.callback(shared.kill)
        text = _CONFIG.format(
            folder=folder, url=provider.url, operator=digest_line(OPERATOR), shared=shared.url
        )
        async with service_view(folder, text + large_catalog(provider.url)) as home:
            async with office(folder / "data") as desk:
                user = await desk.accounts.users.create(
                    SYSTEM, email="ada@example.org", name="Ada", password=None, operator=True
                )
                key = await desk.key()
                async with desk.store.writing() as repositories:
                    begun = await desk.accounts.sign_in.begin(
                        repositories, user, SessionClient("127.0.0.1", "test")
                    )
            cookie = f"causerie={begun.token}"
            async with home.session.get(
                f"{home.root}/console/profile", headers={"cookie": cookie}
            ) as page:
                found = re.search(r'name="form-token" content="([0-9a-f]+)"', await page.text())
            assert found
            yield _World(
                home, provider, shared.url, desk.project, key.key.id, user.id, cookie, found[1]
            )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _completions(world: _World) -> Iterator[Entry]:
    """Requests with everything, to a provider; of an engine's model, schemas and their documents."""
    world.provider.kind, world.provider.body = "text/event-stream", (_event(_CHUNK), _END)
    for door in ("gateway", "router"):
        path = PATHS.get(door, "/router/v1/chat/completions")
        usual = msgspec.to_builtins(_EVERYTHING)
        if door == "router":
            usual |= {"model": "author-1/model-1", "models": ["author-2/model-2"]}
        yield Entry(
            f"completions.{door}", usual, _posting(world, path),
            every_place(usual, _BODY_FAMILIES), most=2_000_000,
        )  # fmt: skip
    usual = {name: _EVERYTHING[name] for name in ("messages", "tools", "stop", "logit_bias")}
    usual |= {"model": "near", "max_tokens": 5, "chat_template_kwargs": {"x": 1}}
    near = _posting(world, PATHS["endpoint"])
    usual["messages"] = [each for each in _MESSAGES if not isinstance(each["content"], list)]
    yield Entry("completions.near", usual, near, every_place(usual, _BODY_FAMILIES))
    yield Entry(
        "model",
        {"id": "far"},
        lambda made: near({"model": made["id"], "messages": HI}),
        {"id": tuple(TEXTS)},
        most=1_000,
    )
    yield from _schemas(world)


def _schemas(world: _World) -> Iterator[Entry]:
    """The engine repeats what the user said, as far as the grammar lets it: it is the document."""
    post = _posting(world, PATHS["endpoint"])

    def asked(made: Any) -> dict[str, Any]:
        said = made["document"]
        return {
            "model": "near",
            "messages": [{"role": "user", "content": _text(said)}],
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

    usual = {"schema": {"type": "string"}, "document": "hi"}
    places = {"schema": _SCHEMA_FAMILIES, "document": _DOCUMENTS}
    yield Entry("schema.format", usual, response_format, places, most=80_000)
    yield Entry("schema.tool", usual, tool, places, most=80_000)
    for kind, families in (
        ("regex", tuple(TEXTS)),
        ("grammar", tuple(TEXTS)),
        ("choice", ("different", "list", "letters", "words", "foreign")),
    ):
        usual_of = {"structured": {kind: "a"}, "document": "hi"}
        yield Entry(
            f"structured.{kind}", usual_of, structured,
            {f"structured.{kind}": families, "document": _DOCUMENTS}, most=200_000,
        )  # fmt: skip


def _posting(world: _World, path: str, **headers: str) -> Callable[[Any], Awaitable[int]]:
    sender = world.sender(content_type="application/json", **headers)
    return lambda made: sender.send("POST", path, msgspec.json.encode(made))


def _getting(
    world: _World, method: str, path: str, **headers: str
) -> Callable[[Any], Awaitable[int]]:
    """Send fields of the path and the query; of a form, those of the body."""
    sender = world.sender(**headers)

    async def send(made: Any) -> int:
        steps = {name: quote(_text(value), safe="") for name, value in made["path"].items()}
        target = path.format(**steps)
        fields = [(name, _text(value)) for name, value in made["fields"].items() if value != ""]
        if method == "GET":
            query = urlencode(fields, errors="replace")
            raw = quote(_text(made["query"]), safe="%&=+;,", errors="replace")
            return await sender.send("GET", f"{target}?{query}&{raw}")
        body = urlencode([*fields, ("form_token", world.form_token)], errors="replace").encode()
        origin = [("origin", world.home.root), ("content-type", _FORM)]
        return await sender.send("POST", target, body, origin)

    return send


_FORM = "application/x-www-form-urlencoded"


async def _pages(world: _World) -> Sequence[Entry]:
    """Pages and forms of the console: fields are those in the page and those that are asked for."""
    known = {
        "project": world.project, "key": world.key, "user": world.user,
        "author": "author-1", "slug": "model-1", "provider": "p1",
    }  # fmt: skip
    found = []
    sender = world.sender(cookie=world.cookie)
    pages: dict[str, set[str]] = {}
    for page in routes(MagicMock(), open_to_all=True):
        steps = {name: known.get(name, "x") for name in re.findall(r"{(\w+)}", page.path)}
        path = f"/console{page.path}"
        asked: set[str] = set()
        with _noting(asked):
            text = await _page(world, path.format(**steps)) if page.method == "GET" else ""
            asked |= set(re.findall(r'name="([a-z_][\w-]*)"', text)) - {"viewport", "form-token"}
            if page.method == "POST" and not page.raw:
                await sender.send("POST", path.format(**steps), b"")
        pages.setdefault(page.path, set()).update(asked)
        if page.raw or _ENDING.search(page.path):
            continue
        near = pages[page.path] or pages.get(page.path.rpartition("/")[0], set())
        fields = dict.fromkeys(sorted(near - {"form_token"}), "")
        usual = {"path": steps, "fields": fields, "query": ""}
        places = every_place(usual, tuple(TEXTS))
        places = {name: places[name] for name in places if name not in ("path", "fields")}
        if page.method == "POST":
            del places["query"]
        found.append(
            Entry(
                f"{page.method}{page.path}".replace(" ", ""),
                usual,
                _getting(world, page.method, path, cookie=world.cookie),
                places,
                most=_HEAD_MOST if page.method == "GET" else _FORM_MOST,
            )
        )
    return found


_ENDING = re.compile(
    r"/(sign-out|end|end-others|disable|archive|no-operator|delete|remove|password|reset|confirm"
    r"|factor|withdraw|rotate|transfer|unlink|back|begin)$"
)  # of pages that would end the visitor's session, or what the others need


@contextmanager
def _noting(names: set[str]) -> Iterator[None]:
    """Note the names of fields that pages ask for."""
    with pytest.MonkeyPatch.context() as patch:
        for method in ("raw", "every", "__contains__"):
            patch.setattr(FormFields, method, _noted(getattr(FormFields, method), names))
        yield


def _noted(method: Callable[[FormFields, str], Any], names: set[str]) -> Any:
    def noted(fields: FormFields, name: str) -> Any:
        names.add(name)
        return method(fields, name)

    return noted


async def _page(world: _World, path: str) -> str:
    headers = {"cookie": world.cookie}
    async with world.home.session.get(
        f"{world.home.root}{path}", headers=headers, allow_redirects=False
    ) as page:
        return await page.text(errors="replace")


async def _management(world: _World) -> Sequence[Entry]:
    """Operations of the management API, by its own document."""
    described = json.loads(await _page(world, "/api/openapi.json"))
    schemas = described["components"]["schemas"]
    known = {"project": world.project, "key": world.key, "user": world.user, "provider": "p1"}
    found = []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if method not in ("get", "post", "put", "patch") or _ENDING.search(path):
                continue
            said = operation.get("parameters", ())
            query = {each["name"]: "" for each in said if each["in"] == "query"}
            steps = {
                each["name"]: known.get(each["name"], "x") for each in said if each["in"] == "path"
            }
            usual: dict[str, Any] = {"path": steps, "query": query}
            if "requestBody" in operation:
                [media] = operation["requestBody"]["content"].values()
                usual["body"] = _sample(media["schema"], schemas)
                _make_good(usual["body"], world)
            places = every_place(usual, tuple(TEXTS))
            places |= every_place(usual.get("body", {}), _BODY_FAMILIES, "body")
            for name in ("path", "query", "body"):
                places.pop(name, None)
            if places:
                name = f"{method.upper()}/api{path.removeprefix('/api')}"
                found.append(
                    Entry(
                        name, usual, _managing(world, method.upper(), path), places, _MANAGED_MOST
                    )
                )
    return found


def _make_good(body: Any, world: _World) -> None:
    """Fill in what a description cannot know."""
    if "settings" in body:
        body["settings"] = {"name": "new", "base_url": f"{world.provider.url}/v1"}
    if "request" in body:
        body["request"] = {"model": "far", "messages": HI}
    for name in ("entry", "filed", "owner", "expires_at", "version"):
        body.pop(name, None)


def _sample(schema: Any, schemas: Mapping[str, Any]) -> Any:
    """Return a small value that a schema of the document admits."""
    if "$ref" in schema:
        return _sample(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for options in ("anyOf", "oneOf"):
        if options in schema:
            some = [one for one in schema[options] if one.get("type") != "null"]
            return _sample(some[0], schemas)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: _sample(each, schemas) for name, each in schema.get("properties", {}).items()}
    if kind == "array":
        return [_sample(schema["items"], schemas)]
    if kind in ("integer", "number"):
        return max(schema.get("minimum", 1), 1)
    if kind == "boolean":
        return False
    return {"decimal": "1", "date-time": "2030-01-01T00:00:00Z"}.get(schema.get("format", ""), "x")


def _managing(world: _World, method: str, path: str) -> Callable[[Any], Awaitable[int]]:
    sender = world.sender(authorization=f"Bearer {OPERATOR}", content_type="application/json")
    prefix = path if path.startswith("/api") else f"/api{path}"

    async def send(made: Any) -> int:
        target = prefix.format(**{n: quote(_text(v), safe="") for n, v in made["path"].items()})
        fields = {name: _text(value) for name, value in made["query"].items() if value != ""}
        body = msgspec.json.encode(made["body"]) if "body" in made else b""
        return await sender.send(method, f"{target}?{urlencode(fields, errors='replace')}", body)

    return send


_FILTERS = (
    *("supported_parameters", "output_modalities", "model_authors", "providers", "q", "context"),
    *("min_price", "max_price", "sort", "offset", "limit"),
)
_CATALOG = ("q", "cost", "max", "context", "author", "parameter", "takes", "gives", "ending",
            "sort", "page", "rows")  # fmt: skip


def _catalog(world: _World) -> Iterator[Entry]:
    """The catalog of routers, and pages that everybody may see."""
    texts = tuple(TEXTS)
    for path, fields, steps in (
        ("/router/v1/models", _FILTERS, {}),
        ("/router/v1/models/{author}/{slug}", (), {"author": "author-1", "slug": "model-1"}),
        ("/router/v1/generation", ("id",), {}),
        ("/gateway/v1/models/{model}", (), {"model": "far"}),
        ("/console/catalog", _CATALOG, {}),
        ("/console/projects/{project}/models", _CATALOG, {"project": world.project}),
        ("/console/rankings.json", ("period", "by"), {}),
        ("/console/catalog/{author}/{slug}", ("in", "out", "cached", "thinking", "requests"),
         {"author": "author-1", "slug": "model-1"}),
        ("/{unknown}", (), {"unknown": "x"}),
    ):  # fmt: skip
        usual = {"path": dict(steps), "fields": dict.fromkeys(fields, ""), "query": ""}
        places = every_place(usual, texts)
        places = {name: places[name] for name in places if name not in ("path", "fields")}
        send = _getting(world, "GET", path, cookie=world.cookie)
        yield Entry(f"query{path}", usual, send, places, most=_HEAD_MOST)


def _heads(world: _World) -> Iterator[Entry]:
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
    return _text(value).replace("\r", " ").replace("\n", " ")


def _event(chunk: Any) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _replies(world: _World) -> Iterator[Entry]:
    """Replies of a provider: plain, streamed, a failure, its list of models."""
    provider, ask = world.provider, _posting(world, PATHS["gateway"])
    asked = {"model": "far", "messages": HI, "tools": [_TOOL], "logprobs": True}

    async def plain(made: Any) -> int:
        provider.kind, provider.status = "application/json", 200
        provider.body = (msgspec.json.encode(made),)
        return await ask(asked)

    async def failed(made: Any) -> int:
        provider.kind, provider.status = "application/json", 400
        provider.body = (msgspec.json.encode(made),)
        try:
            return await ask(asked)
        finally:
            provider.status = 200

    yield Entry("reply.plain", _ANSWER, plain, every_place(_ANSWER, _BODY_FAMILIES), most=8_000_000)
    yield Entry("reply.failure", _FAILURE, failed, every_place(_FAILURE, _BODY_FAMILIES))
    for streamed in (True, False):

        async def stream(made: Any, streamed: bool = streamed) -> int:
            provider.kind, provider.status = "text/event-stream", 200
            provider.body = tuple(_pieces(made))
            return await ask({**asked, "stream": streamed})

        usual = {"chunk": _CHUNK, "events": [1], "line": "", "cut": []}
        places = every_place(usual, _BODY_FAMILIES)
        places |= {"events": ("list",), "line": tuple(TEXTS), "cut": ("list",)}
        del places["events.0"]
        name = "streamed" if streamed else "gathered"
        yield Entry(f"reply.{name}", usual, stream, places, most=16_000_000)

    async def listed(made: Any) -> int:
        provider.documents["/models"] = made
        try:
            return await test({"path": {}, "query": {}, "body": {"settings": settings}})
        finally:
            del provider.documents["/models"]

    settings = {"name": "new", "base_url": f"{provider.url}/v1"}
    test = _managing(world, "POST", "/api/providers/test")
    yield Entry(
        "list.models", _LISTED, listed, every_place(_LISTED, _BODY_FAMILIES), most=2_000_000
    )

    async def offered(made: Any) -> int:
        provider.documents["/models"] = made
        try:
            return await offers({"path": {"provider": "p1"}, "query": {}})
        finally:
            del provider.documents["/models"]

    offers = _managing(world, "GET", "/api/providers/{provider}/offers")
    yield Entry(
        "list.offers", _LISTED, offered, every_place(_LISTED, _BODY_FAMILIES), most=2_000_000
    )


def _pieces(made: Any) -> Iterator[bytes]:
    """Yield a stream: an event many times, and a line; each in so many pieces as ``cut`` says."""
    event = _event(made["chunk"])
    whole = event * len(made["events"])
    if line := _text(made["line"]):
        whole += line.encode("utf-8", "replace")
    whole += b"\n\n" + _END
    size = max(len(whole) // (len(made["cut"]) + 1), 1)
    for at in range(0, len(whole), size):
        yield whole[at : at + size]


def _sign_in(world: _World) -> Iterator[Entry]:
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
        head, claims = (_part(made["token"][name]) for name in ("head", "claims"))
        signed = f"{head}.{claims}.{_text(made['token']['signature'])}"
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

    places = every_place(usual, _BODY_FAMILIES)
    yield Entry("sign-in", usual, send, places, most=500_000)


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).rstrip(b"=").decode()


def _replicas(world: _World) -> Iterator[Entry]:
    """Messages of another replica, and values in the server that replicas share."""
    measured = [3, [[0.1, 1.0]], [[5, 0.5, 1.0]], 0]
    usual = {
        "targets": {
            "a/m": {
                "measured": measured,
                "calls": {"good": 1},
                "condition": {"kind": "full", "seconds": 0.0, "reason": "x"},
            }
        },
        "raw": "",
    }

    async def tell(made: Any) -> int:
        raw = _text(made.pop("raw"))
        message = raw.encode("utf-8", "replace") if raw else _packed(made)
        async with Valkey.from_url(world.shared.replace("valkey", "redis")) as client:
            [channel, *_] = await client.pubsub_channels()
            await client.publish(channel, b"12345678" + message)
        return await _posting(world, PATHS["gateway"])({"model": "far", "messages": HI})

    families = (*VALUES, *(name for name in TEXTS))
    yield Entry("replicas.message", usual, tell, every_place(usual, families), most=4_000_000)

    async def stored(made: Any) -> int:
        """Put a text in the place of every value that the service keeps there."""
        chat = _posting(world, "/hosted/v1/chat/completions")
        await chat({"model": "far", "messages": HI})
        async with Valkey.from_url(world.shared.replace("valkey", "redis")) as client:
            for key in await client.keys("*"):
                await client.set(key, _text(made["value"]).encode("utf-8", "replace"))
            status = await chat({"model": "far", "messages": HI})
            await client.flushdb()
        return status

    yield Entry("replicas.value", {"value": "x"}, stored, {"value": tuple(TEXTS)})


def _packed(value: Any) -> bytes:
    """Return msgpack, with numbers that JSON writes out as far as msgpack has them."""
    return msgspec.msgpack.encode(msgspec.json.decode(msgspec.json.encode(value)))


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
            payload = _packed(made)
            changed.clear()
            await publisher.send(payload)
            async with asyncio.timeout(_SECONDS):
                await changed.wait()
            return 200

        async with asyncio.timeout(_SECONDS):
            await changed.wait()
        try:
            places = every_place(usual, (*VALUES, *TEXTS, "whole"))
            yield Entry("pool.events", usual, send, places, most=16_000_000)
        finally:
            await follower.stop()
