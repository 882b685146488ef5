"""Heads that came before: the same answers as if each were parsed, and no secret remembered."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import replace

import pytest
from casekit import each_of
from edgekit import ASK, KEY, LOCKED, MemoryTransport, ScriptedPipeline, make_edge, wire
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from causerie.access.keys import NO_SCHEME, Credential, KeyDigest, bearer
from causerie.http.connection import Connection, Connections, Listen
from causerie.http.doors import DoorTable
from causerie.http.exchange import ClientGone, Exchange
from causerie.http.head import Headers, RequestHead, RequestHeads, cut_head

BEARER = f"authorization: Bearer {KEY}\r\n"
LENGTH = "content-length"


async def settled() -> None:
    """Handle all that has arrived, each step in its turn of the loop."""
    for _ in range(8):
        await asyncio.sleep(0)


class Listener:
    """One connection whose requests are only written down."""

    def __init__(self, server: Connections | None = None) -> None:
        self.server = server or Connections(self.answer, Listen())
        self.exchanges: list[Exchange] = []
        self.bodies: list[bytes] = []
        self.transport = MemoryTransport()
        self.connection = self.server()
        self.connection.connection_made(self.transport)

    async def answer(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        body = b""
        try:
            while piece := await exchange.piece():
                body += piece
        except ClientGone:
            return
        self.bodies.append(body)
        exchange.respond(200, b"")

    async def hear(self, *requests: bytes) -> None:
        """All of them; whoever sent them is gone then."""
        for request in requests:
            self.connection.data_received(request)
            await settled()
        await settled()
        self.connection.connection_lost(None)
        await self.server.workers.ended()

    def seen(self) -> list[object]:
        """Return the parts of each request, but for its length."""
        return [
            (
                structs.replace(one.head, headers=Headers()),
                sorted((name, one.headers[name]) for name in one.headers if name != LENGTH),
            )
            for one in self.exchanges
        ]


async def test_a_head_is_parsed_twice_and_then_known() -> None:
    listener = Listener()
    await listener.hear(*(wire({"n": 10**n}, extra=BEARER) for n in range(12)))
    assert listener.bodies == [b'{"n": 1%b}' % (b"0" * n) for n in range(12)]
    first, second, *others = listener.exchanges
    assert first.head is not second.head
    assert {id(other.head) for other in others} == {id(others[0].head)}
    assert others[0].head.credential == Credential.of(KEY)
    assert LENGTH in first.headers
    assert LENGTH not in others[-1].headers  # they differ in it
    assert listener.seen() == listener.seen()[:1] * 12


async def test_connections_know_the_heads_of_each_other() -> None:
    one = Listener()
    await one.hear(wire(ASK), wire(ASK))
    other = Listener(one.server)
    await other.hear(wire(ASK))
    assert one.exchanges[-1].head is one.server.heads[cut_head(wire(ASK))[0]]


async def test_who_sends_another_head_each_time_is_not_waited_for() -> None:
    listener = Listener()
    each = [wire(ASK, extra=f"traceparent: 00-{number:032x}\r\n") for number in range(20)]
    await listener.hear(*each, *each[-1:] * 3)
    assert len(listener.bodies) == 23
    assert not listener.server.heads


async def test_one_that_comes_again_now_and_then_stays_known() -> None:
    listener = Listener()
    await listener.hear(
        *[wire(ASK)] * 3,
        *(wire(ASK, extra=f"x: {turn // 7}\r\n" * (turn % 7 > 0)) for turn in range(70)),
    )
    known = listener.server.heads[cut_head(wire(ASK))[0]]
    assert sum(one.head is known for one in listener.exchanges) == 11


@each_of(
    "before",
    [
        b"POST / HTTP/1.1\r\nx: ",
        wire(ASK) + b"POST / HTTP/1.1\r\nx: ",
        wire(ASK) * 2 + b"POST /x",
        b"P",
        b"\r\n",
        wire(ASK)[:-3],
    ],
)
async def test_what_has_begun_otherwise_goes_on_so(before: bytes) -> None:
    """A known head in the middle of something else is a part of that."""
    one, other = Listener(), Listener()
    other.connection._unknown_head_count = 1000
    for listener in (one, other):
        await listener.hear(*[wire(ASK)] * 3, before, wire(ASK), wire(ASK))
    assert one.server.heads
    assert not other.server.heads
    assert (one.seen(), one.bodies) == (other.seen(), other.bodies)


async def test_a_known_request_waits_for_the_answer_before() -> None:
    listener = Listener()
    connection, pieces = listener.connection, [wire({"n": n}) for n in range(6)]
    for piece in pieces[:4]:
        connection.data_received(piece)
        await settled()
    connection.data_received(pieces[4])
    connection.data_received(pieces[5])
    await listener.hear()
    assert [body[-2:-1] for body in listener.bodies] == [b"0", b"1", b"2", b"3", b"4", b"5"]


@each_of(
    "extra",
    [
        "cookie: session=abc\r\n",
        "x-other-key: abc\r\n",
        "proxy-authorization: Basic abc\r\n",
        "x-auth-token: abc\r\n",
        "x-client-secret: abc\r\n",
        "expect: 100-continue\r\n",
        "connection: close\r\n",
        "accept: a\r\naccept: b\r\n",
        "authorization: Bearer one\r\nauthorization: Bearer two\r\n",
    ],
)
async def test_some_heads_are_never_known(extra: str) -> None:
    server = None
    for _ in range(3):
        listener = Listener(server)
        server = listener.server
        await listener.hear(wire(ASK, extra=extra), wire(ASK, extra=extra))
    assert server is not None
    assert not server.heads


async def test_an_address_with_a_query_is_never_known() -> None:
    listener = Listener()
    await listener.hear(*[wire(ASK, "/v1/chat/completions?key=abc")] * 4)
    assert not listener.server.heads


def test_a_body_in_pieces_has_no_known_head() -> None:
    heads = RequestHeads()  # the parser takes no length alongside it, and sees both
    heads.learn(
        b"", RequestHead("POST", "/", headers=Headers({"transfer-encoding": "", LENGTH: "1"}))
    )
    assert not heads


async def test_no_more_heads_are_known_than_there_is_room_for() -> None:
    heads = RequestHeads()
    for number in range(2000):
        digest = number.to_bytes(32)
        heads.learn(digest, RequestHead("POST", "/", headers=Headers({LENGTH: "1"})))
        assert digest in heads
        assert len(heads) <= 512


async def test_a_key_is_nowhere_once_its_head_is_known() -> None:
    listener = Listener()
    secret = "ck_told_" + "s3cr3t" * 5
    await listener.hear(*[wire(ASK, extra=f"authorization: Bearer {secret}\r\n")] * 4)
    known = [listener.server.heads, [one.head for one in listener.exchanges], listener.connection]
    seen: set[int] = set()
    while known:
        one = known.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        if isinstance(one, str | bytes):
            assert "s3cr3t" not in str(one)
        elif isinstance(
            one,
            RequestHeads | RequestHead | Headers | Credential | Connection | Exchange | list | dict,
        ):
            known += gc.get_referents(one)


@each_of(
    "hidden",
    [
        b"POST /a HTTP/1.1\r\nhost: a\ncontent-length: %d\n\n",  # with the rest as its body
        b"POST /a HTTP/1.1\r\nhost: a\ncontent-length: 0\n\n",  # with the rest as another request
        b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 3\n\nabc",
        b"POST /a HTTP/1.1\r\nhost: a\n\ncontent-length: 3\r\n\r\nabc",
        b"POST /a HTTP/1.1\r\nhost: a\r\nx: y\rcontent-length: 3\r\n\r\nabc",
        b"\r\nPOST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc",
    ],
)
@each_of("lenient", [False, True])
async def test_one_request_is_not_taken_for_another(hidden: bytes, lenient: bool) -> None:
    """Not even where the parser were to take lines that end otherwise, as it does not now."""
    rest = b"POST /b HTTP/1.1\r\nhost: b\r\ncontent-length: 3\r\n\r\nabc"
    data = hidden.replace(b"%d", b"%d" % len(rest)) + rest
    known, plain = Listener(), Listener()
    plain.connection._unknown_head_count = 1000
    for listener in (known, plain):
        listener.connection._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=lenient)
        await listener.hear(data, data, data, data)
    assert (known.seen(), known.bodies) == (plain.seen(), plain.bodies)


async def test_a_letter_behind_a_request_belongs_to_the_next_one() -> None:
    """A request that is known may not begin inside another one's method."""
    ask = wire(b"x")
    listener = Listener()
    await listener.hear(ask, ask, wire(b"") + b"L", ask)
    assert len(listener.seen()) == 3
    assert listener.transport.closed
    assert b"400 Bad Request" in listener.transport.written


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["/v1/chat/completions", "/v1/x%20y?a=b", "/"]),
            st.sampled_from(["", "x-a: 1\r\n", "X-A:2\r\n", BEARER, "Content-Type: b\r\n"]),
            st.sampled_from(
                [
                    "content-length: {}",
                    "Content-Length: {}",
                    "CONTENT-LENGTH: {}",
                    "content-length:{}",
                    "content-length: 0{}",
                    "content-length: {} ",
                    "x-content-length: 3\r\ncontent-length: {}",
                    "x-content-length: {}\r\ncontent-length: 3",
                    "content-length: {}\r\ncontent-length: {}",
                    "content-length: {}\r\ntransfer-encoding: chunked",
                    "x: a\r\n content-length: {}",
                ]
            ),
            st.lists(st.tuples(st.binary(max_size=12), st.integers(-2, 2)), min_size=1, max_size=4),
            st.booleans(),
        ),
        max_size=4,
    ),
)
def test_what_is_known_says_what_the_parser_would(
    sent: list[tuple[str, str, str, list[tuple[bytes, int]], bool]],
) -> None:
    """Requests that are right, and such as would hide one request in another, again and again."""
    requests = [
        f"POST {path} HTTP/1.1\r\nhost: a\r\n{extra}{length}\r\n\r\n".format(
            *[max(len(body) + (wrong if lying else 0), 0)] * 2
        ).encode()
        + body
        for path, extra, length, bodies, lying in sent
        for body, wrong in bodies
    ]

    async def hear(*, knowing: bool) -> tuple[list[object], bytes, bool]:
        listener = Listener()
        if not knowing:
            listener.connection._unknown_head_count = 1000
        await listener.hear(*requests)
        transport = listener.transport
        return [*listener.seen(), listener.bodies], bytes(transport.written), transport.closed

    def without_ids(written: bytes) -> list[bytes]:
        return [line for line in written.split(b"\r\n") if b"x-request-id" not in line]

    async def both() -> None:
        plain, written, closed = await hear(knowing=False)
        known, said, ended = await hear(knowing=True)
        assert (known, ended) == (plain, closed)
        assert without_ids(said) == without_ids(written)

    asyncio.run(both())


