"""The upstream that goes wrong as told: each fault really is on the wire."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import pytest
from casekit import each_of
from faultkit import BEFORE_FIRST, BEFORE_HEAD, Broken, Call, Fault, Received, Reply, upstream
from faultkit.upstream import Script, Upstream

REPLY = Reply("Grün ist Heide, né?", reasoning="Was soll ich sagen …")
SILENCE = 0.2  # long enough to see that nothing comes
SENT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 99}
STREAMED = {**SENT, "stream": True, "stream_options": {"include_usage": True}}


class Peer:
    """A client that sees bytes, and how the connection ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.end = ""

    async def ask(self, body: dict[str, Any], path: str = "/v1/chat/completions") -> None:
        raw = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: up\r\nContent-Length: {len(raw)}\r\n\r\n"
        self.writer.write(head.encode() + raw)
        await self.writer.drain()

    async def everything(self, seconds: float = SILENCE) -> bytes:
        """Read until the end, or until nothing comes any more."""
        got = b""
        while True:
            try:
                async with asyncio.timeout(seconds):
                    piece = await self.reader.read(65536)
            except TimeoutError:
                self.end = "open"
                return got
            except ConnectionResetError:
                self.end = "reset"
                return got
            if not piece:
                self.end = "closed"
                return got
            got += piece

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()


async def peer(up: Upstream, **tls: Any) -> Peer:
    address = urlsplit(up.base_url)
    return Peer(*await asyncio.open_connection(address.hostname, address.port, **tls))


async def exchange(
    script: Script, body: dict[str, Any] = STREAMED, seconds: float = SILENCE
) -> tuple[bytes, bytes, str]:
    """Head, body and end of the reply to one request."""
    async with upstream(script) as up:
        client = await peer(up)
        try:
            await client.ask(body)
            head, _, rest = (await client.everything(seconds)).partition(b"\r\n\r\n")
        finally:
            await client.close()
        return head, rest, client.end


def unchunked(body: bytes) -> tuple[bytes, bool]:
    """The transfer's content, and whether it is complete."""
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            return out, True
        out, body = out + body[:length], body[length + 2 :]
    return out, False


def events(content: bytes) -> list[Any]:
    """The events of a stream; ``[DONE]`` and what is no JSON as they are."""
    found: list[Any] = []
    for part in content.replace(b"\r\n", b"\n").split(b"\n\n"):
        if part.startswith(b"data: "):
            try:
                found.append(json.loads(part[6:]))
            except ValueError:
                found.append(part[6:])
    return found


def said(found: Sequence[Any]) -> tuple[str, str]:
    """Reasoning and text."""
    deltas = [
        event["choices"][0]["delta"]
        for event in found
        if isinstance(event, dict) and event.get("choices")
    ]
    reasoning = "".join(delta.get("reasoning_content") or "" for delta in deltas)
    return reasoning, "".join(delta.get("content") or "" for delta in deltas)


# Healthy replies.


async def test_a_stream() -> None:
    head, body, end = await exchange(REPLY)
    content, complete = unchunked(body)
    found = events(content)
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"text/event-stream" in head
    assert complete
    assert end == "open"
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert said(found) == (REPLY.reasoning, REPLY.text)
    assert found[-3]["choices"][0]["finish_reason"] == "stop"
    assert found[-2]["choices"] == []
    assert found[-1] == b"[DONE]"
    pieces = len(found) - 4
    assert found[-2]["usage"]["completion_tokens"] == pieces


