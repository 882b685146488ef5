"""A gateway in front of upstreams, in this process: the real edge, pipeline, router and client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from edgekit import Statuses, serving

from causerie.access.keys import StaticKeys
from causerie.access.limits import MemoryCounters
from causerie.catalog.catalog import Catalog
from causerie.catalog.model import ModelCard, ServedModel, TargetCapabilities
from causerie.chat.parser import Separation
from causerie.http.api import RequestLimits
from causerie.http.application import Edge
from causerie.http.client import HttpClient, Reach
from causerie.http.doors import DoorKind, DoorTable, MountedDoor
from causerie.metering.meter import Meter, Record
from causerie.observe.metrics import MetricsCounters
from causerie.pipeline import Pipeline, Scopes
from causerie.protocol.parameters import HONOURED
from causerie.protocol.targets import Candidate
from causerie.providers.dialects import DIALECTS
from causerie.providers.provider import Deadlines, Provider
from causerie.providers.target import ProviderTarget
from causerie.routing.router import Router

QUICK = Deadlines(first_token=0.4, between_chunks=0.4, total=2.0)
ASK = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 500}


@dataclass
class Records:
    """A sink that keeps what it gets."""

    kept: list[Record] = field(default_factory=list)

    def write(self, record: Record) -> None:
        self.kept.append(record)


@dataclass
class Answer:
    """A client's answer; the parts of a stream are put together."""

    status: int
    headers: Mapping[str, str]
    error: Mapping[str, Any] | None = None
    text: str = ""
    reasoning: str = ""
    alias: str = ""
    blocks: list[dict[str, Any]] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    finish: list[str] = field(default_factory=list)
    usage: Mapping[str, Any] | None = None
    ids: set[str] = field(default_factory=set)
    done: int = 0


@dataclass
class Gateway:
    """``root`` is the base URL; ``records`` one for each request that ended."""

    root: str
    router: Router
    records: list[Record]
    session: aiohttp.ClientSession

    async def plain(self, **more: Any) -> Answer:
        """One request, answered whole."""
        async with self.session.post(f"{self.root}/chat/completions", json=ASK | more) as response:
            document = await response.json()
        answer = Answer(response.status, response.headers)
        if response.status != 200:
            answer.error = document["error"]
            return answer
        [choice] = document["choices"]
        message = choice["message"]
        answer.text = message["content"] or ""
        answer.reasoning = message.get("reasoning_content", "")
        answer.alias = message.get("reasoning", "")
        answer.blocks = message.get("reasoning_details", [])
        for index, call in enumerate(message.get("tool_calls", ())):
            answer.calls[index] = {"id": call["id"], **call["function"]}
        answer.finish = [choice["finish_reason"]]
        answer.usage = document["usage"]
        answer.ids = {document["id"]}
        answer.done = 1
        return answer

    async def stream(self, **more: Any) -> Answer:
        """One request, streamed."""
        body = ASK | {"stream": True, "stream_options": {"include_usage": True}} | more
        async with self.session.post(f"{self.root}/chat/completions", json=body) as response:
            answer = Answer(response.status, response.headers)
            if response.status != 200:
                answer.error = (await response.json())["error"]
                return answer
            async for line in response.content:
                if line.startswith(b"data: "):
                    _read(answer, line.removeprefix(b"data: ").strip())
        return answer


def _read(answer: Answer, data: bytes) -> None:
    if data == b"[DONE]":
        answer.done += 1
        return
    assert not answer.done, "something after [DONE]"
    chunk = json.loads(data)
    answer.ids.add(chunk["id"])
    answer.error = chunk.get("error") or answer.error
    answer.usage = chunk.get("usage") or answer.usage
    for choice in chunk["choices"]:
        delta = choice["delta"]
        answer.text += delta.get("content") or ""
        answer.reasoning += delta.get("reasoning_content") or ""
        answer.alias += delta.get("reasoning") or ""
        answer.blocks += delta.get("reasoning_details") or []
        for piece in delta.get("tool_calls", ()):
            call = answer.calls.setdefault(piece["index"], {"arguments": ""})
            if "id" in piece:
                call |= {"id": piece["id"], "name": piece["function"]["name"]}
            call["arguments"] += piece["function"]["arguments"]
        if choice["finish_reason"]:
            answer.finish.append(choice["finish_reason"])


@asynccontextmanager
async def gateway(
    *base_urls: str,
    dialect: str | Sequence[str] = "vllm",
    deadlines: Deadlines = QUICK,
    connect_seconds: float = 0.4,
    reasoning_object: bool = False,
    credential: str | None = None,
    limits: RequestLimits | None = None,
    kind: DoorKind = "gateway",
) -> AsyncIterator[Gateway]:
    """A gateway whose model ``m`` is answered by these, in their order, and ``last`` by the last.

    ``dialect`` is that of all, or one for each.
    """
    records = Records()
    dialects = [dialect] * len(base_urls) if isinstance(dialect, str) else dialect
    async with AsyncExitStack() as held:
        targets = {}
        for number, (base_url, spoken) in enumerate(zip(base_urls, dialects, strict=True)):
            client = HttpClient(base_url, Reach(connect_seconds=connect_seconds))
            held.push_async_callback(client.close)
            provider = Provider(
                f"e{number}", client, DIALECTS[spoken], credential=credential, deadlines=deadlines
            )
            targets[f"e{number}"] = ProviderTarget(provider, "m", separators=Separation())
        router = Router(targets)
        door = MountedDoor("gateway", "/gateway/v1", kind=kind, reasoning_object=reasoning_object)
        edge = _edge(router, list(targets), records, door, limits)
        port = await held.enter_async_context(serving(edge))
        connector = aiohttp.TCPConnector(limit=0)
        session = await held.enter_async_context(aiohttp.ClientSession(connector=connector))
        yield Gateway(f"http://127.0.0.1:{port}/v1", router, records.kept, session)


def _edge(
    router: Router,
    targets: Sequence[str],
    records: Records,
    door: MountedDoor,
    limits: RequestLimits | None,
) -> Edge:
    offers = [
        TargetCapabilities(Candidate(name, priority), HONOURED)
        for priority, name in enumerate(targets)
    ]
    models = [
        ServedModel(ModelCard("m", "m", created=1), offers),
        ServedModel(ModelCard("last", "last", created=1), offers[-1:]),
    ]
    counters = MetricsCounters(lambda: [])
    pipeline = Pipeline(
        keys=StaticKeys(),
        catalog=Catalog(models),
        limits=MemoryCounters(),
        scopes=Scopes({}, {}),
        router=router,
        meter=Meter([counters, records]),
    )
    doors = DoorTable([door], default="gateway")
    return Edge(doors, pipeline, Statuses(), counters, limits=limits)


async def settled(condition: Any, seconds: float = 60.0) -> None:
    """Wait until ``condition()`` holds: for what other tasks do on their own."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the library has no event for it
            await asyncio.sleep(0.005)