async def test_a_key_that_is_taken_away_is_refused_on_a_connection_that_it_was_good_on() -> None:
    edge = make_edge(ScriptedPipeline())
    server = Connections(edge.answer, Listen())
    connection, transport = server(), MemoryTransport()
    connection.connection_made(transport)
    request = wire(ASK, "/endpoints/locked/v1/chat/completions", extra=BEARER)

    async def status() -> bytes:
        transport.written.clear()
        connection.data_received(request)
        await settled()
        return bytes(transport.written[9:12])

    assert [await status() for _ in range(4)] == [b"200"] * 4
    assert server.heads
    renewed = replace(LOCKED, keys=(KeyDigest.of("new", "ck_new"),))
    edge.replace(DoorTable([renewed], default=renewed.name), ScriptedPipeline())
    assert await status() == b"401"
    await server.workers.ended()


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Bearer a b", "a b"),
    ],
)
def test_the_token_is_what_a_header_bears(header: str, shown: str) -> None:
    assert bearer(header) == Credential.of(shown)


@pytest.mark.parametrize("header", ["Basic abc", "abc", "Bearer", "Bearer "])
def test_a_header_without_a_token_is_known_as_such(header: str) -> None:
    assert bearer(header) == Credential(b"", header=NO_SCHEME)
    assert bearer("") is None


@each_of(
    ("text", "formed"),
    [
        ("ck_abc_" + "x" * 43, True),
        ("ck_abc_" + "x" * 42, False),
        ("ck_abc_" + "x" * 43 + "\n", False),
        ("sk-abc", False),
        ("\ud800", False),
    ],
)
def test_only_what_has_the_form_of_a_key_may_be_one(text: str, formed: bool) -> None:
    assert Credential.of(text).formed is formed


def test_a_piece_is_no_whole_request() -> None:
    whole = wire(ASK)
    pieces: Sequence[bytes] = [whole[:-1], whole + b"x", whole[:20], b"", b"\r\n\r\n", whole * 2]
    assert [cut_head(piece) for piece in pieces] == [(b"", b"")] * len(pieces)
    assert cut_head(whole)[1] == whole.partition(b"\r\n\r\n")[2]


def test_the_length_is_that_of_no_other_header() -> None:
    whole = b"POST / HTTP/1.1\r\nx-content-length: 5\r\ncontent-length: 2\r\n\r\nabcde"
    assert cut_head(whole) == (b"", b"")