async def test_a_plain_reply_says_the_same() -> None:
    head, body, end = await exchange(REPLY, SENT)
    reply = json.loads(body)
    message = reply["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (REPLY.reasoning, REPLY.text)
    assert f"content-length: {len(body)}".encode() in head
    assert end == "open"
    _, stream, _ = await exchange(REPLY)
    assert reply["usage"] == events(unchunked(stream)[0])[-2]["usage"]


async def test_calls_come_in_pieces() -> None:
    call = Call("look", '{"place":"Zürich"}')
    _, body, _ = await exchange(Reply("", calls=(call,)))
    found = events(unchunked(body)[0])
    pieces = [e["choices"][0]["delta"]["tool_calls"][0] for e in found[1:-3]]
    assert pieces[0]["function"] == {"name": "look", "arguments": ""}
    assert "".join(p["function"]["arguments"] for p in pieces) == call.arguments
    assert found[-3]["choices"][0]["finish_reason"] == "tool_calls"


async def test_usage_only_when_asked_for() -> None:
    _, body, _ = await exchange(REPLY, {**SENT, "stream": True})
    assert not any(b"usage" in json.dumps(e).encode() for e in events(unchunked(body)[0])[:-1])


async def test_the_limit_is_kept() -> None:
    _, body, _ = await exchange(REPLY, {**STREAMED, "max_tokens": 5})
    found = events(unchunked(body)[0])
    assert said(found) == (REPLY.reasoning, REPLY.text[:5])
    assert found[-3]["choices"][0]["finish_reason"] == "length"
    assert found[-2]["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("reasoning", "text"), [("", ""), (REPLY.reasoning[:7], ""), (REPLY.reasoning, "Grün is")]
)
async def test_a_reply_goes_on_after_exactly_what_there_is(reasoning: str, text: str) -> None:
    begun = {"role": "assistant", "content": text, "reasoning_content": reasoning}
    messages = [{"role": "user", "content": "Hi"}, begun]
    _, body, _ = await exchange(REPLY, {**STREAMED, "messages": messages})
    more = said(events(unchunked(body)[0]))
    assert (reasoning + more[0], text + more[1]) == (REPLY.reasoning, REPLY.text)


async def test_what_the_reply_had_not_begun_with_is_a_mistake() -> None:
    async with upstream(REPLY) as up:
        client = await peer(up)
        wrong = [{"role": "assistant", "content": "Blau"}]
        await client.ask({**STREAMED, "messages": wrong})
        assert (await client.everything()).startswith(b"HTTP/1.1 400")
        await client.close()
        assert "Blau" in up.mistakes[0]


# Breaks. What is told of the reply until then, and how it ends.


@each_of(
    ("fault", "end"),
    [
        (Fault.RESET, "reset"),
        (Fault.RESET_MID_STREAM, "reset"),
        (Fault.CLOSE, "closed"),
        (Fault.CUT_MID_CHUNK, "closed"),
        (Fault.HALF_CLOSED, "closed"),
        (Fault.HANG, "open"),
        (Fault.STALL_BEFORE_FIRST, "open"),
        (Fault.STALL_MID_STREAM, "open"),
    ],
)
@each_of("after", [BEFORE_HEAD, BEFORE_FIRST, 3])
@each_of("body", [STREAMED, SENT])
async def test_a_reply_breaks_off(fault: Fault, end: str, after: int, body: dict[str, Any]) -> None:
    head, rest, ended = await exchange(Broken(fault, after=after, reply=REPLY), body)
    assert ended == end
    if after == BEFORE_HEAD:
        assert head == b""
    elif body is SENT:
        assert b"200 OK" in head
        assert (len(rest) > 0) == (after > 0)
        assert f"content-length: {len(rest)}".encode() not in head
    elif fault is not Fault.CUT_MID_CHUNK:
        content, complete = unchunked(rest)
        found = events(content)
        assert len(found) == 1 + after
        assert not complete
        assert said(found) == (REPLY.reasoning[: 5 * after], "")


async def test_own_places_of_breaks() -> None:
    assert (await exchange(Fault.HANG))[0] == b""
    assert (await exchange(Fault.RESET))[0] == b""
    for fault, count in ((Fault.STALL_BEFORE_FIRST, 1), (Fault.STALL_MID_STREAM, 3)):
        assert len(events(unchunked((await exchange(fault))[1])[0])) == count


async def test_cut_inside_a_chunk() -> None:
    _, body, end = await exchange(Fault.CUT_MID_CHUNK)
    assert b"1000\r\ndata: {" in body
    assert not body.endswith(b"\r\n")
    assert end == "closed"


@pytest.mark.parametrize("body", [STREAMED, SENT])
async def test_cut_inside_a_character(body: dict[str, Any]) -> None:
    head, rest, end = await exchange(Fault.CUT_MID_UTF8, body)
    content, complete = unchunked(rest) if body is STREAMED else (rest, True)
    assert complete
    assert end == "open"
    assert body is STREAMED or f"content-length: {len(rest)}".encode() in head
    with pytest.raises(UnicodeDecodeError, match="unexpected end"):
        content.decode()


async def test_garbage_in_a_stream_that_goes_on() -> None:
    _, body, _ = await exchange(Broken(Fault.GARBAGE_JSON, after=1, reply=REPLY))
    found = events(unchunked(body)[0])
    assert [n for n, event in enumerate(found) if isinstance(event, bytes)] == [2, len(found) - 1]
    assert said(found) == (REPLY.reasoning, REPLY.text)


async def test_garbage_instead_of_a_plain_reply() -> None:
    head, body, _ = await exchange(Fault.GARBAGE_JSON, SENT)
    assert f"content-length: {len(body)}".encode() in head
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)


