"""Targets, hosts and framing as RFC 9112 has them, however a request is put together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from casekit import each_of
from edgekit import ASK, MemoryTransport, Response, make_edge, parse_response, serving, wire
from hypothesis import given
from hypothesis import strategies as st

from causerie.http.connection import Connections, Listen
from causerie.http.exchange import BodyLimits, ClientGone, Exchange, read_body


@dataclass
class Heard:
    """Requests that a connection read from bytes (path, host and body), and the answers."""

    requests: list[tuple[str, str | None, bytes]]
    written: bytes
    closed: bool

    @property
    def first(self) -> Response:
        return parse_response(self.written)


async def heard(sent: bytes, cuts: Sequence[int] = ()) -> Heard:
    requests: list[tuple[str, str | None, bytes]] = []

    async def answer(exchange: Exchange) -> None:
        try:
            body = await read_body(exchange, BodyLimits())
        except ClientGone:
            return
        requests.append((exchange.path, exchange.headers.get("host"), body))
        exchange.respond(200, b"{}")

    connections = Connections(answer, Listen())
    connection, transport = connections(), MemoryTransport()
    connection.connection_made(transport)
    for cut in [*cuts, len(sent)]:
        piece, sent = sent[:cut], sent[cut:]
        if piece:
            connection.data_received(piece)
            for _ in range(4):
                await asyncio.sleep(0)
    for _ in range(8):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    await connections.workers.ended()
    return Heard(requests, bytes(transport.written), transport.closed)


def post(lines: str, body: bytes = b"0\r\n\r\n", target: str = "/", version: str = "1.1") -> bytes:
    return f"POST {target} HTTP/{version}\r\nhost: a\r\n{lines}\r\n".encode() + body


@each_of(
    ("lines", "version", "status"),
    [
        ("transfer-encoding: gzip, chunked\r\n", "1.1", 501),
        ("Transfer-Encoding: GZip ,Chunked\r\n", "1.1", 501),
        ("transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", "1.1", 501),
        ("transfer-encoding: identity, chunked\r\n", "1.1", 501),
        ("transfer-encoding: gzip\r\n", "1.1", 400),
        ("transfer-encoding: chunked, gzip\r\n", "1.1", 400),
        ("transfer-encoding: chunked, chunked\r\n", "1.1", 400),
        ("transfer-encoding: chunked\r\n", "1.0", 400),
        ("transfer-encoding: chunked\r\ncontent-length: 5\r\n", "1.1", 400),
        ("transfer-encoding: chunked\r\n", "1.1", 200),
        ("transfer-encoding: CHUNKED\r\n", "1.1", 200),
    ],
)
async def test_the_only_coding_is_chunked(lines: str, version: str, status: int) -> None:
    seen = await heard(post(lines, version=version))
    assert seen.first.status == status
    assert seen.closed == (status != 200)
    if status == 501:
        assert seen.first.error["code"] == "unsupported_transfer_coding"
        assert seen.first.headers["connection"] == "close"


async def test_a_length_with_thousands_of_zeros_is_the_number_that_it_is() -> None:
    seen = await heard(post(f"content-length: {'0' * 5000}5\r\n", b"hello"))
    assert (seen.first.status, [body for *_, body in seen.requests]) == (200, [b"hello"])


@each_of(
    ("target", "place"),
    [
        ("/a", ("/a", "a")),
        ("http://b/a", ("/a", "b")),
        ("HTTPS://B:80/a%20b?c=http://d/", ("/a b", "B:80")),
        ("http://[::1]:8000/a", ("/a", "[::1]:8000")),
        ("http://b", ("/", "b")),
        ("http://b?c", ("/", "b")),
        ("/http://b/a", ("/http://b/a", "a")),
        ("//b/a", ("//b/a", "a")),
        ("/a?http://b/", ("/a", "a")),
        ("http://c@b/a", ("/a", "c@b")),  # which no door takes for a host name
        ("http:///a", None),
        ("http://:80/a", None),
        ("ftp://b/a", None),
    ],
)
async def test_an_absolute_target_has_path_and_host(
    target: str, place: tuple[str, str] | None
) -> None:
    seen = await heard(post("content-length: 0\r\n", b"", target))
    assert seen.requests == ([] if place is None else [(*place, b"")])
    assert seen.first.status == (400 if place is None else 200)


@each_of(
    ("target", "version", "lines", "status"),
    [
        ("/", "1.1", "", 400),
        ("/", "1.0", "", 200),
        ("/", "1.1", "Host: \r\n", 200),
        ("/", "1.1", "Host: a\r\nhost: a\r\n", 400),
        ("/", "1.1", "Host: a\r\nX-Other: c\r\nHost: b\r\n", 400),
        ("/", "1.0", "Host: a\r\nhost: a\r\n", 400),
        ("/", "1.1", "Host: a\r\nX-Other: b\r\nx-other: c\r\n", 200),
        ("http://b/", "1.1", "", 400),
        ("http://b/", "1.0", "", 200),
        ("http://b/", "1.1", "Host: a\r\n", 200),
        ("http://b/", "1.1", "Host: a\r\nHost: a\r\n", 400),
        ("http://b/", "1.1", "Host: a@b\r\n", 400),
    ],
)
async def test_there_is_one_host_header(target: str, version: str, lines: str, status: int) -> None:
    seen = await heard(f"GET {target} HTTP/{version}\r\n{lines}\r\n".encode())
    assert seen.first.status == status
    assert len(seen.requests) == (status == 200)
    if status == 400:
        assert "`Host`" in seen.first.error["message"]
        assert seen.closed


async def test_an_absolute_target_reaches_the_door_of_its_host() -> None:
    async with serving(make_edge()) as port:
        for host, status in (("open.localhost", 200), ("attacker.example", 404)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(wire(ASK, f"http://{host}/v1/chat/completions", "connection: close\r\n"))
            async with asyncio.timeout(60):
                assert parse_response(await reader.read()).status == status
            writer.close()


HIDDEN = b"POST /hidden HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
NEXT = b"POST /next HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
CODING = st.sampled_from(
    ["chunked", "Chunked", "gzip", "identity", "x", "", " chunked", "chunked\t"]
)
CODINGS = st.lists(st.lists(CODING, min_size=1, max_size=3).map(",".join), max_size=2)
HOST = st.sampled_from(["a", "b.example", "[::1]:1", "a@b", "", "a, b"])
TARGET = st.one_of(
    st.just("/asked"),
    st.builds(
        "{}://{}{}".format, st.sampled_from(["http", "HTTPS", "ftp"]), HOST, st.just("/asked")
    ),
    st.sampled_from(["//b/asked", "*", "asked", "http:/asked", "http://b", "?asked"]),
)


@given(
    target=TARGET,
    hosts=st.lists(HOST, max_size=2),
    codings=CODINGS,
    length=st.sampled_from(["right", "none", "wrong", "twice"]),
    version=st.sampled_from(["1.1", "1.0"]),
    cuts=st.lists(st.integers(1, 60), max_size=6),
)
def test_no_body_is_ever_another_request(
    target: str,
    hosts: Sequence[str],
    codings: Sequence[str],
    length: str,
    version: str,
    cuts: Sequence[int],
) -> None:
    """The body is a request by itself: where its end is in doubt, nothing behind it is read."""
    lines = [f"host: {host}\r\n" for host in hosts]
    lines += [f"transfer-encoding: {each}\r\n" for each in codings]
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN) if codings else HIDDEN
    sizes = {"right": [len(body)], "wrong": [len(body) + 40], "twice": [len(body), 0], "none": []}
    told = [] if codings and length == "right" else sizes[length]
    if not codings and length == "none":
        body = b""
    lines += [f"content-length: {size}\r\n" for size in told]
    head = f"POST {target} HTTP/{version}\r\n{''.join(lines)}connection: keep-alive\r\n\r\n"
    seen = asyncio.run(heard(head.encode() + body + NEXT, cuts))
    assert not [path for path, _, _ in seen.requests if path == "/hidden"]
    assert len(seen.requests) <= 2
    for path, host, taken in seen.requests:
        if path in ("/next", "*"):
            continue
        assert taken in (HIDDEN, b"", (HIDDEN + NEXT)[: len(body) + 40])
        if "://" in target:
            assert target.lower().startswith("http")
            assert host == target.partition("://")[2].partition("/")[0]
        elif hosts:
            assert host == hosts[0]
    if codings:
        every = [one.strip().lower() for one in ",".join(codings).split(",")]
        understood = every == ["chunked"] and version == "1.1" and not told
        assert understood or (seen.first.status in (400, 501) and seen.closed)
