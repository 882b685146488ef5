"""Real connections: clients that leave, streams that wait, and a stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from edgekit import (
    ASK,
    HELLO,
    Response,
    ScriptedPipeline,
    make_edge,
    read_response,
    serving,
    wire,
)

from causerie.errors import UpstreamFailed
from causerie.http.api import RequestLimits
from causerie.http.application import Edge
from causerie.protocol.events import Finished, TextDelta, Usage

STREAM = ASK | {"stream": True}


@asynccontextmanager
async def connected(
    port: int, request: bytes
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()


async def soon(event: asyncio.Event) -> None:
    """Wait for the event."""
    async with asyncio.timeout(60):
        await event.wait()


@pytest.mark.parametrize("ask", [ASK, STREAM], ids=["plain", "stream"])
async def test_leaving_before_the_first_token_ends_the_work(ask: dict[str, object]) -> None:
    pipeline = ScriptedPipeline(prefill=[asyncio.Event()])
    async with serving(make_edge(pipeline)) as port:
        async with connected(port, wire(ask)):
            await soon(pipeline.opened)
            assert not pipeline.released.is_set()
        await soon(pipeline.released)


@pytest.mark.parametrize("ask", [ASK, STREAM], ids=["plain", "stream"])
async def test_leaving_in_the_middle_ends_the_work(ask: dict[str, object]) -> None:
    pipeline = ScriptedPipeline(script=[TextDelta("Hel"), asyncio.Event()])
    async with serving(make_edge(pipeline)) as port:
        async with connected(port, wire(ask)) as (reader, _):
            await soon(pipeline.opened)
            if "stream" in ask:
                await reader.readuntil(b"Hel")
            assert not pipeline.released.is_set()
        await soon(pipeline.released)


async def test_a_reset_connection_ends_the_work() -> None:
    pipeline = ScriptedPipeline(script=[TextDelta("Hel"), asyncio.Event()])
    async with serving(make_edge(pipeline)) as port:
        async with connected(port, wire(STREAM)) as (reader, writer):
            await reader.readuntil(b"Hel")
            writer.transport.abort()
        await soon(pipeline.released)


async def test_no_head_goes_out_before_the_first_event() -> None:
    gate = asyncio.Event()
    pipeline = ScriptedPipeline(prefill=[gate])
    limits = RequestLimits(ping_seconds=0.01)
    async with (
        serving(make_edge(pipeline, limits=limits)) as port,
        connected(port, wire(STREAM)) as (reader, _),
    ):
        await soon(pipeline.opened)
        reading = asyncio.ensure_future(reader.readuntil(b"\r\n"))
        await asyncio.wait([reading], timeout=0.05)
        assert not reading.done()
        gate.set()
        assert (await reading).startswith(b"HTTP/1.1 200")


def early(pipeline: ScriptedPipeline, seconds: float = 0.01) -> Edge:
    """An edge that waits for so long until it starts a stream."""
    return make_edge(pipeline, limits=RequestLimits(first_byte_seconds=seconds, ping_seconds=600))


async def test_a_stream_whose_first_event_is_late_begins_with_a_comment() -> None:
    gate = asyncio.Event()
    pipeline = ScriptedPipeline(prefill=[gate])
    async with (
        serving(early(pipeline)) as port,
        connected(port, wire(STREAM, extra="connection: close\r\n")) as (reader, _),
    ):
        head = await reader.readuntil(b": ping\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"x-request-id: chatcmpl-" in head
        assert b"x-served-by" not in head
        gate.set()
        rest = (await reader.read()).decode()
    assert '"role":"assistant","content":""' in rest.partition("\n\n")[0]
    assert "Hel" in rest
    assert rest.count("data: [DONE]") == 1


async def test_a_failure_behind_an_early_start_is_one_of_the_stream() -> None:
    gate = asyncio.Event()
    failure = UpstreamFailed("It broke.", code="upstream_timeout")
    pipeline = ScriptedPipeline(prefill=[gate, failure])
    async with (
        serving(early(pipeline)) as port,
        connected(port, wire(STREAM, extra="connection: close\r\n")) as (reader, _),
    ):
        await reader.readuntil(b": ping\n")
        gate.set()
        body = (await reader.read()).decode()
    events = [line[6:] for line in body.splitlines() if line.startswith("data: ")]
    assert len(events) == 2
    assert events[1] == "[DONE]"
    chunk = json.loads(events[0])
    assert chunk["error"]["code"] == "upstream_timeout"
    assert [each["finish_reason"] for each in chunk["choices"]] == ["error"]
    assert (chunk["model"], chunk["id"][:9]) == ("m", "chatcmpl-")


async def test_a_client_that_leaves_behind_an_early_start_ends_the_work() -> None:
    pipeline = ScriptedPipeline(prefill=[asyncio.Event()])
    async with serving(early(pipeline)) as port:
        async with connected(port, wire(STREAM)) as (reader, _):
            await reader.readuntil(b": ping\n")
            assert not pipeline.released.is_set()
        await soon(pipeline.released)


@pytest.mark.parametrize("stream", [True, False])
async def test_what_never_starts_early_keeps_its_status(*, stream: bool) -> None:
    """A plain request always; a stream where the setting says so."""
    gate = asyncio.Event()
    pipeline = ScriptedPipeline(prefill=[gate, UpstreamFailed("It broke.")])
    async with (
        serving(early(pipeline, 0 if stream else 0.001)) as port,
        connected(port, wire(STREAM if stream else ASK)) as (reader, _),
    ):
        await soon(pipeline.opened)
        reading = asyncio.ensure_future(reader.readuntil(b"\r\n"))
        await asyncio.wait([reading], timeout=0.05)
        assert not reading.done()
        gate.set()
        assert (await reading).startswith(b"HTTP/1.1 502")


async def test_silence_is_broken_by_one_line() -> None:
    gate = asyncio.Event()
    pipeline = ScriptedPipeline(script=[TextDelta("Hel"), gate, *HELLO[1:]])
    limits = RequestLimits(ping_seconds=0.02)
    async with (
        serving(make_edge(pipeline, limits=limits)) as port,
        connected(port, wire(STREAM)) as (reader, _),
    ):
        before = await reader.readuntil(b": ping\n")
        assert before.endswith(b"\r\n: ping\n")  # a chunk of its own, after a whole event
        gate.set()
        rest = await reader.readuntil(b"data: [DONE]\n\n")
        assert b": ping\n\n" not in rest


async def test_a_client_that_stops_reading_is_given_up() -> None:
    long = TextDelta("x" * 100_000)
    pipeline = ScriptedPipeline(script=[long] * 400)
    async with (
        serving(make_edge(pipeline), stuck_seconds=0.1) as port,
        connected(port, wire(STREAM)),
    ):
        await soon(pipeline.released)


async def test_chunks_that_come_together_go_out_together() -> None:
    pipeline = ScriptedPipeline(script=[TextDelta("x")] * 100 + [Finished("stop"), Usage(1, 100)])
    async with (
        serving(make_edge(pipeline)) as port,
        connected(port, wire(STREAM, extra="connection: close\r\n")) as (reader, _),
    ):
        body = (await read_response(reader)).body
    assert body.count(b"data: {") == 102
    assert body.count(b"\r\ndata: ") < 20  # pieces of the chunked body


async def test_running_streams_finish_at_a_stop() -> None:
    gate = asyncio.Event()
    pipeline = ScriptedPipeline(script=[TextDelta("Hel"), gate, *HELLO[1:]])
    edge = make_edge(pipeline)
    async with (
        serving(edge) as port,
        connected(port, wire(STREAM)) as (reader, _),
        asyncio.TaskGroup() as group,
    ):
        await reader.readuntil(b"Hel")
        finishing = group.create_task(edge.drain.finish(30))
        await asyncio.sleep(0)  # the stop begins
        refused = await one_more(port)
        assert refused.status == 503
        assert refused.headers["connection"] == "close"
        gate.set()
        rest = await reader.readuntil(b"[DONE]\n\n")
        assert b'"finish_reason":"stop"' in rest
        await finishing


async def one_more(port: int) -> Response:
    async with connected(port, wire(ASK)) as (reader, _):
        return await read_response(reader)


async def test_an_answer_that_is_read_slowly_is_whole_at_a_stop() -> None:
    text = "x" * 8_000_000  # more than any socket holds
    pipeline = ScriptedPipeline(script=[TextDelta(text), *HELLO[2:]])
    async with asyncio.TaskGroup() as group, serving(make_edge(pipeline)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wire(ASK))
        await soon(pipeline.released)
        answer = group.create_task(read_response(reader))
    assert answer.result().json()["choices"][0]["message"]["content"] == text
    writer.close()


async def test_what_runs_too_long_at_a_stop_ends_with_an_error() -> None:
    pipeline = ScriptedPipeline(script=[TextDelta("Hel"), asyncio.Event()])
    edge = make_edge(pipeline)
    async with serving(edge) as port, connected(port, wire(STREAM)) as (reader, _):
        await reader.readuntil(b"Hel")
        await edge.drain.finish(0)
        rest = await reader.readuntil(b"data: [DONE]\n\n")
        data = [line for line in rest.split(b"\n") if line.startswith(b"data: {")]
        broken = json.loads(data[-1].removeprefix(b"data: "))
        assert broken["error"]["type"] == "overloaded_error"
        assert broken["choices"][0]["finish_reason"] == "error"
        assert pipeline.released.is_set()


@pytest.mark.parametrize("ask", [ASK, STREAM], ids=["plain", "stream"])
async def test_what_has_not_begun_at_the_end_of_a_stop_gets_its_status(
    ask: dict[str, object],
) -> None:
    pipeline = ScriptedPipeline(prefill=[asyncio.Event()])
    edge = make_edge(pipeline)
    async with serving(edge) as port, connected(port, wire(ask)) as (reader, _):
        await soon(pipeline.opened)
        await edge.drain.finish(0)
        answer = await read_response(reader)
        assert (answer.status, answer.error["type"]) == (503, "overloaded_error")
        assert answer.headers["retry-after"]


async def test_one_connection_serves_one_request_after_the_other() -> None:
    edge = make_edge()
    async with serving(edge) as port, connected(port, wire(ASK)) as (reader, writer):
        assert (await read_response(reader)).status == 200
        writer.write(wire(b"{"))
        assert (await read_response(reader)).status == 400
        writer.write(wire(ASK))
        assert (await read_response(reader)).status == 200
