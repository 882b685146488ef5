"""Shared state of an event loop's sockets: the order of writes, and the loop's sleep."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from edgekit import ASK, HELLO, MemoryTransport, ScriptedPipeline, make_edge, serving, wire
from hypothesis import given
from hypothesis import strategies as st

from causerie.http.event_loop import Traffic, traffic

_TURNS = 3  # of the loop, by which whatever is held has been written


async def _turn() -> None:
    await asyncio.sleep(0)


async def _come(shared: Traffic, pieces: int = 1) -> None:
    """So many pieces come together, and the loop comes to whoever handles them."""
    for _ in range(pieces):
        shared.came()
    await _turn()


async def test_a_lone_piece_is_answered_at_once() -> None:
    shared, transport = Traffic(), MemoryTransport()
    await _come(shared)
    shared.send(transport, b"answer")
    assert transport.written == b"answer"


async def test_what_nothing_came_for_is_sent_at_once() -> None:
    shared, transport = Traffic(), MemoryTransport()
    shared.send(transport, b"a token of an engine")
    assert transport.written == b"a token of an engine"


async def test_answers_to_what_came_together_leave_together_in_their_order() -> None:
    shared, log = Traffic(), list[bytes]()

    class Logged(MemoryTransport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            log.append(bytes(data))

    first, second, third = Logged(), Logged(), Logged()
    await _come(shared, 3)
    shared.send(first, b"1")
    shared.send(second, b"2")
    assert log == []
    shared.send(third, b"3")
    assert log == [b"1", b"2", b"3"]


async def test_pieces_that_nobody_answers_hold_up_nothing() -> None:
    """Half a request, or a piece of a stream without content."""
    shared, transport = Traffic(), MemoryTransport()
    await _come(shared, 2)
    shared.send(transport, b"answer")
    assert transport.written == b""
    await _turn()
    assert transport.written == b"answer"


async def test_pieces_that_nobody_answered_before_delay_nothing_later() -> None:
    shared, transport = Traffic(), MemoryTransport()
    await _come(shared, 5)
    await _come(shared)
    shared.send(transport, b"answer")
    assert transport.written == b"answer"


async def test_what_is_large_or_much_is_not_kept() -> None:
    shared, transport = Traffic(), MemoryTransport()
    await _come(shared, 100)
    shared.send(transport, b"small")
    shared.send(transport, b"x" * 100_000)
    assert len(transport.written) == 100_005
    for number in range(50):
        shared.send(transport, b"%02d" % number)
    assert len(transport.written) > 100_005 + 50


async def test_a_connection_that_was_closed_meanwhile_costs_the_others_nothing() -> None:
    shared, closed, kept = Traffic(), MemoryTransport(), MemoryTransport()
    await _come(shared, 3)
    shared.send(closed, b"lost")
    shared.send(kept, b"answer")
    closed.close()
    shared.flush()
    assert (bytes(closed.written), bytes(kept.written)) == (b"", b"answer")


_WHERE = st.integers(0, 2)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(1, 5)),
        st.tuples(st.just("send"), _WHERE),
        st.tuples(st.just("turn"), st.just(0)),
        st.tuples(st.just("flush"), st.just(0)),
    ),
    max_size=60,
)


@given(_STEPS, st.sampled_from([0.0, 1e-9, 1e-4]))
def test_every_connection_gets_what_was_sent_in_its_order(
    steps: Sequence[tuple[str, int]], busy_poll_seconds: float
) -> None:
    async def play() -> None:
        shared = Traffic()
        shared.busy_poll_seconds = busy_poll_seconds
        transports = [MemoryTransport() for _ in range(3)]
        sent = [b""] * 3
        for number, (step, which) in enumerate(steps):
            if step == "come":
                for _ in range(which):
                    shared.came()
            elif step == "send":
                piece = b"%d," % number
                shared.send(transports[which], piece)
                sent[which] += piece
            elif step == "turn":
                await _turn()
            else:
                shared.flush()
            assert all(
                whole.startswith(transport.written)
                for whole, transport in zip(sent, transports, strict=True)
            )
        for _ in range(_TURNS):
            await _turn()
        assert [bytes(transport.written) for transport in transports] == sent

    asyncio.run(play())


async def test_dense_traffic_is_awaited_awake_and_its_end_is_slept_through() -> None:
    shared = Traffic()
    shared.busy_poll_seconds = 0.005
    await _come(shared)
    assert not shared._is_polling, "a lone piece tells nothing of the next"
    await _come(shared)
    assert shared._is_polling
    async with asyncio.timeout(60):
        while shared._is_polling:
            await _turn()


async def test_nobody_stays_awake_for_a_slow_source() -> None:
    shared = Traffic()
    shared.busy_poll_seconds = 10.0
    for _ in range(10):
        shared.came(slow=True)
        await _turn()
    assert not shared._is_polling


async def test_who_wants_no_busy_polling_has_none() -> None:
    shared = Traffic()
    for _ in range(10):
        await _come(shared)
        assert not shared._is_polling


def test_every_loop_has_its_own() -> None:
    async def mine() -> Traffic:
        assert traffic() is traffic()
        return traffic()

    first, second = asyncio.run(mine()), asyncio.run(mine())
    assert first is not second


@pytest.mark.parametrize("busy_poll_seconds", [0.0, 0.001])
async def test_clients_that_ask_together_all_get_their_answer(busy_poll_seconds: float) -> None:
    """Kept connections, ones that end with their answer, and requests sent in a row."""
    edge = make_edge(ScriptedPipeline(script=HELLO))
    live = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n%b\r\n"
    closing = live % b"connection: close\r\n"
    kinds = [(wire(ASK), 1), (wire(ASK) + live % b"" + closing, 3), (closing, 1)]
    async with serving(edge, busy_poll_seconds=busy_poll_seconds) as port:
        assert traffic().busy_poll_seconds == busy_poll_seconds

        async def ask(request: bytes, answers: int) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            data = b""
            while data.count(b"HTTP/1.1 200 OK") < answers or not data.endswith(b"}"):
                piece = await reader.read(65536)
                assert piece, data
                data += piece
            writer.close()
            return data

        async with asyncio.timeout(60):
            found = await asyncio.gather(*(ask(*kinds[number % 3]) for number in range(48)))
    for number, data in enumerate(found):
        last = json.loads(data.rpartition(b"\r\n\r\n")[2])
        assert last == {"status": "live"} if number % 3 else last["object"] == "chat.completion"
