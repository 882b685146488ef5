"""A service with every kind of door, accounts and a large catalog, for hostile inputs.

Its provider answers what a case says. Clients send from threads of their own, so that the loop is
the service's alone.
"""

import asyncio
import contextlib
import logging
import os
import re
import socket
import socketserver
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import structlog
from hostedkit import office
from loopkit import OPEN_DOORS
from servicekit import ServiceView, service_view
from valkeyserver import ValkeyServer

from causerie.access.keys import KeyDigest
from causerie.cli.keys import digest_line
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import SYSTEM, Membership, Role
from causerie.hosted.accounts.tokens import SessionClient
from causerie.observe.logging import configure

OPERATOR = "ck_ops_" + "0123456789abcdef" * 3
SCIM_KEY = "ck_scim_0123456789"
NO_ANSWER = -1
_MODELS = 1000
CLIENT_SECONDS = 120.0  # a client waits

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
[[providers]]
name = "c"
base_url = "{url}/v1"
dialect = "anthropic"
[[providers]]
name = "o"
base_url = "{url}/v1"
dialect = "openai"
[[aliases]]
id = "claude"
targets = [{{ provider = "c", model = "m" }}]
[[aliases]]
id = "gpt"
targets = [{{ provider = "o", model = "m" }}]
[[providers]]
name = "v"
base_url = "{url}/v1"
models = [
  {{ id = "embed", operations = ["embeddings"] }},
  {{ id = "order", operations = ["rerank"] }},
  {{ id = "code", operations = ["completions"] }},
]
[[aliases]]
id = "embed"
targets = [{{ provider = "v", model = "embed" }}]
[[aliases]]
id = "order"
targets = [{{ provider = "v", model = "order" }}]
[[aliases]]
id = "code"
targets = [{{ provider = "v", model = "code" }}]
[[identity_providers]]
name = "entra"
issuer = "https://entra.example.org"
client_id = "causerie"
join_accounts = "unclaimed"
scim_keys = ["{directory}"]
[[models]]
id = "near"
engine = "fake"
options = {{ context_length = 1000000 }}
"""
)


USUAL_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USUAL_ANSWER = {
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
                "tool_calls": [USUAL_CALL],
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
USUAL_BODY = (msgspec.json.encode(USUAL_ANSWER),)
USUAL_LIST = {
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


def _model(n: int) -> str:
    """Return an id; most are as long as those of real models."""
    return f"author-{n % 40}/model-{n}" + ("-instruct-2026-11-28-fp8" if n > 99 else "")


def large_catalog(base_url: str, endpoints: int = 1) -> str:
    """Return tables of a thousand models, each with so many endpoints."""
    parts = [
        f'[[providers]]\nname = "p{n}"\nbase_url = "{base_url}/{n}/v1"\n' for n in range(endpoints)
    ]
    for n in range(_MODELS):
        parts.append(f'[[catalog]]\nid = "{_model(n)}"\nname = "Model {n}"\n')
        parts += [
            f'[[catalog.endpoints]]\nprovider = "p{k}"\nmodel = "m{n}"\n'
            f'price = {{ prompt = "{n % 90 / 20 + k}", completion = "{n % 200 / 10}" }}\n'
            for k in range(endpoints)
        ]
    return "".join(parts)


class ScriptedProvider(socketserver.ThreadingTCPServer):
    """Answers a request for a list of models, and any other, in a thread.

    ``events`` is how often a stream repeats its chunk.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.documents: dict[str, Any] = {"/models": USUAL_LIST}  # by the end of their path
        self.usual: dict[str, Any] = {}
        """Answers to what is asked at a path with this end, where no case says what they are."""
        self.status = 200
        self.kind = "application/json"
        self.body: Sequence[bytes] = USUAL_BODY

    @contextmanager
    def answering(self, kind: str, body: Sequence[bytes], status: int = 200) -> Iterator[None]:
        """Answer with these pieces within the block."""
        before = self.kind, self.body, self.status
        self.kind, self.body, self.status = kind, body, status
        try:
            yield
        finally:
            self.kind, self.body, self.status = before

    @contextmanager
    def listing(self, models: Any) -> Iterator[None]:
        """Have this for the list of models within the block."""
        self.documents["/models"] = models
        try:
            yield
        finally:
            self.documents["/models"] = USUAL_LIST

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Asked(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        provider = self.server
        assert isinstance(provider, ScriptedProvider)
        try:
            path = self.rfile.readline().split()[1].decode()
        except (OSError, IndexError):
            return  # the service has closed an idle connection
        length = 0
        while (line := self.rfile.readline().strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        self.rfile.read(length)
        kind, status, pieces = provider.kind, provider.status, provider.body
        documents = provider.documents
        if provider.body is USUAL_BODY:
            documents = provider.usual | documents
        named = next((each for each in documents if path.endswith(each)), None)
        if named is not None:
            kind, status = "application/json", 200
            pieces = (msgspec.json.encode(documents[named]),)
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
            with socket.create_connection((host, int(port)), timeout=CLIENT_SECONDS) as connection:
                connection.sendall(sent)
                while piece := connection.recv(1 << 16):
                    status = (status + piece[:16])[:16]
        except ConnectionError:
            pass  # refused before all of it was read
        except TimeoutError:
            return NO_ANSWER
        return int(status[9:12] or 0)


@dataclass(frozen=True)
class Site:
    """The running service and what belongs to it."""

    home: ServiceView
    provider: ScriptedProvider
    shared: str
    project: str
    managed: str
    """Another project; what is changed there changes nothing for those who ask."""
    key: str
    user: str
    cookie: str
    form_token: str
    manager: str
    bearer: str

    def sender(self, **headers: str) -> Sender:
        return Sender(self.home, {name.replace("_", "-"): value for name, value in headers.items()})


@contextmanager
def _logging() -> Iterator[None]:
    """Write log lines as a service does, to nowhere."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    with Path(os.devnull).open("w") as nowhere:
        configure("info", "json", nowhere)
        try:
            yield
        finally:
            structlog.configure(**before)
            root.handlers = handlers
            root.setLevel(level)


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    with contextlib.ExitStack() as held:
        held.enter_context(_logging())
        provider = held.enter_context(ScriptedProvider())
        thread = threading.Thread(target=provider.serve_forever, args=(0.05,))
        thread.start()
        held.callback(thread.join)
        held.callback(provider.shutdown)
        shared = ValkeyServer()
        shared.start()
        held.callback(shared.kill)
        text = _CONFIG.format(
            folder=folder, url=provider.url, operator=digest_line(OPERATOR), shared=shared.url,
            directory=f"ck_entra:{KeyDigest.of('entra', SCIM_KEY).digest.hex()}",
        )  # fmt: skip
        async with service_view(folder, text + large_catalog(provider.url)) as home:
            async with office(folder / "data") as desk:
                user = await desk.accounts.users.create(
                    SYSTEM, email="ada@example.org", name="Ada", password=None, operator=True
                )
                managed = await desk.accounts.projects.create(SYSTEM, "Managed")
                key, changed = await desk.key(), await desk.key()
                manager = await desk.key(purpose=Purpose.MANAGEMENT)
                async with desk.store.writing() as repositories:
                    for project in (desk.project, managed.id):
                        await repositories.projects.join(
                            Membership(project, user.id, Role.OWNER, datetime.now(UTC))
                        )
                    begun = await desk.accounts.sign_in.begin(
                        repositories, user, SessionClient("127.0.0.1", "test")
                    )
            cookie = f"causerie={begun.token}"
            async with home.session.get(
                f"{home.root}/console/profile", headers={"cookie": cookie}
            ) as page:
                found = re.search(r'name="form-token" content="([0-9a-f]+)"', await page.text())
            assert found
            bearers = manager.credential, key.credential
            yield Site(
                home, provider, shared.url, desk.project, managed.id, changed.key.id, user.id,
                cookie, found[1], *bearers,
            )  # fmt: skip


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def getting(world: Site, method: str, path: str, **headers: str) -> Callable[[Any], Awaitable[int]]:
    """Send fields of the path and the query; of a form, those of the body."""
    sender = world.sender(**headers)

    async def send(made: Any) -> int:
        steps = {name: quote(text_of(value), safe="") for name, value in made["path"].items()}
        target = path.format(**steps)
        fields = [(name, text_of(value)) for name, value in made["fields"].items() if value != ""]
        if method == "GET":
            query = urlencode(fields, errors="replace")
            raw = quote(text_of(made["query"]), safe="%&=+;,", errors="replace")
            return await sender.send("GET", f"{target}?{query}&{raw}")
        body = urlencode([*fields, ("form_token", world.form_token)], errors="replace").encode()
        origin = [("origin", world.home.root), ("content-type", _FORM)]
        return await sender.send("POST", target, body, origin)

    return send


_FORM = "application/x-www-form-urlencoded"


def posting(world: Site, path: str, **headers: str) -> Callable[[Any], Awaitable[int]]:
    sender = world.sender(content_type="application/json", **headers)
    return lambda made: sender.send("POST", path, msgspec.json.encode(made))
