"""An edge over a scripted pipeline, and ways to call it, in process and over sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from causerie.access.keys import Caller, KeyDigest, StaticKeys
from causerie.access.limits import MemoryCounters
from causerie.catalog.catalog import Catalog
from causerie.catalog.model import ModelCard, ServedModel, TargetCapabilities
from causerie.engines.base import EngineState, EngineStatus
from causerie.errors import NotFound
from causerie.http.api import RequestLimits
from causerie.http.application import Edge
from causerie.http.connection import Connections, Listen
from causerie.http.doors import DoorTable, MountedDoor
from causerie.http.server import serve
from causerie.metering.meter import Meter
from causerie.observe.metrics import MetricsCounters
from causerie.pipeline import Pipeline, PipelineDoor, Scopes
from causerie.protocol.events import Batch, BatchSink, Event, Finished, TextDelta, Usage
from causerie.protocol.model_entries import Model
from causerie.protocol.request import UNLABELLED, ChatRequest, Labels
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.protocol.response import Response as Reply
from causerie.protocol.targets import Candidate
from causerie.routing.router import Router
from causerie.routing.target_state import TargetStatus

KEY = "ck_abc_secret"
_AT_ONCE = 32
OPEN = MountedDoor("open", "/endpoints/open/v1", hosts=frozenset({"open.localhost"}))
LOCKED = MountedDoor("locked", "/endpoints/locked/v1", keys=(KeyDigest.of("abc", KEY),))
ROUTER = MountedDoor(
    "router",
    "/router/v1",
    kind="router",
    keys=(KeyDigest.of("abc", KEY),),
    reasoning_object=True,
    open_catalog=True,
)
HELLO: tuple[Event, ...] = (
    TextDelta("Hel"),
    TextDelta("lo"),
    Finished("stop"),
    Usage(prompt=3, completion=2),
)
MODELS = [
    ServedModel(ModelCard(id, id), [TargetCapabilities(Candidate("script"))]).entry()
    for id in ("m", "org/m2")
]
ASK = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


class ScriptedPipeline(Pipeline):
    """Answers with ``script``: events, gates to wait at, and failures to raise.

    ``prefill`` are gates and failures before the answer begins. Tests change both.
    """

    __setattr__ = object.__setattr__  # a pipeline is frozen

    def __init__(
        self,
        script: Sequence[Event | asyncio.Event | Exception] = HELLO,
        prefill: Sequence[asyncio.Event | Exception] = (),
        *,
        any_model: bool = False,
    ) -> None:
        super().__init__(
            StaticKeys(), Catalog(()), MemoryCounters(), Scopes({}, {}), Router({}), Meter(())
        )
        self.script = script
        self.prefill = prefill
        self.any_model = any_model
        self.requests: list[ChatRequest] = []
        self.identities: list[CompletionIdentity] = []
        self.labels: list[Labels] = []
        self.opened = asyncio.Event()
        self.released = asyncio.Event()

    def models(self, door: PipelineDoor, caller: Caller | None) -> Sequence[Model]:
        return MODELS

    def shown(self, door: PipelineDoor, caller: Caller | None, name: str) -> Model:
        for entry in self.models(door, caller):
            if entry.id == name:
                return entry
        raise NotFound("There is no such model.", code="model_not_found", param="model")

    async def answer(
        self,
        door: PipelineDoor,
        caller: Caller,
        request: ChatRequest,
        identity: CompletionIdentity,
        response: Reply,
        labels: Labels = UNLABELLED,
    ) -> None:
        self.labels.append(labels)
        self.requests.append(request)
        self.identities.append(identity)
        self.opened.set()
        if not self.any_model and request.model not in ("m", "org/m2"):
            raise NotFound("No such model.", code="model_not_found", param="model")
        try:
            for step in self.prefill:
                await _pass(step)
            frame = ResponseContext(identity, request.model, "script")
            await self._stream(response.begin({"x-served-by": "script"}, frame))
        finally:
            self.released.set()

    async def _stream(self, emit: BatchSink) -> None:
        async for batch in self._events():
            waiting = emit(batch)
            if waiting is not None:
                await waiting

    async def _events(self) -> AsyncIterator[Batch]:
        together: list[Event] = []  # as providers bring what has arrived at once
        for step in self.script:
            if isinstance(step, asyncio.Event | Exception):
                if together:
                    yield together
                together = []
                await _pass(step)
                continue
            together.append(step)
            if len(together) == _AT_ONCE:
                yield together
                together = []
        if together:
            yield together


async def _pass(step: asyncio.Event | Exception) -> None:
    if isinstance(step, Exception):
        raise step
    await step.wait()


@dataclass
class Statuses:
    """Engines whose status is what the test says."""

    values: list[EngineStatus] = field(
        default_factory=lambda: [EngineStatus("m", EngineState.READY, slots=4)]
    )
    answers: bool | None = None  # the server in which replicas count
    place: tuple[int, int] | None = None  # of a worker process among all
    unrecorded: str = ""

    def status(self) -> Sequence[EngineStatus]:
        return self.values

    def targets(self) -> Sequence[TargetStatus]:
        return [TargetStatus("m", "full", 3, 0, 1.5, "queue_full")]

    def worker(self) -> tuple[int, int] | None:
        return self.place

    def shared(self) -> bool | None:
        return self.answers

    def obstacle(self) -> str:
        return self.unrecorded


def make_edge(
    pipeline: ScriptedPipeline | None = None,
    statuses: Statuses | None = None,
    limits: RequestLimits | None = None,
) -> Edge:
    statuses = statuses or Statuses()
    doors = DoorTable([OPEN, LOCKED, ROUTER], default="open", domains=["llm.example"])
    return Edge(
        doors,
        pipeline or ScriptedPipeline(),
        statuses,
        MetricsCounters(statuses.status, shared=statuses.shared),
        limits=limits,
    )


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json()["error"]

    def events(self) -> list[str]:
        """The data of every event of a stream."""
        lines = self.body.decode().split("\n")
        return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


async def call(
    edge: Edge,
    path: str,
    body: object = None,
    *,
    method: str | None = None,
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
) -> Response:
    """One request, in process. ``body`` may be bytes or anything that JSON holds."""
    given = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    content = body if isinstance(body, bytes) else b"" if body is None else _dump(body)
    names = {name.lower() for name, _ in given}
    if body is not None and "content-type" not in names:
        given.append(("content-type", "application/json"))
    if "host" not in names:
        given.append(("host", "127.0.0.1:8000"))
    verb = method or ("GET" if body is None else "POST")
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        given.append(("content-length", str(len(content))))
    lines = "".join(f"{name}: {value}\r\n" for name, value in given)
    head = f"{verb} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
    transport = MemoryTransport()
    connections = Connections(edge.answer, Listen())
    connection = connections()
    connection.connection_made(transport)
    connection.data_received(head + content)
    await connections.workers.ended()
    return parse_response(bytes(transport.written), verb)


class MemoryTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def parse_response(raw: bytes, method: str = "GET") -> Response:
    """The response that these bytes are."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body = b"" if method == "HEAD" else rest
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return Response(int(status.split()[1]), headers, body)


def _dump(value: object) -> bytes:
    return json.dumps(value).encode()


@asynccontextmanager
async def serving(edge: Edge, **listen: Any) -> AsyncIterator[int]:
    """A real server on a free port; gives the port and stops it in the end."""
    ready = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            serve(
                edge,
                Listen(port=0, **{"drain_seconds": 0.2, **listen}),
                stop=stop,
                on_ready=lambda _, port: ready.set_result(port),
            )
        )
        try:
            yield await ready
        finally:
            stop.set()


def wire(body: object, path: str = "/v1/chat/completions", extra: str = "") -> bytes:
    """A POST request as bytes."""
    content = body if isinstance(body, bytes) else _dump(body)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n{extra}\r\n"
    )
    return head.encode() + content


async def read_response(reader: asyncio.StreamReader) -> Response:
    """One response with a content length, or one that ends with the connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        body = await reader.read()
    return Response(int(head[0].split()[1]), headers, body)
