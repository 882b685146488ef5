"""A client that sends nothing more is answered; one that has left is noticed all the same."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Coroutine

import pytest
import uvloop
from edgekit import (
    ASK,
    HELLO,
    ScriptedPipeline,
    make_edge,
    parse_response,
    serving,
    wire,
)

from causerie.errors import Overloaded
from causerie.protocol.events import TextDelta

GONE_SECONDS = 0.1  # the contract's bound while tokens are generated
PLAIN, STREAM = ASK, ASK | {"stream": True}
BEGINNING = b"HTTP/1.1 "
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
Run = Callable[[Coroutine[None, None, None]], None]
asks = pytest.mark.parametrize("ask", [PLAIN, STREAM], ids=["plain", "stream"])
versions = pytest.mark.parametrize("version", ["1.1", "1.0"])


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run on either loop: they differ in how the end of what a client sends is told."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None

    def runs(main: Coroutine[None, None, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main, 60))

    return runs


def request(ask: object, version: str = "1.1") -> bytes:
    return wire(ask).replace(b"HTTP/1.1", b"HTTP/" + version.encode(), 1)


async def sent(port: int, data: bytes) -> socket.socket:
    """A client's socket, after it has sent this."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setblocking(False)
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, data)
    return client


async def read(client: socket.socket, until: bytes | None = None) -> bytes:
    """Read until these bytes came, or until the end."""
    loop, got = asyncio.get_running_loop(), b""
    while until is None or until not in got:
        piece = await loop.sock_recv(client, 1 if until else 65_536)
        if not piece:
            assert until is None, got
            return got
        got += piece
    return got


@asks
@versions
def test_a_client_that_sends_no_more_is_answered(
    run: Run, ask: dict[str, object], version: str
) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with serving(make_edge(ScriptedPipeline(prefill=[gate]))) as port:
            client = await sent(port, request(ask, version))
            client.shutdown(socket.SHUT_WR)
            beginning = await read(client, BEGINNING)  # so the end of the request was seen
            gate.set()
            whole = (beginning + await read(client)).replace(INTERIM, b"")
            client.close()
            answer = parse_response(whole)
            assert whole.count(BEGINNING) == 1
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            if "stream" in ask:
                assert answer.events()[-1] == "[DONE]"
                assert b'"finish_reason":"stop"' in answer.body
            else:
                assert answer.json()["choices"][0]["message"]["content"] == "Hello"

    run(main())


def test_the_end_may_come_in_the_middle_of_the_answer(run: Run) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        pipeline = ScriptedPipeline(script=[TextDelta("Hel"), gate, *HELLO[1:]])
        async with serving(make_edge(pipeline)) as port:
            client = await sent(port, request(STREAM))
            begun = await read(client, b"Hel")
            client.shutdown(socket.SHUT_WR)
            begun += await read(client, b": ping\n")
            gate.set()
            answer = parse_response(begun + await read(client))
            client.close()
            assert answer.events()[-1] == "[DONE]"
            assert answer.body.count(b": ping") >= 1

    run(main())


def test_a_failure_behind_the_end_has_its_status(run: Run) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        pipeline = ScriptedPipeline(prefill=[gate, Overloaded("Full.")])
        async with serving(make_edge(pipeline)) as port:
            client = await sent(port, request(PLAIN))
            client.shutdown(socket.SHUT_WR)
            beginning = await read(client, BEGINNING)
            gate.set()
            answer = parse_response((beginning + await read(client)).replace(INTERIM, b""))
            client.close()
            assert (answer.status, answer.error["code"]) == (503, "queue_full")

    run(main())


def test_all_requests_before_the_end_are_answered(run: Run) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        live = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
        broken = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"
        )
        for behind in (b"", b"GET /health", broken):
            async with serving(make_edge(ScriptedPipeline(prefill=[gate]))) as port:
                client = await sent(port, request(PLAIN) + live + live + behind)
                client.shutdown(socket.SHUT_WR)
                gate.set()
                answers = (await read(client)).replace(INTERIM, b"")
                first, second, third = answers.split(BEGINNING)[1:]
                client.close()
                assert "chat.completion" in first.decode()
                assert second.endswith(b'{"status":"live"}')
                assert b"connection: close" not in first + second
                assert b"connection: close" in third

    run(main())


