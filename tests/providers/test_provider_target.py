"""A model of somebody's provider as a target: every fault, every deadline, and leaving."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from casekit import each_of
from faultkit import Broken, Call, Fault, Reply, Upstream, upstream
from providerkit import F, G, in_order, joined, request

from causerie.chat.parser import Separation
from causerie.errors import InvalidRequest, Overloaded, ServiceError, UpstreamFailed
from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import HttpResponse
from causerie.protocol.events import (
    Event,
    Finished,
    Partial,
    PartialCall,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.request import ChatRequest
from causerie.providers.dialects import DIALECTS
from causerie.providers.provider import Deadlines, Provider, RequestSlots
from causerie.providers.target import ProviderTarget

BEGUN = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
SHORT = Deadlines(first_token=0.3, between_chunks=0.3, total=2.0)
STREAMED, PLAIN = request(stream=True), request()


@asynccontextmanager
async def remote(
    up: Upstream,
    dialect: str = "generic",
    *,
    deadlines: Deadlines = SHORT,
    max_concurrent: int | None = None,
    **reach: Any,
) -> AsyncIterator[ProviderTarget]:
    client = HttpClient(up.base_url, Reach(connect_seconds=2, **reach))
    provider = Provider(
        "them",
        client,
        DIALECTS[dialect],
        credential="sk-secret",
        deadlines=deadlines,
        slots=RequestSlots(max_concurrent),
    )
    try:
        yield ProviderTarget(provider, "m", separators=Separation())
    finally:
        await provider.close()
        assert provider.slots.taken == 0


async def events_of(
    chat: ProviderTarget, asked: ChatRequest, partial: Partial | None = None
) -> list[Event]:
    events: list[Event] = []
    async with chat.generate(asked, partial) as reply:
        async for batch in reply.events:
            assert batch
            events += batch
    return events


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


FULL = Reply(
    "Good day.",
    reasoning="Let me think.",
    calls=(Call("f", '{"a": 1}'), Call("g", "{}", "call_2")),
)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_good_reply(stream: bool) -> None:
    asked = request(tools=[F, G], stream=stream)
    async with upstream(FULL) as up, remote(up) as chat:
        events = await events_of(chat, asked)
        in_order(events)
        assert joined(events) == [
            ReasoningDelta("Let me think."),
            TextDelta("Good day."),
            ToolCallStarted(0, "call_upstream_1", "f"),
            ToolCallDelta(0, '{"a": 1}'),
            ToolCallStarted(1, "call_2", "g"),
            ToolCallDelta(1, "{}"),
            Finished("tool_calls"),
            Usage(prompt=11, completion=10, reasoning=3),
        ]
        received = up.requests[0]
        assert received.headers["authorization"] == "Bearer sk-secret"
        assert received.body["model"] == "m"
        assert "sk-secret" not in repr(chat) + repr(chat.provider)


async def test_a_plain_request_is_streamed_where_it_must_be() -> None:
    async with upstream(FULL) as up, remote(up, "llama-server") as chat:
        asked = request(tools=[F, G])
        assert (await events_of(chat, asked))[-1] == Usage(prompt=11, completion=10, reasoning=3)
        assert up.requests[0].streamed


async def test_connections_are_used_again() -> None:
    async with upstream(Reply()) as up, remote(up) as chat:
        for _ in range(3):
            await events_of(chat, STREAMED)
            await events_of(chat, PLAIN)
        assert len(up.connections) == 1


@pytest.mark.parametrize("fault", [Fault.CLOSE, Fault.RESET])
@pytest.mark.parametrize("partial", [None, Partial(text="Good")])
async def test_what_a_kept_connection_lost_is_asked_once_more(
    fault: Fault, partial: Partial | None
) -> None:
    """The whole request again, on a new connection; what that one loses is a failure."""
    good, lost = Reply("Good day."), Broken(fault, reply=Reply("Good day."))
    async with upstream([good, lost, good, lost, lost]) as up, remote(up, "vllm") as chat:
        for _ in range(2):
            events = await events_of(chat, PLAIN, partial)
            assert isinstance(events[-1], Usage)
        with pytest.raises(UpstreamFailed):
            await events_of(chat, PLAIN, partial)
        assert len(up.connections) == 3
        assert len(up.requests) == 5
        assert {str(one.body) for one in up.requests} == {str(up.requests[0].body)}


async def test_no_other_kept_connection_is_tried_after_one_that_was_lost() -> None:
    """If one was closed all may have been."""
    async with upstream([Reply(), Reply(), Fault.CLOSE, Reply()]) as up, remote(up) as chat:
        await asyncio.gather(events_of(chat, PLAIN), events_of(chat, PLAIN))
        await events_of(chat, PLAIN)
        assert len(up.connections) == 3


COMPLETE = sorted((fault for fault in Fault if fault.complete), key=lambda fault: fault.name)


@each_of("fault", COMPLETE)
@each_of("asked", [STREAMED, PLAIN])
async def test_oddities_do_no_harm(fault: Fault, asked: ChatRequest) -> None:
    script = Broken(fault, pause=0.001)
    async with upstream(script) as up, remote(up, deadlines=Deadlines()) as chat:
        events = await events_of(chat, asked)
        in_order(events)
        assert text_of(events).endswith(Reply().text)
        assert [event for event in events if isinstance(event, Finished)] == [Finished("stop")]


BEFORE = [
    # the fault, what comes of it, its code
    (Fault.REFUSE, UpstreamFailed, "bad_gateway"),
    (Fault.DNS_FAILURE, UpstreamFailed, "bad_gateway"),
    (Fault.TLS_SELF_SIGNED, UpstreamFailed, "bad_gateway"),
    (Fault.TLS_WRONG_NAME, UpstreamFailed, "bad_gateway"),
    (Fault.TLS_PLAIN_TEXT, UpstreamFailed, "bad_gateway"),
    (Fault.RESET, UpstreamFailed, "bad_gateway"),
    (Fault.CLOSE, UpstreamFailed, "bad_gateway"),
    (Fault.HANG, UpstreamFailed, "upstream_timeout"),
    (Fault.STALL_BEFORE_FIRST, UpstreamFailed, "upstream_timeout"),
    (Fault.NOT_HTTP, UpstreamFailed, "bad_gateway"),
    (Fault.HTML_ERROR_PAGE, UpstreamFailed, "bad_gateway"),
    (Fault.ERROR_IN_200, UpstreamFailed, "bad_gateway"),
    (Fault.TOO_MANY, Overloaded, "no_endpoint"),
    (Fault.TOO_MANY_SECONDS, Overloaded, "no_endpoint"),
    (Fault.TOO_MANY_DATE, Overloaded, "no_endpoint"),
    (Fault.SERVER_ERROR, UpstreamFailed, "bad_gateway"),
    (Fault.REDIRECT, UpstreamFailed, "bad_gateway"),
]


@each_of(("fault", "kind", "code"), BEFORE)
@each_of("asked", [STREAMED, PLAIN])
async def test_failing_before_the_first_content(
    fault: Fault, kind: type[ServiceError], code: str, asked: ChatRequest
) -> None:
    deadlines = SHORT if asked.stream else Deadlines(total=0.3)
    async with upstream(fault) as up, remote(up, deadlines=deadlines) as chat:
        with pytest.raises(ServiceError) as failed:
            await events_of(chat, asked)
        failure = failed.value
        assert (type(failure), failure.code) == (kind, code)
        assert failure.status == (503 if kind is Overloaded else 504 if "timeout" in code else 502)
        if fault is Fault.TOO_MANY_SECONDS:
            assert failure.headers["Retry-After"] == "2"
        if fault is Fault.TOO_MANY_DATE:
            assert failure.headers["Retry-After"] in ("1", "2", "3")
        said = str(failure.body())
        for secret in ("127.0.0.1", str(up.port), "nobody-here", "/srv/engine", "proxy-7", "m:"):
            assert secret not in said


MIDWAY = [
    (Fault.RESET_MID_STREAM, "bad_gateway"),
    (Fault.STALL_MID_STREAM, "upstream_timeout"),
    (Fault.CUT_MID_CHUNK, "bad_gateway"),
    (Fault.CUT_MID_UTF8, "bad_gateway"),
    (Fault.HALF_CLOSED, "bad_gateway"),
    (Fault.GARBAGE_JSON, "bad_gateway"),
    (Fault.ERROR_IN_STREAM, "bad_gateway"),
]


def test_no_fault_is_forgotten() -> None:
    tested = {fault for fault, *_ in (*BEFORE, *MIDWAY)} | set(COMPLETE) | {Fault.ENDLESS}
    assert tested == set(Fault)


@each_of(("fault", "code"), MIDWAY)
async def test_failing_in_the_middle(fault: Fault, code: str) -> None:
    reply = Reply(pause=0.01)  # so that the pieces are apart
    async with upstream(Broken(fault, reply=reply)) as up, remote(up) as chat:
        got: list[Event] = []
        async with chat.generate(STREAMED) as answer:
            with pytest.raises(UpstreamFailed) as failed:
                async for batch in answer.events:
                    got += batch
            assert answer.usage().completion == len(got) == 2
        assert failed.value.code == code
        assert text_of(got) == reply.text[:10]


@each_of(("fault", "code"), MIDWAY)
async def test_a_plain_reply_that_breaks(fault: Fault, code: str) -> None:
    deadlines = Deadlines(total=0.3)
    async with upstream(fault) as up, remote(up, deadlines=deadlines) as chat:
        with pytest.raises(UpstreamFailed) as failed:
            await events_of(chat, PLAIN)
        assert failed.value.code == code


@pytest.mark.parametrize("asked", [STREAMED, PLAIN])
async def test_a_reply_without_end_ends(asked: ChatRequest) -> None:
    deadlines = Deadlines(total=0.5)
    async with upstream(Fault.ENDLESS) as up, remote(up, deadlines=deadlines) as chat:
        with pytest.raises(UpstreamFailed) as failed:
            await events_of(chat, asked)
        assert failed.value.code == "upstream_timeout"
        await (await up.received()).line.left()


async def test_what_came_with_the_garbage_is_not_lost() -> None:
    async with upstream(Fault.GARBAGE_JSON) as up, remote(up) as chat:
        got: list[Event] = []
        with pytest.raises(UpstreamFailed):
            async with chat.generate(STREAMED) as answer:
                async for batch in answer.events:
                    got += batch
        assert text_of(got) == Reply().text[:10]


@pytest.mark.parametrize("begun", [b"", BEGUN], ids=["before the first content", "after it"])
async def test_comments_are_no_content(begun: bytes) -> None:
    """Only content counts for the deadlines: a server may send comments for ever."""
    deadlines = Deadlines(first_token=0.3, between_chunks=0.3, total=60.0)

    async def comment(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + begun)
        try:
            while True:
                writer.write(b": still here\n\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(comment, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        http = HttpClient(f"http://{host}:{port}/v1")
        provider = Provider("them", http, DIALECTS["generic"], deadlines=deadlines)
        with pytest.raises(UpstreamFailed) as failed:
            await asyncio.wait_for(events_of(ProviderTarget(provider, "m"), STREAMED), 60)
        assert failed.value.code == "upstream_timeout"
        await provider.close()


TOO_LONG = {
    "message": "This model's maximum context length is 16 tokens. However, your messages resulted "
    "in 20 tokens.",
    "code": "context_length_exceeded",
    "type": "invalid_request_error",
}
WHOLE = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}


async def test_a_mark_of_the_order_of_bytes_is_no_part_of_a_reply() -> None:
    """Some languages write one before JSON, which has none (RFC 8259, 8.1)."""
    body = b"\xef\xbb\xbf" + json.dumps(WHOLE).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        provider = Provider("them", HttpClient(f"http://{host}:{port}/v1"), DIALECTS["generic"])
        for asked in (PLAIN, STREAMED):
            assert text_of(await events_of(ProviderTarget(provider, "m"), asked)) == "Hi"
        await provider.close()


@pytest.mark.parametrize("body", [{"error": TOO_LONG}, WHOLE], ids=["a refusal", "a reply"])
async def test_what_is_called_a_stream_and_is_none_is_read_as_what_it_is(
    body: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it does not come together with its head."""
    begun = asyncio.Event()
    text = json.dumps(body, indent=1).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + text[:20])
        await begun.wait()
        writer.write(text[20:])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        provider = Provider("them", HttpClient(f"http://{host}:{port}/v1"), DIALECTS["generic"])
        post = provider.post

        async def head(*given: Any, **more: Any) -> HttpResponse:
            response = await post(*given, **more)
            begun.set()
            return response

        monkeypatch.setattr(provider, "post", head)
        if body is WHOLE:
            assert text_of(await events_of(ProviderTarget(provider, "m"), STREAMED)) == "Hi"
        else:
            with pytest.raises(InvalidRequest) as refused:
                await events_of(ProviderTarget(provider, "m"), STREAMED)
            assert refused.value.code == "context_length_exceeded"
        await provider.close()


