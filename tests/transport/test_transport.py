"""Our side of HTTP/1.1, against a server that sends exactly what a test says."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import trustme
from casekit import each_of
from faultkit import Reply, upstream

from causerie.cli.serve import run_on_loop
from causerie.composition.providers import reach
from causerie.http.addresses import Address
from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import ClientConnection, HttpResponse, TransportFailed
from causerie.http.event_loop import traffic
from causerie.settings.provider import ProviderSettings, TlsSettings

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

DIRECT = Reach()

Script = Callable[["Peer"], Awaitable[None]]


@dataclass
class Peer:
    """One connection as the server sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int

    async def request(self) -> bytes:
        """The next request, whole."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return head + await self.reader.readexactly(length)

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class Asked:
    """A connection that nothing comes on but what a test says."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def drop(self) -> None: ...


def asked_for() -> HttpResponse:
    connection = Asked()
    head: asyncio.Future[bytes] = connection.loop.create_future()
    return HttpResponse(connection, float("inf"), head, head)


@dataclass
class Server:
    """Observations of a server."""

    url: str = ""
    connections: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def server(script: Script) -> AsyncIterator[Server]:
    facts = Server()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        facts.connections += 1
        try:
            await script(Peer(reader, writer, facts.connections))
        except (asyncio.IncompleteReadError, ConnectionError):
            facts.gone.set()
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    facts.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield facts
    finally:
        listening.close()


@asynccontextmanager
async def client(url: str, reach: Reach = DIRECT) -> AsyncIterator[HttpClient]:
    made = HttpClient(url, reach)
    try:
        yield made
    finally:
        await made.close()


async def answers(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.say(OK)


@pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")
@pytest.mark.parametrize("near", [True, False])
async def test_answers_over_a_network_keep_the_loop_awake_and_an_engine_s_do_not(
    near: bool, tmp_path: Path
) -> None:
    place = str(tmp_path / "socket")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            await answers(Peer(reader, writer, 1))
        writer.close()

    listening = await asyncio.start_unix_server(serve, place)
    shared = traffic()
    shared.busy_poll_seconds = 30.0
    async with listening, server(answers) as there:
        reach = replace(DIRECT, socket=place) if near else DIRECT
        async with client(there.url, reach) as http:
            for _ in range(3):
                await (await http.send("GET", "/models")).read(1000)
            assert shared._is_polling is not near
        shared.busy_poll_seconds = 0.0


async def test_tokens_of_a_stream_keep_the_loop_awake_for_nobody() -> None:
    wanted = asyncio.Semaphore(0)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na")
        for piece in (b"b", b"c"):
            await wanted.acquire()
            await peer.say(piece)

    shared = traffic()
    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/models")
        assert await response.piece() == b"a"
        shared.busy_poll_seconds = 30.0
        for piece in (b"b", b"c"):
            wanted.release()
            assert await response.piece() == piece
        assert not shared._is_polling
        shared.busy_poll_seconds = 0.0


async def test_a_connection_is_kept_and_used_again() -> None:
    async with server(answers) as there, client(there.url) as http:
        for _ in range(3):
            response = await http.send("POST", "/chat", [("x-a", "b")], b"{}")
            assert (response.status, await response.read(10)) == (200, b"ok")
        assert there.connections == 1


async def test_a_connection_that_is_idle_for_long_is_closed() -> None:
    left = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        assert await peer.reader.read() == b""
        left.set()

    async with server(script) as there, client(there.url, Reach(idle_seconds=0.01)) as http:
        assert await (await http.send("GET", "/")).read(10) == b"ok"
        await asyncio.wait_for(left.wait(), 60)
        assert there.connections == 1


async def test_what_is_sent() -> None:
    seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.request())
        await peer.say(OK)

    async with server(script) as there, client(there.url) as http:
        await (await http.send("POST", "/chat", [("x-a", "b")], b"{}")).read(10)
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nx-a: b" in head
    assert b"\r\naccept-encoding: identity" in head
    assert body == b"{}"


async def test_a_header_with_a_line_break_is_never_sent() -> None:
    async with server(answers) as there, client(there.url) as http:
        with pytest.raises(ValueError, match="line break"):
            await http.send("GET", "/", [("x-a", "b\r\nx-c: d")])