async def test_an_error_in_a_stream() -> None:
    _, body, _ = await exchange(Broken(Fault.ERROR_IN_STREAM, after=2, reply=REPLY))
    found = events(unchunked(body)[0])
    assert said(found[:3]) == (REPLY.reasoning[:10], "")
    assert found[3]["error"]["message"] == "out of memory"
    assert found[4] == b"[DONE]"


@pytest.mark.parametrize("body", [STREAMED, SENT])
async def test_content_without_end(body: dict[str, Any]) -> None:
    async with upstream(Fault.ENDLESS) as up:
        client = await peer(up)
        await client.ask(body)
        await client.reader.readexactly(200_000)
        assert up.open_connections
        await client.close()
        await up.connections[0].left()


# Answers of the wrong kind.


@each_of(
    ("step", "status", "content_type", "word"),
    [
        (Fault.HTML_ERROR_PAGE, 502, b"text/html", b"<h1>"),
        (Broken(Fault.HTML_ERROR_PAGE, status=503), 503, b"text/html", b"<h1>"),
        (Fault.ERROR_IN_200, 200, b"application/json", b'{"error"'),
        (Fault.SERVER_ERROR, 500, b"application/json", b'{"error"'),
        (Broken(Fault.SERVER_ERROR, status=504), 504, b"application/json", b'{"error"'),
        (Fault.TOO_MANY, 429, b"application/json", b'{"error"'),
    ],
)
async def test_bad_answers(
    step: Broken | Fault, status: int, content_type: bytes, word: bytes
) -> None:
    head, body, _ = await exchange(step)
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert content_type in head
    assert word in body
    assert b"retry-after" not in head


async def test_retry_after() -> None:
    head, _, _ = await exchange(Broken(Fault.TOO_MANY_SECONDS, retry_after=7))
    assert b"429" in head
    assert head.endswith(b"\r\nretry-after: 7")
    head, _, _ = await exchange(Broken(Fault.TOO_MANY_DATE, retry_after=600))
    date = head.split(b"retry-after: ")[1].split(b"\r\n")[0].decode()
    assert date.endswith(" GMT")
    assert 500 < parsedate_to_datetime(date).timestamp() - time.time() <= 600


async def test_a_redirect_that_would_be_answered() -> None:
    async with upstream(Fault.REDIRECT) as up:
        client = await peer(up)
        await client.ask(STREAMED)
        head = await client.everything()
        assert head.startswith(b"HTTP/1.1 307")
        assert b"location: /elsewhere/v1/chat/completions\r\n" in head
        await client.close()
        assert len(up.requests) == 1


