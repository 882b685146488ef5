"""Traces: real requests through a whole service, real spans at a real collector."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from edgekit import Statuses
from edgekit import serving as listening
from faultkit import Fault, Reply, Upstream, upstream
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan
from service import serving

from causerie.composition.service import service
from causerie.settings.load import load
from causerie.settings.problems import SettingsError

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
FOLLOWED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=one"}
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "My secret wish"}]}
CONFIG = """
[tracing]
address = "{collector}"
{tracing}

[[doors]]
name = "gateway"
kind = "gateway"

[[providers]]
name = "north"
base_url = "{north}"
dialect = "vllm"
timeouts = {{ first_token = 5, between_chunks = 0.5 }}
health = {{ path = "" }}

[[providers]]
name = "south"
base_url = "{south}"
dialect = "mistral"
health = {{ path = "" }}

[[aliases]]
id = "m"
targets = [
  {{ provider = "north", model = "their-m", priority = 0 }},
  {{ provider = "south", model = "m-large", priority = 1 }},
]
"""


@dataclass
class Span:
    """A sent span."""

    sent: SentSpan
    told: dict[str, Any]

    @property
    def id(self) -> str:
        return self.sent.span_id.hex()

    @property
    def parent(self) -> str:
        return self.sent.parent_span_id.hex()

    @property
    def trace(self) -> str:
        return self.sent.trace_id.hex()

    @property
    def failed(self) -> bool:
        return bool(self.sent.status.code == self.sent.status.STATUS_CODE_ERROR)


@dataclass
class Collector:
    """Keeps what it is sent."""

    address: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    resource: dict[str, Any] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    more: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = values(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [Span(one, values(one.attributes)) for one in scope.spans]
        async with self.more:
            self.more.notify_all()
        return web.Response()

    async def gathered(self, count: int) -> list[Span]:
        """The spans, once there are so many, in the order of their beginnings."""
        async with asyncio.timeout(60), self.more:
            await self.more.wait_for(lambda: len(self.spans) >= count)
        assert len(self.spans) == count
        return sorted(self.spans, key=lambda one: one.sent.start_time_unix_nano)


def values(attributes: Any) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for one in attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind)
        told[one.key] = (
            [each.string_value for each in value.values] if kind == "array_value" else value
        )
    return told


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        collector.address = "http://{}:{}".format(*runner.addresses[0][:2])
        yield collector
    finally:
        await runner.cleanup()


@dataclass
class Traced:
    """A gateway that is traced; ``north`` is asked before ``south``."""

    root: str
    session: aiohttp.ClientSession
    collector: Collector
    north: Upstream
    south: Upstream

    async def ask(self, headers: dict[str, str] | None = None, **more: Any) -> tuple[int, bytes]:
        where = f"{self.root}/v1/chat/completions"
        async with self.session.post(where, json=ASK | more, headers=headers) as response:
            return response.status, await response.read()


@asynccontextmanager
async def traced(
    folder: Path, north: Any = None, south: Any = None, tracing: str = "", address: str = ""
) -> AsyncIterator[Traced]:
    file = folder / "causerie.toml"
    async with AsyncExitStack() as held:
        collector = await held.enter_async_context(collecting())
        first = await held.enter_async_context(upstream(north or Reply("Good day.")))
        second = await held.enter_async_context(upstream(south or Reply("Good evening.")))
        text = CONFIG.format(
            collector=address or collector.address,
            tracing=tracing,
            north=first.base_url,
            south=second.base_url,
        )
        file.write_text(text, encoding="utf-8")
        settings = load(file=file, environ={"HOME": str(folder)}).settings
        engines: Any = Statuses([])
        running = await held.enter_async_context(service(settings, engines))
        port = await held.enter_async_context(listening(running.edge))
        session = await held.enter_async_context(aiohttp.ClientSession())
        yield Traced(f"http://127.0.0.1:{port}", session, collector, first, second)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans are sent soon, with the headers that operators set."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=sesame")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")


async def test_a_request_and_who_was_asked(tmp_path: Path) -> None:
    async with traced(tmp_path) as gateway:
        status, body = await gateway.ask(FOLLOWED)
        asked = await gateway.north.received()
        request, attempt = await gateway.collector.gathered(2)
    assert status == 200
    assert (request.trace, request.parent) == (TRACE, PARENT)
    assert (attempt.trace, attempt.parent) == (TRACE, request.id)
    assert asked.headers["traceparent"] == f"00-{TRACE}-{attempt.id}-01"
    assert asked.headers["tracestate"] == "vendor=one"
    assert (request.sent.name, attempt.sent.name) == ("chat m", "chat their-m")
    assert (request.sent.kind, attempt.sent.kind) == (
        SentSpan.SPAN_KIND_SERVER,
        SentSpan.SPAN_KIND_CLIENT,
    )
    assert not request.failed
    assert not attempt.failed
    used = json.loads(body)["usage"]
    for span in (request, attempt):
        assert span.told["gen_ai.operation.name"] == "chat"
        assert span.told["gen_ai.usage.input_tokens"] == used["prompt_tokens"] == 11
        assert span.told["gen_ai.usage.output_tokens"] == used["completion_tokens"]
        assert span.told["gen_ai.response.finish_reasons"] == ["stop"]
    assert request.told["gen_ai.provider.name"] == "causerie"
    assert request.told["http.response.status_code"] == 200
    assert request.told["causerie.served_by"] == "north/their-m"
    assert "error.type" not in request.told
    assert attempt.told["gen_ai.provider.name"] == "vllm"
    assert attempt.told["server.port"] == gateway.north.port
    assert attempt.told["causerie.continues"] is False
    assert request.sent.end_time_unix_nano >= attempt.sent.end_time_unix_nano
    assert gateway.collector.resource["service.name"] == "causerie"
    assert gateway.collector.resource["deployment.environment.name"] == "test"
    assert gateway.collector.headers[0]["x-key"] == "sesame"


async def test_contents_are_in_no_span(tmp_path: Path) -> None:
    async with traced(tmp_path) as gateway:
        await gateway.ask(stream=True, user="somebody")
        await gateway.collector.gathered(2)
    assert b"chat m" in b"".join(gateway.collector.bodies)
    for said in (b"secret wish", b"Good day", b"somebody"):
        assert said not in b"".join(gateway.collector.bodies)


async def test_the_next_in_line_is_a_span_too(tmp_path: Path) -> None:
    async with traced(tmp_path, Fault.SERVER_ERROR) as gateway:
        status, _ = await gateway.ask()
        request, first, second = await gateway.collector.gathered(3)
    assert status == 200
    assert first.parent == second.parent == request.id
    assert request.parent == ""
    assert first.failed
    assert first.told["error.type"] == "bad_gateway"
    assert not second.failed
    assert second.told["gen_ai.provider.name"] == "mistral_ai"
    assert (request.told["causerie.attempts"], request.failed) == (2, False)


async def test_a_stream_that_is_continued(tmp_path: Path) -> None:
    async with traced(tmp_path, Fault.RESET_MID_STREAM, Reply()) as gateway:
        _, body = await gateway.ask(stream=True)
        request, first, second = await gateway.collector.gathered(3)
    assert body.endswith(b"data: [DONE]\n\n")
    assert first.failed
    assert first.told["gen_ai.response.finish_reasons"] == []
    assert (first.told["causerie.continues"], second.told["causerie.continues"]) == (False, True)
    assert request.told["causerie.continued"] == 1
    assert 0 < first.told["gen_ai.response.time_to_first_chunk"] < 20


async def test_a_request_that_nobody_can_answer(tmp_path: Path) -> None:
    async with traced(tmp_path, Fault.SERVER_ERROR, Fault.SERVER_ERROR) as gateway:
        status, _ = await gateway.ask()
        request, *attempts = await gateway.collector.gathered(5)
    assert status == 502
    assert all(one.failed for one in (request, *attempts))
    assert request.told["error.type"] == "bad_gateway"
    assert request.told["http.response.status_code"] == 502


async def test_a_request_that_is_wrong_is_no_error_of_ours(tmp_path: Path) -> None:
    async with traced(tmp_path) as gateway:
        status, _ = await gateway.ask(model="other")
        [request] = await gateway.collector.gathered(1)
    assert status == 404
    assert (request.sent.name, request.told["error.type"]) == ("chat", "model_not_found")
    assert not request.failed


async def test_a_client_that_leaves(tmp_path: Path) -> None:
    async with traced(tmp_path, Fault.ENDLESS) as gateway:
        where = f"{gateway.root}/v1/chat/completions"
        async with gateway.session.post(where, json=ASK | {"stream": True}) as response:
            await response.content.readline()
        request, attempt = await gateway.collector.gathered(2)
    assert request.told["error.type"] == "client_gone"
    assert not request.failed
    assert not attempt.failed


@pytest.mark.parametrize(
    "said",
    [
        {"traceparent": "nonsense"},
        {"traceparent": f"00-{'0' * 32}-{PARENT}-01"},
        {"traceparent": "00-" + "a" * 5000},
        {"tracestate": "vendor=alone"},
    ],
)
async def test_what_is_no_trace_begins_a_new_one(tmp_path: Path, said: dict[str, str]) -> None:
    async with traced(tmp_path) as gateway:
        status, _ = await gateway.ask(said)
        request, _ = await gateway.collector.gathered(2)
        asked = await gateway.north.received()
    assert status == 200
    assert request.parent == ""
    assert asked.headers["traceparent"].split("-")[1] == request.trace
    assert "tracestate" not in asked.headers


async def test_the_traces_of_strangers_are_not_followed(tmp_path: Path) -> None:
    async with traced(tmp_path, tracing="follow = false") as gateway:
        await gateway.ask(FOLLOWED)
        request, _ = await gateway.collector.gathered(2)
    assert request.parent == ""
    assert request.trace != TRACE


async def test_of_a_share_only_those_that_a_client_wants(tmp_path: Path) -> None:
    async with traced(tmp_path, tracing="share = 0.0") as gateway:
        await gateway.ask()
        first = await gateway.north.received()
        await gateway.ask(FOLLOWED)
        request, _ = await gateway.collector.gathered(2)
    assert int(first.headers["traceparent"][-2:], 16) & 1 == 0  # not sampled
    assert request.trace == TRACE


async def test_a_collector_that_is_away_keeps_nobody_waiting(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with traced(tmp_path, address="http://127.0.0.1:9") as gateway:
        for _ in range(3):
            assert (await gateway.ask())[0] == 200
        leaving = loop.time()
    assert loop.time() - leaving < 60


async def test_a_service_of_its_own(tmp_path: Path) -> None:
    """Lines of its log name the trace; what is queued when it is stopped is sent."""
    own = '[[models]]\nid = "m"\nengine = "fake"\noptions = { replies = ["Yes."] }\n'
    async with collecting() as collector:
        config = f'[tracing]\naddress = "{collector.address}"\n{own}'
        later = {"OTEL_BSP_SCHEDULE_DELAY": "60000"}
        running = serving(tmp_path, config, environment=later)
        there = await asyncio.to_thread(running.__enter__)
        async with aiohttp.ClientSession() as session:
            where = f"{there.base_url}/chat/completions"
            async with session.post(where, json=ASK, headers=FOLLOWED) as response:
                assert response.status == 200
        await asyncio.to_thread(running.__exit__, None, None, None)
        request, attempt = await collector.gathered(2)
    assert request.trace == attempt.trace == TRACE
    assert attempt.told["gen_ai.provider.name"] == "fake"
    lines = [json.loads(line) for line in there.log.read_text().splitlines() if line[:1] == "{"]
    [line] = [line for line in lines if line["event"] == "request"]
    assert line["trace_id"] == TRACE


def test_a_password_in_the_address_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text('[tracing]\naddress = "http://me:sesame@collector"\n')
    with pytest.raises(SettingsError) as refused:
        load(file=file, environ={})
    assert "OTEL_EXPORTER_OTLP_HEADERS" in str(refused.value)
    assert "sesame" not in str(refused.value)


def test_who_does_not_trace_loads_nothing_of_it() -> None:
    code = "import sys, causerie.composition.app; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