async def test_a_kept_connection_that_the_server_closed_is_replaced() -> None:
    async def once(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.request()  # and closes without an answer to this one

    async with server(once) as there, client(there.url) as http:
        assert await (await http.send("GET", "/")).read(10) == b"ok"
        assert await (await http.send("GET", "/")).read(10) == b"ok"
        assert there.connections == 2


async def test_a_new_connection_that_closes_without_an_answer_is_a_failure() -> None:
    async def mute(peer: Peer) -> None:
        await peer.request()

    async with server(mute) as there, client(there.url) as http:
        with pytest.raises(TransportFailed) as failure:
            await http.send("GET", "/")
        assert (failure.value.kind, failure.value.sent) == ("closed", True)
        assert there.connections == 1


async def test_a_chunked_body_in_pieces() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"3\r\nabc\r\n")
        await peer.reader.read(1)
        await peer.say(b"2\r\nde\r\n0\r\n\r\n")
        await answers(peer)

    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/")
        assert await response.piece() == b"abc"
        [kept] = http._open_connections  # the test speaks on the connection to time the server
        assert kept._transport is not None
        kept._transport.write(b"x")
        assert await response.piece() == b"de"
        assert await response.piece() == b""
        assert await (await http.send("GET", "/")).read(10) == b"ok"
        assert there.connections == 1


async def test_a_body_that_ends_with_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/")
        assert await response.read(100) == b"all of it"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (CHUNKED + b"5\r\nab", "closed"),
        (CHUNKED.replace(b"chunked", b"Chunked") + b"5\r\nhello\r\n", "closed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nab", "closed"),
        (CHUNKED + b"zz\r\n", "protocol"),
    ],
    ids=["chunked", "Chunked", "length", "garbage"],
)
async def test_a_body_that_breaks(said: bytes, kind: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(said)

    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/")
        with pytest.raises(TransportFailed) as failure:
            await response.read(100)
        assert failure.value.kind == kind


@pytest.mark.parametrize(
    ("said", "kind"),
    [(b"hello\r\n\r\n", "protocol"), (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, "too_large")],
    ids=["garbage", "endless head"],
)
async def test_a_head_that_is_none(said: bytes, kind: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(said)
        await peer.reader.read()

    async with server(script) as there, client(there.url) as http:
        with pytest.raises(TransportFailed) as failure:
            await http.send("GET", "/")
        assert failure.value.kind == kind


async def test_interim_responses_are_passed_over() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
        await answers(peer)

    async with server(script) as there, client(there.url) as http:
        assert await (await http.send("GET", "/")).read(10) == b"ok"
        assert await (await http.send("GET", "/")).read(10) == b"ok"
        assert there.connections == 1


async def test_a_body_larger_than_asked_for_is_given_up() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED)
        while True:
            await peer.say(b"4\r\nabcd\r\n")

    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/")
        with pytest.raises(TransportFailed) as failure:
            await response.read(1000)
        assert failure.value.kind == "too_large"
        await asyncio.wait_for(there.gone.wait(), 60)


async def test_a_body_nobody_reads_is_not_held_without_end() -> None:
    said = 0

    async def script(peer: Peer) -> None:
        nonlocal said
        await peer.request()
        await peer.say(CHUNKED)
        piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        for _ in range(1000):
            await peer.say(piece)
            said += 1

    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/")
        before = -1
        while said != before:  # until the server is stopped by the full line
            before = said
            await asyncio.sleep(0.05)
        assert said < 500
        size = 0
        with pytest.raises(TransportFailed):  # it never sends the end
            while True:
                size += len(await response.piece())
        assert size == 1000 * 0x10000


async def test_a_full_line_is_free_again_for_the_next_request() -> None:
    body = b"x" * (1024 * 1024)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(body) + 1) + body)
        await peer.reader.read(1)
        await peer.say(b"x")
        await answers(peer)

    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/")
        [kept] = http._open_connections  # the test speaks on the connection to time the server
        assert kept._transport is not None
        kept._transport.write(b"x")
        for _ in range(1000):  # nobody reads: it is held, and too much
            if response.at_hand():
                break
            await asyncio.sleep(0.01)
        assert len(await response.read(2 * len(body))) == len(body) + 1
        async with asyncio.timeout(60):
            assert await (await http.send("GET", "/")).read(10) == b"ok"
        assert there.connections == 1