async def test_no_http() -> None:
    head, _, _ = await exchange(Fault.NOT_HTTP)
    assert not head.startswith(b"HTTP")


@pytest.mark.parametrize("body", [STREAMED, SENT])
async def test_slow_headers(body: dict[str, Any]) -> None:
    step = Broken(Fault.SLOW_HEADERS, reply=REPLY, pause=0.01)
    async with upstream(step) as up:
        client = await peer(up)
        await client.ask(body)
        assert await client.reader.read(1) == b"H"
        assert len(await client.reader.read(4096)) < 20
        rest = await client.everything()
        await client.close()
    assert b"200 OK\r\n" in rest
    assert b"ist" in rest


# Complete replies with something odd.


async def odd(fault: Fault, body: dict[str, Any] = STREAMED) -> tuple[bytes, bytes, list[Any]]:
    head, rest, _ = await exchange(Broken(fault, reply=REPLY, size=300_000), body)
    content, complete = unchunked(rest)
    assert complete
    return head, content, events(content)


async def test_wrong_content_type() -> None:
    head, _, found = await odd(Fault.WRONG_CONTENT_TYPE)
    assert b"text/plain" in head
    assert said(found) == (REPLY.reasoning, REPLY.text)
    head, body, _ = await exchange(Fault.WRONG_CONTENT_TYPE, SENT)
    assert b"text/plain" in head
    assert json.loads(body)["choices"]


async def test_a_whole_reply_for_a_stream() -> None:
    head, body, _ = await exchange(Fault.NOT_STREAMED)
    assert b"application/json" in head
    assert json.loads(body)["object"] == "chat.completion"


async def test_odd_ends() -> None:
    assert (await odd(Fault.TWO_DONE))[2][-2:] == [b"[DONE]", b"[DONE]"]
    without = (await odd(Fault.NO_DONE))[2]
    assert b"[DONE]" not in without
    assert without[-2]["choices"][0]["finish_reason"] == "stop"
    unfinished = (await odd(Fault.NO_FINISH))[2]
    assert unfinished[-1] == b"[DONE]"
    assert not any(e["choices"][0]["finish_reason"] for e in unfinished[:-2])


async def test_odd_usage() -> None:
    missing = (await odd(Fault.USAGE_MISSING))[2]
    assert not any("usage" in event for event in missing[:-1])
    _, plain, _ = await exchange(Fault.USAGE_MISSING, SENT)
    assert "usage" not in json.loads(plain)
    together = (await odd(Fault.USAGE_WITH_CHOICES))[2][-2]
    assert together["usage"]
    assert together["choices"][0]["finish_reason"] == "stop"


async def test_odd_lines() -> None:
    _, comments, found = await odd(Fault.COMMENTS)
    assert comments.count(b": keep-alive\n\n") == len(found) - 4
    _, lines, found = await odd(Fault.CRLF)
    assert lines.count(b"\n") == lines.count(b"\r\n") == 2 * len(found)
    assert said(found) == (REPLY.reasoning, REPLY.text)
    _, huge, found = await odd(Fault.HUGE_CHUNK)
    assert len(huge) > 300_000
    assert said(found) == (REPLY.reasoning, REPLY.text)


async def test_wrong_model() -> None:
    assert {e["model"] for e in (await odd(Fault.WRONG_MODEL))[2][:-1]} == {"somebody-else"}


async def test_a_kept_connection_is_closed() -> None:
    head, body, end = await exchange(Fault.CLOSES_IDLE)
    assert unchunked(body)[1]
    assert b"connection:" not in head.lower()
    assert end == "closed"


# Faults of the address.


async def test_nobody_listens() -> None:
    async with upstream(Fault.REFUSE) as up:
        with pytest.raises(ConnectionRefusedError):
            await peer(up)


async def test_no_such_name() -> None:
    async with upstream(Fault.DNS_FAILURE) as up:
        assert up.base_url.startswith("http://nobody-here.invalid:")
        with pytest.raises(socket.gaierror):
            await peer(up)