async def test_an_end_without_a_beginning_is_no_reply() -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: [DONE]\n\n")
        writer.close()

    server = await asyncio.start_server(end, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        provider = Provider(
            "them", HttpClient(f"http://{host}:{port}/v1"), DIALECTS["generic"], deadlines=SHORT
        )
        with pytest.raises(UpstreamFailed, match="before it began"):
            await events_of(ProviderTarget(provider, "m"), STREAMED)
        await provider.close()


async def test_a_slow_reader_is_not_a_slow_server() -> None:
    reply = Reply(pause=0.05)
    async with upstream(reply) as up, remote(up) as chat:
        async with chat.generate(STREAMED) as answer:
            first = await anext(answer.events)
            await asyncio.sleep(0.5)  # longer than any of the server's deadlines
            rest = [event async for batch in answer.events for event in batch]
        assert text_of([*first, *rest]) == reply.text


@pytest.mark.parametrize("place", ["before the head", "before the first", "in the middle"])
async def test_leaving_ends_the_work_at_once(place: str) -> None:
    faults = {
        "before the head": Fault.HANG,
        "before the first": Fault.STALL_BEFORE_FIRST,
        "in the middle": Fault.STALL_MID_STREAM,
    }
    async with upstream(faults[place]) as up, remote(up, deadlines=Deadlines()) as chat:
        task = asyncio.get_running_loop().create_task(events_of(chat, STREAMED))
        received = await up.received()
        await received.reached.wait()
        left = asyncio.get_running_loop().time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await received.line.left() - left < 0.1
        assert chat.provider.slots.taken == 0


async def test_leaving_after_some_content() -> None:
    async with upstream(Fault.ENDLESS) as up, remote(up, deadlines=Deadlines()) as chat:
        async with chat.generate(STREAMED) as answer:
            await anext(answer.events)
        await (await up.received()).line.left()


async def test_as_many_at_once_as_there_may_be() -> None:
    async with (
        upstream([Fault.STALL_MID_STREAM, Reply()]) as up,
        remote(up, max_concurrent=1) as chat,
    ):
        async with chat.generate(STREAMED) as answer:
            await anext(answer.events)
            with pytest.raises(Overloaded) as full:
                async with chat.generate(STREAMED):
                    pass
            assert full.value.code == "queue_full"
        assert text_of(await events_of(chat, STREAMED)) == Reply().text


async def test_what_cannot_be_asked_is_not_sent() -> None:
    async with upstream(Reply()) as up, remote(up, "ollama") as chat:
        with pytest.raises(InvalidRequest, match="top_k"):
            await events_of(chat, request(top_k=3))
        assert up.requests == []


async def test_changes_and_the_fingerprint() -> None:
    async with upstream(Reply()) as up, remote(up, "ollama") as chat:
        async with chat.generate(request(max_completion_tokens=50, user="u")) as answer:
            async for _ in answer.events:
                pass
            assert list(answer.changes) == [
                "user dropped",
                "max_completion_tokens->max_tokens",
            ]
            assert answer.fingerprint
            assert answer.trail() is None
        assert up.requests[0].body["max_tokens"] == 50


@each_of("dialect", ["vllm", "sglang", "llama-server", "deepseek", "mistral"])
@each_of("cut", [1, 3, 7])
async def test_a_reply_is_continued(dialect: str, cut: int) -> None:
    whole = Reply("One, two, three, four, five.", piece=2)
    partial = Partial(text=whole.text[: 2 * cut], completion=cut)
    asked = request(stream=True, max_tokens=10)
    async with upstream(whole) as up, remote(up, dialect) as chat:
        assert chat.continues(asked, partial)
        events = await events_of(chat, asked, partial)
        assert partial.text + text_of(events) == whole.text[:20]
        assert up.mistakes == []
        if up.requests[0].body.get("stream_options"):
            assert events[-1] == Usage(prompt=11, completion=10 - cut)
        assert Finished("length") in events


def chat_of(dialect: str, continues: bool | None = None) -> ProviderTarget:
    provider = Provider("them", HttpClient("http://127.0.0.1:9/v1"), DIALECTS[dialect])
    return ProviderTarget(provider, "m", continues=continues)


@each_of("dialect", DIALECTS)
def test_where_a_reply_can_be_continued(dialect: str) -> None:
    ways = {
        "causerie": {"text", "both"},
        "vllm": {"text", "both"},
        "sglang": {"text"},
        "llama-server": {"text", "both", "reasoning"},
        "deepseek": {"text"},
        "mistral": {"text"},
    }
    partials = {
        "text": Partial(text="a"),
        "both": Partial(reasoning="r", text="a"),
        "reasoning": Partial(reasoning="r"),
    }
    chat = chat_of(dialect)
    assert chat.continues(PLAIN, Partial())
    found = {name for name, one in partials.items() if chat.continues(PLAIN, one)}
    assert found == ways.get(dialect, set())
    assert not chat.continues(PLAIN, Partial(text="a", calls=(PartialCall(0, "c", "f", "{"),)))
    assert not chat_of(dialect, False).continues(PLAIN, partials["text"])
    trusted = chat_of(dialect, True).continues(PLAIN, partials["text"])
    assert trusted == (dialect in (*ways, "generic", "anthropic"))


def test_what_cannot_be_continued_in_the_middle() -> None:
    chat, partial = chat_of("vllm"), Partial(text="a")
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
    assert not chat.continues(request(response_format=schema), partial)
    assert not chat.continues(request(n=2), partial)
    assert not chat.continues(request(tools=[F], tool_choice="required"), partial)
    assert chat.continues(request(tools=[F]), partial)


async def test_models_and_checks() -> None:
    async with upstream(Reply(), models=["a", "b"]) as up, remote(up) as chat:
        assert [each["id"] for each in await chat.provider.listing()] == ["a", "b"]
        await chat.provider.check()
        await chat.provider.check("/health")  # no such path: it answers, that is enough
        up.status = 500
        with pytest.raises(UpstreamFailed):
            await chat.provider.check()
        up.status = 401
        with pytest.raises(UpstreamFailed, match="credentials"):
            await chat.provider.check()
        with pytest.raises(UpstreamFailed):
            await chat.provider.listing()
        assert up.lookups[0].headers["authorization"] == "Bearer sk-secret"


async def test_an_provider_that_is_gone() -> None:
    async with upstream(Reply()) as up, remote(up) as chat:
        await chat.provider.check()
        await up.kill()
        with pytest.raises(UpstreamFailed):
            await chat.provider.check()
        await up.revive()
        await chat.provider.check()


async def test_over_tls() -> None:
    async with upstream(Reply(), secure=True) as up:
        trust = ssl.create_default_context(cadata=up.ca_pem.decode())
        async with remote(up, tls=trust) as chat:
            assert text_of(await events_of(chat, PLAIN)) == Reply().text


async def test_many_at_once_with_faults_leave_nothing_behind() -> None:
    steps: list[Any] = [Reply(), Fault.RESET_MID_STREAM, Reply(), Fault.SERVER_ERROR, Reply()]
    script = iter(steps * 40)
    async with upstream(lambda _: next(script)) as up, remote(up) as chat:
        outcomes = await asyncio.gather(
            *(events_of(chat, STREAMED) for _ in range(200)), return_exceptions=True
        )
        failed = [one for one in outcomes if isinstance(one, BaseException)]
        assert len(failed) == 80
        assert all(isinstance(one, UpstreamFailed) for one in failed)
        assert all(text_of(one) == Reply().text for one in outcomes if isinstance(one, list))