@pytest.mark.parametrize(
    "more",
    [OK, OK[:17] + b"x: ", b"HTTP/1.1 nonsense\r\n\r\n"],
    ids=["another response", "half of one", "garbage"],
)
async def test_a_connection_with_more_than_was_asked_for_is_not_used_again(more: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK + more)
        await answers(peer)

    async with server(script) as there, client(there.url) as http:
        for _ in range(2):
            response = await http.send("GET", "/")
            assert (response.status, await response.read(10)) == (200, b"ok")
        assert there.connections == 2


async def test_headers_are_joined_and_by_lower_case_name() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 204 No Content\r\nX-A: b\r\nx-a: c\r\nX-D: \xe9\r\n\r\n")
        await answers(peer)

    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/")
        assert dict(response.headers) == {"x-a": "b, c", "x-d": "é"}
        assert await (await http.send("GET", "/")).read(10) == b"ok"
        assert there.connections == 1


@each_of("cut", [0, 1, 12, 40, 70, 100])
async def test_headers_are_of_the_response_and_not_of_those_before_it(cut: int) -> None:
    said = (
        b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n"
        b"content-length:2\r\nx-empty:\r\n\r\nok"
    )

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(said[:cut])
        await asyncio.sleep(0.01)  # so that it is read in two
        await peer.say(said[cut:])
        await answers(peer)

    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/")
        assert response.media_type == b"text/event-stream"
        assert dict(response.headers) == {
            "content-type": "Text/Event-Stream; charset=utf-8",
            "content-length": "2",
            "x-empty": "",
        }
        assert await response.read(10) == b"ok"
        again = await http.send("GET", "/")
        assert dict(again.headers) == {"content-length": "2"}
        assert again.media_type == b""
        assert there.connections == 1


async def test_headers_after_a_body_are_not_those_of_the_next_response() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"2\r\nok\r\n0\r\nx-after: it\r\n\r\n")
        await answers(peer)

    async with server(script) as there, client(there.url) as http:
        assert await (await http.send("GET", "/")).read(10) == b"ok"
        again = await http.send("GET", "/")
        assert dict(again.headers) == {"content-length": "2"}
        assert there.connections == 1


async def test_a_piece_that_does_not_come_in_time_breaks_the_response() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"3\r\nabc\r\n")
        await peer.request()

    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/")
        assert await response.piece(monotonic() + 60) == b"abc"
        with pytest.raises(TransportFailed) as failure:
            await response.piece(monotonic() + 0.01)
        assert failure.value.kind == "timeout"
        await asyncio.wait_for(there.gone.wait(), 60)


async def test_only_waiting_for_a_piece_takes_its_time() -> None:
    response = asked_for()
    response.head.set_result(b"")
    waiting = response.piece(monotonic() + 5.0)
    now = monotonic()
    assert not response.is_late(now)
    assert response.is_late(now + 6.0)
    response.feed(b"abc")
    assert await waiting == b"abc"
    assert not response.is_late(now + 6.0)
    response.due = now + 60.0
    assert response.is_late(now + 61.0)


@pytest.mark.parametrize(
    ("rest", "kept"), [(b"2\r\nok\r\n0\r\n\r\n", 1), (b"2\r\nok\r\n", 2)], ids=["ends", "does not"]
)
async def test_what_nobody_wants_is_passed_over_for_a_while(rest: bytes, kept: int) -> None:
    async def script(peer: Peer) -> None:
        if peer.number == 1:
            await peer.request()
            await peer.say(CHUNKED + b"3\r\nabc\r\n" + rest)
        await answers(peer)

    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/")
        await response.finish(0.01 if kept > 1 else 60.0)
        assert await (await http.send("GET", "/")).read(10) == b"ok"
        assert there.connections == kept


@pytest.mark.parametrize(
    ("opening", "headers"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\na: b\r\n\r\n", {}),
        (b"\r\nHTTP/1.0 200 OK\r\nA: b:c \r\n\r\nc: d\r\n\r\n", {"a": "b:c"}),
        (
            b"HTTP/1.1 100 C\r\nx: y\r\n\r\nHTTP/1.1 103 E\r\n\r\nHTTP/1.1 200 OK\r\na:b\r\n\r\n1",
            {"a": "b"},
        ),
    ],
    ids=["none", "a line before", "interim"],
)
async def test_headers_of_what_came(opening: bytes, headers: dict[str, str]) -> None:
    response = asked_for()
    response.opening = opening
    assert dict(response.headers) == headers


