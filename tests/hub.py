"""A hub and a package index on the loopback, and small model files to serve.

Speaks the HTTP that huggingface_hub and the simple repository interface use,
and misbehaves on demand: breaks off, goes silent, ignores ranges, lies.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import struct
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_right"


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def item(key: str, value: object) -> bytes:
    """One metadata pair of a GGUF file, its type taken from the value's."""
    head = text(key)
    if isinstance(value, bool):
        return head + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return head + (struct.pack("<II", 4, value) if value >= 0 else struct.pack("<Ii", 5, value))
    if isinstance(value, float):
        return head + struct.pack("<If", 6, value)
    if isinstance(value, (str, bytes)):
        return head + struct.pack("<I", 8) + text(value)
    assert isinstance(value, (list, tuple))
    if value and isinstance(value[0], int):
        return head + struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return head + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(v) for v in value)


def gguf(extra: Mapping[str, object] | None = None, *, version: int = 3, padding: int = 0) -> bytes:
    """A GGUF file without tensors; ``padding`` bytes make it as long as a test needs."""
    facts: dict[str, object] = {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "general.file_type": 3,
        "llama.context_length": 2048,
        "llama.block_count": 4,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 8,
        "llama.attention.head_count_kv": 2,
        **(extra or {}),
    }
    head = b"GGUF" + struct.pack("<IQQ", version, 0, len(facts))
    filling = bytes(i * 7 % 251 for i in range(min(padding, 251))) * (padding // 251 + 1)
    return head + b"".join(item(key, value) for key, value in facts.items()) + filling[:padding]


def wheel(members: Mapping[str, bytes]) -> bytes:
    """A wheel's bytes."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in members.items():
            package.writestr(name, content)
    return whole.getvalue()


@dataclass
class Behaviour:
    """Behaviour of the server at the next downloads.

    ``cuts`` are byte counts after which bodies break off, one a download of ``cut_files``;
    ``held`` is a count after which a body stays open until the client leaves;
    where it is ``silent`` no question is answered; ``surplus`` bytes follow what was announced.
    """

    cuts: list[int] = field(default_factory=list)
    cut_files: str = ""  # how the names of files end that are cut
    held: int | None = None
    silent: bool = False
    surplus: int = 0
    statuses: list[int] = field(default_factory=list)
    ranges: bool = True
    gated: bool = False
    heads: bool = True


@dataclass(repr=False)  # asyncio writes what a task returns, again and again
class Hub:
    """The running server: what it holds, and what it was asked."""

    url: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    announced: dict[str, str] = field(default_factory=dict)  # file to a false checksum
    plain: set[str] = field(default_factory=set)  # files whose checksum is not announced
    packages: dict[str, dict[str, bytes]] = field(default_factory=dict)
    yanked: set[str] = field(default_factory=set)
    credential: str = ""
    behaviour: Behaviour = field(default_factory=Behaviour)
    asked: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    sending: asyncio.Event = field(default_factory=asyncio.Event)

    def downloads(self) -> int:
        """Return the number of requests for bodies of files."""
        return sum(line.startswith(("GET /files", "GET /cdn")) for line in self.asked)

    async def model(self, request: web.Request) -> web.StreamResponse:
        if self.behaviour.silent:
            self.sending.set()
            await asyncio.Event().wait()
        name = f"{request.match_info['org']}/{request.match_info['repo']}"
        files = self.repositories.get(name)
        if files is None:
            return web.json_response(
                {"error": "Repository not found"},
                status=401,
                headers={"X-Error-Code": "RepoNotFound"},
            )
        siblings = [
            {
                "rfilename": file,
                "size": len(content),
                "blobId": "b" * 40,
                "lfs": None
                if file in self.plain
                else {
                    "size": len(content),
                    "sha256": self.announced.get(file, hashlib.sha256(content).hexdigest()),
                    "pointerSize": 130,
                },
            }
            for file, content in files.items()
        ]
        return web.json_response({"id": name, "sha": COMMIT, "siblings": siblings})

    async def resolve(self, request: web.Request) -> web.StreamResponse:
        info = request.match_info
        content = self.repositories.get(f"{info['org']}/{info['repo']}", {}).get(info["file"])
        if content is None:
            return web.Response(status=404, headers={"X-Error-Code": "EntryNotFound"})
        if self.behaviour.gated and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            asked = "Authorization" in request.headers
            return web.Response(status=403 if asked else 401, headers={"X-Error-Code": "GatedRepo"})
        digest = hashlib.sha256(content).hexdigest()
        headers = {
            "X-Repo-Commit": COMMIT,
            "X-Linked-Size": str(len(content)),
            "X-Linked-ETag": f'"{digest}"',
            "ETag": f'"{digest}"',
            "Location": f"{self.url}/cdn/{info['org']}/{info['repo']}/{info['file']}",
        }
        return web.Response(status=302, headers=headers)

    async def cdn(self, request: web.Request) -> web.StreamResponse:
        info = request.match_info
        return await self.send(
            request, self.repositories[f"{info['org']}/{info['repo']}"][info["file"]]
        )

    async def page(self, request: web.Request) -> web.StreamResponse:
        if self.credential and request.headers.get("Authorization") != self.credential:
            return web.Response(status=401)
        files = self.packages.get(request.match_info["name"])
        if files is None:
            return web.Response(status=404)
        links = "".join(
            f'<a href="../../files/{name}#sha256='
            f'{self.announced.get(name, hashlib.sha256(content).hexdigest())}"'
            f"{' data-yanked=' if name in self.yanked else ''}>{name}</a><br>"
            for name, content in files.items()
        )
        return web.Response(text=f"<html><body>{links}</body></html>", content_type="text/html")

    async def file(self, request: web.Request) -> web.StreamResponse:
        if self.credential and request.headers.get("Authorization") != self.credential:
            return web.Response(status=401)
        every = {name: data for files in self.packages.values() for name, data in files.items()}
        return await self.send(request, every[request.match_info["name"]])

    async def send(self, request: web.Request, content: bytes) -> web.StreamResponse:
        how = self.behaviour
        if request.method == "HEAD" and not how.heads:
            return web.Response(status=405)
        if request.method == "GET" and how.statuses:
            return web.Response(status=how.statuses.pop(0))
        start, status, headers = 0, 200, {}
        if how.ranges and "Range" in request.headers:
            self.ranges.append(request.headers["Range"])
            start = int(request.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return web.Response(status=416)
            status = 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        response = web.StreamResponse(status=status, headers=headers)
        if not how.surplus:
            response.content_length = len(content) - start
        await response.prepare(request)
        if request.method == "GET":
            await self._body(request, response, content[start:])
        return response

    async def _body(
        self, request: web.Request, response: web.StreamResponse, content: bytes
    ) -> None:
        how = self.behaviour
        if how.held is not None:
            await response.write(content[: how.held])
            self.sending.set()
            await asyncio.Event().wait()  # ended by the client's going or the server's stop
        if how.cuts and request.path.endswith(how.cut_files):
            await response.write(content[: how.cuts.pop(0)])
            assert request.transport is not None
            request.transport.close()
            return
        await response.write(content)
        for _ in range(how.surplus // 1_000_000):
            await response.write(bytes(1_000_000))
        await response.write_eof()


@asynccontextmanager
async def serving() -> AsyncIterator[Hub]:
    """A hub on a free port of the loopback."""
    hub = Hub()

    @web.middleware
    async def noting(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        hub.asked.append(f"{request.method} {request.path}")
        return await handler(request)

    app = web.Application(middlewares=[noting])
    app.router.add_get("/api/models/{org}/{repo}", hub.model)
    app.router.add_get("/{org}/{repo}/resolve/{revision}/{file:.+}", hub.resolve)
    app.router.add_get("/cdn/{org}/{repo}/{file:.+}", hub.cdn)
    app.router.add_get("/simple/{name}/", hub.page)
    app.router.add_get("/files/{name}", hub.file)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        hub.url = f"http://{host}:{port}"
        yield hub
    finally:
        await runner.cleanup()


@dataclass
class Recorder:
    """A progress that remembers."""

    totals: list[tuple[int | None, str]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    ends: int = 0

    def started(self, total: int | None, label: str) -> None:
        self.totals.append((total, label))

    def advanced(self, count: int) -> None:
        self.counts.append(count)

    def finished(self) -> None:
        self.ends += 1


def split(stem: str, contents: Sequence[bytes]) -> dict[str, bytes]:
    """The parts of a split model by name."""
    total = len(contents)
    return {
        f"{stem}-{n:05d}-of-{total:05d}.gguf": content
        for n, content in enumerate(contents, start=1)
    }