def test_a_request_that_is_not_whole_has_no_answer(run: Run) -> None:
    async def main() -> None:
        async with serving(make_edge()) as port:
            for cut in (10, 60, -1):
                client = await sent(port, request(PLAIN)[:cut])
                client.shutdown(socket.SHUT_WR)
                assert await read(client) == b""
                client.close()

    run(main())


def leave(client: socket.socket) -> None:
    client.close()


def leave_in_both_directions(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_RDWR)


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@asks
@versions
@pytest.mark.parametrize("leaving", [leave, leave_in_both_directions, reset])
@pytest.mark.parametrize("begun", [False, True], ids=["prompt", "answer"])
def test_a_client_that_has_left_is_noticed(
    run: Run, ask: dict[str, object], version: str, leaving: Callable[..., None], begun: bool
) -> None:
    """The answer itself is silent."""

    async def main() -> None:
        await seconds_to_notice(request(ask, version), leaving, begun=begun)

    run(main())


@pytest.mark.timing
@pytest.mark.parametrize("leaving", [leave, leave_in_both_directions, reset])
@pytest.mark.parametrize("begun", [False, True], ids=["prompt", "answer"])
def test_a_client_that_has_left_is_noticed_in_time(
    run: Run, leaving: Callable[..., None], begun: bool
) -> None:
    async def main() -> None:
        for _ in range(5):
            seconds = await seconds_to_notice(request(STREAM), leaving, begun=begun)
            assert seconds < GONE_SECONDS

    run(main())


async def seconds_to_notice(asked: bytes, leaving: Callable[..., None], *, begun: bool) -> float:
    """Time from a client's leaving, before or within its answer, to the end of the work."""
    silent = asyncio.Event()
    pipeline = ScriptedPipeline(script=[TextDelta("Hel"), silent])
    if not begun:
        pipeline = ScriptedPipeline(prefill=[silent])
    async with serving(make_edge(pipeline)) as port:
        client = await sent(port, asked)
        if begun and b'"stream": true' in asked:
            await read(client, b"Hel")
        await pipeline.opened.wait()
        start = time.monotonic()
        leaving(client)
        await pipeline.released.wait()
        client.close()
        return time.monotonic() - start


def test_an_answer_follows_whole_interim_responses(run: Run) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with serving(make_edge(ScriptedPipeline(prefill=[gate]))) as port:
            client = await sent(port, request(PLAIN))
            client.shutdown(socket.SHUT_WR)
            begun = await read(client, INTERIM + INTERIM[:-3])
            gate.set()
            whole = begun + await read(client)
            client.close()
            assert whole.startswith(INTERIM * 2 + b"HTTP/1.1 200 OK\r\n")
            assert parse_response(whole.replace(INTERIM, b"")).json()["object"] == "chat.completion"

    run(main())


@asks
@pytest.mark.parametrize("leaving", [leave, leave_in_both_directions, reset])
@pytest.mark.parametrize("begun", [False, True], ids=["prompt", "answer"])
def test_a_client_that_sends_no_more_and_leaves_later_is_noticed(
    run: Run, ask: dict[str, object], leaving: Callable[..., None], begun: bool
) -> None:
    """It has read everything that was sent, so that its leaving alone sends nothing."""

    async def main() -> None:
        silent = asyncio.Event()
        pipeline = ScriptedPipeline(script=[TextDelta("Hel"), silent])
        if not begun:
            pipeline = ScriptedPipeline(prefill=[silent])
        streams = begun and "stream" in ask
        async with serving(make_edge(pipeline)) as port:
            client = await sent(port, request(ask))
            await pipeline.opened.wait()
            client.shutdown(socket.SHUT_WR)
            await read(client, b": ping\n" if streams else INTERIM)
            assert not pipeline.released.is_set()
            leaving(client)
            await pipeline.released.wait()
            client.close()

    run(main())


def test_an_idle_client_that_sends_no_more_is_let_go(run: Run) -> None:
    async def main() -> None:
        async with serving(make_edge()) as port:
            client = await sent(port, request(PLAIN))
            await read(client, b'"object":"chat.completion"')
            client.shutdown(socket.SHUT_WR)
            await read(client)
            client.close()

    run(main())