def trusting(up: Upstream) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=up.ca_pem.decode())


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Fault.TLS_SELF_SIGNED, "unable to get local issuer|self.signed"),
        (Fault.TLS_WRONG_NAME, "mismatch"),
        (Fault.TLS_PLAIN_TEXT, "WRONG_VERSION_NUMBER|wrong version number|RECORD"),
    ],
)
async def test_tls_that_is_not_good(fault: Fault, why: str) -> None:
    async with upstream(fault) as up:
        assert up.base_url.startswith("https://127.0.0.1:")
        with pytest.raises((ssl.SSLError, ConnectionResetError), match=why):
            await peer(up, ssl=trusting(up))


async def test_tls_that_is_good() -> None:
    async with upstream(REPLY, secure=True) as up:
        client = await peer(up, ssl=trusting(up))
        await client.ask(SENT)
        assert b"200 OK" in await client.everything()
        await client.close()


# Scripts, and what is seen of the client.


async def test_each_request_takes_the_next_step_and_the_last_stays() -> None:
    async with upstream([Fault.SERVER_ERROR, Fault.TOO_MANY, REPLY]) as up:
        client = await peer(up)
        statuses = []
        for _ in range(4):
            await client.ask(SENT)
            statuses.append((await client.everything(0.1))[9:12])
        assert statuses == [b"500", b"429", b"200", b"200"]
        assert len(up.connections) == 1
        await client.close()


async def test_a_script_can_be_a_function_of_the_request() -> None:
    def script(request: Received) -> Reply | Fault:
        return Fault.SERVER_ERROR if request.body["model"] == "bad" else REPLY

    async with upstream(script) as up:
        client = await peer(up)
        await client.ask({**SENT, "model": "bad"})
        assert (await client.everything())[9:12] == b"500"
        await client.ask(SENT)
        assert (await client.everything())[9:12] == b"200"
        await client.close()


async def test_what_was_asked_and_when_the_client_left() -> None:
    async with upstream(Fault.STALL_MID_STREAM) as up:
        client = await peer(up)
        await client.ask(STREAMED)
        request = await up.received()
        assert request.body == STREAMED
        assert request.headers["host"] == "up"
        await request.reached.wait()
        assert request.line.open
        assert len(up.open_connections) == 1
        before = asyncio.get_running_loop().time()
        await client.close()
        assert await request.line.left() >= before
        assert up.connections[0].by_client
        assert not up.open_connections


async def test_dies_and_comes_back() -> None:
    async with upstream([Fault.STALL_MID_STREAM, REPLY]) as up:
        client = await peer(up)
        await client.ask(STREAMED)
        await (await up.received()).reached.wait()
        await up.kill()
        await client.everything()
        assert client.end == "reset"
        assert not up.connections[0].by_client
        with pytest.raises(ConnectionRefusedError):
            await peer(up)
        await up.revive()
        again = await peer(up)
        await again.ask(SENT)
        assert b"200 OK" in await again.everything()
        await client.close()
        await again.close()


async def test_other_paths_do_not_use_up_the_script() -> None:
    async with upstream([REPLY], models=["a", "b"]) as up:
        client = await peer(up)
        client.writer.write(b"GET /v1/models HTTP/1.1\r\nHost: up\r\n\r\n")
        assert b'"id":"b"' in await client.everything()
        up.status = 503
        client.writer.write(b"GET /v1/models HTTP/1.1\r\nHost: up\r\n\r\n")
        assert (await client.everything()).startswith(b"HTTP/1.1 503")
        assert len(up.lookups) == 2
        assert not up.requests
        await client.close()


async def test_a_fault_of_the_address_must_come_first() -> None:
    with pytest.raises(ValueError, match="REFUSE lies in the address"):
        async with upstream([REPLY, Fault.REFUSE]) as up:
            client = await peer(up)
            for _ in range(2):
                await client.ask(SENT)
                await client.everything()
            await client.close()