async def test_leaving_in_the_middle_closes_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"3\r\nabc\r\n")
        await peer.request()

    async with server(script) as there, client(there.url) as http:
        response = await http.send("GET", "/")
        await response.piece()
        response.close()
        await asyncio.wait_for(there.gone.wait(), 60)
        assert http.open_connections == 0


async def test_cancelling_before_the_head_closes_the_connection() -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.request()

    async with server(script) as there, client(there.url) as http, asyncio.TaskGroup() as group:
        sending = group.create_task(http.send("GET", "/"))
        await asked.wait()
        sending.cancel()
        await asyncio.wait_for(there.gone.wait(), 60)


def test_who_leaves_while_a_connection_is_made_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the loop of the service: its sockets are closed by then."""
    tasks: list[asyncio.Task[HttpResponse]] = []
    made = ClientConnection.connection_made

    def leave(self: ClientConnection, transport: asyncio.BaseTransport) -> None:
        made(self, transport)
        tasks[0].cancel()

    async def main() -> None:
        async with server(answers) as there, client(there.url, Reach(max_connections=1)) as http:
            monkeypatch.setattr(ClientConnection, "connection_made", leave)
            tasks.append(asyncio.create_task(http.send("GET", "/")))
            waiting = asyncio.create_task(http.send("GET", "/"))
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            assert (await asyncio.wait_for(waiting, 60)).status == 200

    run_on_loop(main())


async def test_no_more_connections_than_allowed() -> None:
    async with (
        server(answers) as there,
        client(there.url, Reach(max_connections=2)) as http,
        asyncio.TaskGroup() as group,
    ):

        async def ask() -> bytes:
            return await (await http.send("GET", "/")).read(10)

        asking = [group.create_task(ask()) for _ in range(20)]
        await asyncio.wait(asking)
        assert there.connections == 2


@pytest.mark.parametrize("said", [b"", OK[:-1]], ids=["no head", "half a body"])
async def test_an_answer_that_is_overdue_is_given_up(said: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(said)
        await peer.request()

    async with server(script) as there, client(there.url) as http:
        due = asyncio.get_running_loop().time() + 0.05
        with pytest.raises(TransportFailed) as failure:
            response = await http.send("GET", "/", due=due)
            await response.read(10)
        assert failure.value.kind == "timeout"
        await asyncio.wait_for(there.gone.wait(), 60)


async def test_a_connection_is_not_waited_for_for_ever() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.request()

    async with (
        server(script) as there,
        client(there.url, Reach(max_connections=1)) as http,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(http.send("GET", "/"))
        await asyncio.sleep(0)
        with pytest.raises(TransportFailed, match="became free") as failure:
            await http.send("GET", "/", due=asyncio.get_running_loop().time() + 0.05)
        assert (failure.value.kind, failure.value.sent) == ("timeout", False)
        first.cancel()


async def test_a_turn_that_comes_too_late_is_the_next_one_s() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK[:-1] if there.connections == 1 else OK)
        await peer.request()

    async with (
        server(script) as there,
        client(there.url, Reach(max_connections=1)) as http,
        asyncio.TaskGroup() as group,
    ):

        async def late() -> None:
            with pytest.raises(TransportFailed, match="became free"):
                await http.send("GET", "/", due=1.0)

        first = await http.send("GET", "/")
        group.create_task(late())
        waiting = group.create_task(http.send("GET", "/"))
        first.close()  # in the moment in which the other has waited long enough
        await asyncio.wait_for(waiting, 60)


async def test_nobody_there() -> None:
    async with server(answers) as there:
        url = there.url
    async with client(url) as http:
        with pytest.raises(TransportFailed) as failure:
            await http.send("GET", "/")
        assert (failure.value.kind, failure.value.sent) == ("refused", False)


@pytest.mark.parametrize("name", ["nobody.invalid", "nobody..invalid"])
async def test_a_name_that_is_none(name: str) -> None:
    async with client(f"http://{name}/v1") as http:
        with pytest.raises(TransportFailed) as failure:
            await http.send("GET", "/")
        assert failure.value.kind == "dns"


async def test_through_a_proxy_the_whole_address_is_asked_for() -> None:
    seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.request())
        await peer.say(OK)

    async with server(script) as there:
        proxy = there.url.removesuffix("/v1").replace("http://", "http://me:secret@")
        async with client("http://models.invalid/v1", Reach(proxy=proxy)) as http:
            assert await (await http.send("GET", "/models")).read(10) == b"ok"
        assert "secret" not in repr(Reach(proxy=proxy))
    assert seen[0].startswith(b"GET http://models.invalid/v1/models HTTP/1.1\r\n")
    assert b"\r\nproxy-authorization: Basic bWU6c2VjcmV0\r\n" in seen[0]


async def test_a_proxy_that_opens_no_tunnel() -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.say(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")

    async with server(script) as there:
        proxy = there.url.removesuffix("/v1")
        async with client("https://models.invalid/v1", Reach(proxy=proxy)) as http:
            with pytest.raises(TransportFailed, match="answered 407") as failure:
                await http.send("GET", "/models")
            assert failure.value.kind == "proxy"


async def test_a_stream_through_a_tunnel() -> None:
    """The proxy sees a name and a port, and bytes that it cannot read."""
    tunnels: list[bytes] = []
    async with upstream(Reply(), secure=True) as up:

        async def script(peer: Peer) -> None:
            tunnels.append(await peer.reader.readuntil(b"\r\n\r\n"))
            reader, writer = await asyncio.open_connection("127.0.0.1", up.port)
            await peer.say(b"HTTP/1.1 200 Connection established\r\nvia: x\r\n\r\n")
            async with asyncio.TaskGroup() as both:
                both.create_task(pass_on(peer.reader, writer))
                both.create_task(pass_on(reader, peer.writer))

        trusted = ssl.create_default_context(cadata=up.ca_pem.decode())
        async with server(script) as there:
            proxy = there.url.removesuffix("/v1").replace("http://", "http://me:secret@")
            async with client(up.base_url, Reach(tls=trusted, proxy=proxy)) as http:
                for _ in range(2):
                    response = await http.send("POST", "/chat/completions", body=b'{"stream":true}')
                    assert (await response.read(100_000)).endswith(b"data: [DONE]\n\n")
    place = b"127.0.0.1:%d" % up.port
    assert tunnels == [
        b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n" % (place, place)
        + b"proxy-authorization: Basic bWU6c2VjcmV0\r\n\r\n"
    ]


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


TLS_SETTINGS: list[tuple[dict[str, Any], bool]] = [
    ({}, False),
    ({"ca_file": "ca"}, False),
    ({"ca_file": "ca", "server_name": "engine.internal"}, False),
    ({"ca_file": "ca", "client_cert": "me"}, False),
    ({"client_cert": "me", "server_name": "engine.internal"}, False),
    ({"ca_file": "ca", "client_cert": "me", "server_name": "engine.internal"}, True),
    ({"client_cert": "me", "verify": False}, True),
]


@pytest.mark.parametrize(("said", "served"), TLS_SETTINGS)
async def test_certificates_as_configured(
    said: dict[str, Any], served: bool, tmp_path: Path
) -> None:
    """The server is called otherwise than its address, and wants to know who asks."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    authority.issue_cert("me").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "me"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("engine.internal").configure_cert(context)
    authority.configure_trust(context)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    base_url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    files = {key: str(tmp_path / one) for key, one in said.items() if one in ("ca", "me")}
    settings = ProviderSettings(name="e", base_url=base_url, tls=TlsSettings(**(said | files)))
    async with listening, client(base_url, reach(settings, None)) as http:
        try:
            response = await http.send("GET", "/models")
            answered = await response.read(10) == b"ok"
        except TransportFailed:
            answered = False
    assert answered is served


@pytest.mark.parametrize("url", ["ftp://a/b", "http://", "nonsense", "http://a/b?c=d"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        Address.parse(url)


async def test_a_stream_over_tls() -> None:
    async with upstream(Reply(pause=0.001), secure=True) as up:
        trusting = Reach(tls=ssl.create_default_context(cadata=up.ca_pem.decode()))
        async with client(up.base_url, trusting) as http:
            body = b'{"model": "m", "messages": [], "stream": true}'
            json = [("content-type", "application/json")]
            for _ in range(2):
                response = await http.send("POST", "/chat/completions", json, body)
                assert response.status == 200
                assert (await response.read(100_000)).endswith(b"data: [DONE]\n\n")
            assert http.open_connections == 1


def test_addresses() -> None:
    assert Address.parse("https://[::1]/v1/").authority == "[::1]"
    assert Address.parse("https://a.example:8443/v1/").authority == "a.example:8443"
    assert Address.parse("http://a.example/v1/").path == "/v1"
