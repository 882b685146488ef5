"""The probe on the wire: servers that hang, lie, send garbage or never end."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from casekit import each_of
from probekit import BY_ID, Made, answer, interviewed
from probekit import document as json_reply

from causerie.probe.interview import Interview, Patience, ProbeBounds, ProbeClient
from causerie.probe.question import ProbeReply, ProbeRequest, Subject, chat, exchange
from causerie.probe.questions import QUESTIONS

KEY = "sk-very/secret+key"
SHORT = ProbeBounds(seconds=0.4, bytes=20_000, listing_bytes=20_000)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[str]:
    """A base URL behind which ``serve`` gets every connection, its request unread."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        listening.close()


async def request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Head and body of one request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    sizes = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
    return head, await reader.readexactly(int(sizes[0].split(":")[1]) if sizes else 0)


def response(reply: ProbeReply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} x", f"content-length: {len(reply.body)}"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode() + reply.body


def always(raw: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(raw)
        await writer.drain()

    return serve


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the client leaves."""
    await request(reader)
    await reader.read()


async def hang_in_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {}\n\n")
    await reader.read()


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    while True:
        writer.write(b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n')
        await writer.drain()


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)
    writer.transport.abort()


NASTY: dict[str, Serve] = {
    "hangs": hang,
    "hangs in the body": hang_in_body,
    "never ends": endless,
    "resets": reset,
    "no HTTP": always(b"\x16\x03\x01 hello\r\n\r\n"),
    "a page": always(response(ProbeReply(200, {"content-type": "text/html"}, b"<h1>Welcome</h1>"))),
    "garbage": always(response(ProbeReply(200, {"content-type": "application/json"},
          b"\xff{]\x00"))),
    "huge": always(response(ProbeReply(200, {}, b'{"data": "' + b"x" * 90_000 + b'"}'))),
    "cut": always(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{"),
    "redirect": always(b"HTTP/1.1 302 x\r\nlocation: http://127.0.0.1:1/\r\nconnection: close\r\n"
                       b"content-length: 0\r\n\r\n"),
    "deep": always(response(ProbeReply(200, {}, b"[" * 15_000))),
}  # fmt: skip


@each_of("serve", NASTY.values(), ids=NASTY)
async def test_nothing_makes_the_probe_hang_or_fail(serve: Serve) -> None:
    async with server(serve) as base_url, ProbeClient(base_url, KEY, bounds=SHORT) as asker:
        interview = Interview(Subject(base_url, "m", keyed=True), asker)
        found = [one async for one in interview.findings(QUESTIONS)]
    assert len(found) == len(QUESTIONS)
    grades = {one.id: one.answer for one in found}
    assert grades["completion"] in ("no", "unclear")
    assert "yes" not in {grade for id, grade in grades.items() if BY_ID[id].decides}
    assert not interview.complete


async def test_a_silent_server_is_left_alone_after_three_requests() -> None:
    async with server(hang) as base_url, ProbeClient(base_url, None, bounds=SHORT) as asker:
        interview = Interview(Subject(base_url, "m"), asker)
        found = [one async for one in interview.findings(QUESTIONS)]
    assert interview.requests <= 6
    assert "the server went silent" in found[-1].how


async def test_all_questions_together_have_a_deadline() -> None:
    slow = Patience(total_seconds=0.5)
    async with server(hang_in_body) as base_url, ProbeClient(base_url, None, bounds=SHORT) as asker:
        interview = Interview(Subject(base_url, "m"), asker, slow)
        found = [one async for one in interview.findings(QUESTIONS)]
    assert "0.5 s for all questions were over" in found[-1].how


async def test_a_busy_server_gets_the_time_it_asks_for() -> None:
    turns: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        turns.append("")
        busy = ProbeReply(429, {"retry-after": "0"}, b"{}")
        writer.write(response(busy if len(turns) < 3 else answer()))

    async with server(serve) as base_url, ProbeClient(base_url, None) as asker:
        interview = Interview(Subject(base_url, "m"), asker)
        (found,) = [one async for one in interview.findings([BY_ID["completion"]])]
    assert found.answer == "yes"
    assert len(turns) == 3


async def test_a_time_to_wait_that_is_no_number_is_none() -> None:
    replies = [ProbeReply(429, {"retry-after": "\xb2"}), answer()]
    hasty = Patience(busy_seconds=0.01)
    asked = [BY_ID["completion"]]
    interview, found = await interviewed(Made(lambda ask: replies.pop(0)), asked, patience=hasty)
    assert found["completion"].answer == "yes"
    assert interview.complete


@each_of("ended", ["late", "broken"])
def test_a_reply_that_does_not_end_tells_nothing(ended: str) -> None:
    verdict = ProbeReply(200, {}, b"", ended=ended, trouble="no end").failure
    assert verdict is not None
    assert verdict.grade == "unclear"


async def test_a_server_that_stays_busy_leaves_it_unclear() -> None:
    busy = always(
        response(ProbeReply(503, {"retry-after": "0"}, b'{"error": {"message": "full"}}'))
    )
    async with server(busy) as base_url, ProbeClient(base_url, None) as asker:
        interview = Interview(Subject(base_url, "m"), asker)
        (found,) = [one async for one in interview.findings([BY_ID["completion"]])]
    assert found.answer == "unclear"
    assert "full" in found.how
    assert not interview.complete


@each_of("placeholder", ["x", "1", "none", "EMPTY", "ollama"])
async def test_a_placeholder_for_a_key_spoils_no_reply(placeholder: str) -> None:
    """Clients that insist on a key send such; what is so short is no secret."""
    said = answer(f"1 {placeholder} x")
    async with (
        server(always(response(said))) as base_url,
        ProbeClient(base_url, placeholder) as asker,
    ):
        assert (await asker.put(chat({}))).body == said.body


async def test_the_key_is_sent_and_never_shown() -> None:
    heads: list[str] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await request(reader)
        heads.append(head)
        told = {"error": {"message": f"bad key {KEY}, {json.dumps(KEY)}, sk-very%2Fsecret%2Bkey"}}
        reply = json_reply(told, 401)
        writer.write(response(ProbeReply(401, {**reply.headers, "x-request-id": KEY}, reply.body)))

    async with server(echo) as base_url, ProbeClient(base_url, KEY) as asker:
        reply = await asker.put(chat({"model": "m"}))
        await asker.put(ProbeRequest("GET", "/models", credential="none"))
        await asker.put(ProbeRequest("GET", "/models", credential="wrong"))
    assert f"authorization: Bearer {KEY}" in heads[0]
    assert "authorization" not in heads[1]
    assert KEY not in heads[2]
    shown = f"{reply!r} {exchange(chat({'model': 'm'}), reply)!r}"
    assert "secret" not in shown
    assert "bad key ***" in shown


async def test_what_a_server_says_cannot_move_the_cursor() -> None:
    told = {"error": {"message": "\x1b[2J\x07 gone \u202e\n\nnext Bearer abcdefghijkl"}}
    seen = exchange(chat({"model": "m"}), json_reply(told, 400))
    assert seen.came.split() == ["400", "[2J", "gone", "next", "Bearer", "***"]
    assert seen.came.isprintable()


@pytest.mark.parametrize(
    ("ask", "sent"),
    [
        (
            ProbeRequest("POST", "/chat/completions", b'{"stream": true}', leave_at_data=True),
            hang_in_body,
        ),
        (ProbeRequest("POST", "/chat/completions", b"{}", leave_after=0.05), hang),
    ],
)
async def test_leaving_closes_the_connection(ask: ProbeRequest, sent: Serve) -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await sent(reader, writer)
        finally:
            gone.set()

    async with server(serve) as base_url, ProbeClient(base_url, None) as asker:
        reply = await asker.put(ask)
        assert reply.ended == "left"
        async with asyncio.timeout(60):
            await gone.wait()


async def test_nobody_there() -> None:
    async with server(hang) as base_url:
        pass
    async with ProbeClient(base_url, None, bounds=SHORT) as asker:
        reply = await asker.put(ProbeRequest("GET", "/models"))
    assert (reply.status, reply.ended) == (0, "broken")
    assert "refused" in reply.trouble
