"""What vLLM publishes of its caches: every encoding, and every way that it may arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
from casekit import each_of, examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from kvkit import ENCODINGS, EngineCache, Publisher, two_ports, until

from causerie.engines.pool import kv_events, members
from causerie.engines.pool.kv_events import (
    BLOCK,
    KvEndpoint,
    KvView,
    PrefixIndex,
    UnreadableEvents,
    chain,
    decoded_events,
)
from causerie.engines.pool.members import BOTH, KV_EVENTS, SENT, MemberCache

PROMPT = [at // 7 for at in range(160)]
OTHER = [9, *PROMPT[1:]]


def held(index: PrefixIndex, name: str, tokens: list[int]) -> int:
    return index.runs(chain(tokens)).get(name, 0)


@each_of("size", [16, 64])
@each_of("encoding", ENCODINGS)
def test_every_encoding_says_the_same(encoding: str, size: int) -> None:
    index, cache = PrefixIndex(10_000), EngineCache(encoding, size)
    view = KvView(index, "a", "m")
    batches = [
        cache.read(PROMPT[:64]), cache.read(PROMPT), cache.read(OTHER),
        cache.evict(PROMPT[:128]), cache.evict(PROMPT[:128]),
    ]  # fmt: skip
    for number, events in enumerate(batches):
        view.receive(number, decoded_events(cache.batch(events)))
    whole = len(PROMPT) // size * size // BLOCK
    assert view.complete
    assert view.block_size == size
    assert (held(index, "a", PROMPT), held(index, "a", OTHER)) == ((128 - size) // BLOCK, whole)
    assert len(view) == 2 * whole - size // BLOCK
    view.receive(len(batches), decoded_events(cache.batch(cache.clear())))
    assert (held(index, "a", OTHER), len(view), view.complete) == (0, 0, True)


@each_of(
    "more",
    [
        {"medium": "CPU"},
        {"lora_name": "x", "lora_id": 1},
        {"extra_keys": [["image"]]},
        {"kv_cache_spec_kind": "sliding_window"},
        {"group_idx": 3},
    ],
)
def test_blocks_that_no_prompt_of_text_is_read_from_are_left_out(more: dict[str, Any]) -> None:
    index, cache = PrefixIndex(10_000), EngineCache()
    view = KvView(index, "a", "m")
    hashes = [cache.hash(OTHER[:16])]
    events = [*cache.read(PROMPT), cache.stored(hashes, None, OTHER[:16], **more)]
    view.receive(0, decoded_events(cache.batch(events)))
    assert (held(index, "a", PROMPT), held(index, "a", OTHER)) == (10, 0)


def test_blocks_of_a_scope_are_held_for_that_scope_alone() -> None:
    """vLLM names the salt at the first block of a prompt."""
    index, engine = PrefixIndex(10_000), EngineCache()
    cache = MemberCache(index, "m", [])
    view = KvView(index, "m", "m")
    hashes = [engine.hash(PROMPT[:end]) for end in (16, 32, 48)]
    salted = [["a"], None]
    events = [
        engine.stored(hashes[:2], None, PROMPT[:32], extra_keys=salted),
        engine.stored(hashes[2:], hashes[1], PROMPT[32:48], extra_keys=[None]),
    ]
    assert not view.salted
    view.receive(0, decoded_events(engine.batch(events)))
    assert view.salted
    found = {scope: index.runs(chain(PROMPT, scope)) for scope in ("", "a", "b")}
    assert {scope: cache.run(runs, scope) for scope, runs in found.items()} == {
        "": 0,
        "a": 3,
        "b": 0,
    }


@each_of(
    "payload",
    [
        b"", b"\x93", b"\xc0", b"nonsense",
        msgspec.msgpack.encode({"ts": 1.0}),
        msgspec.msgpack.encode([1.0, [["BlockMoved", [1]]]]),
        msgspec.msgpack.encode([1.0, [["BlockStored", ["text"], None, [], 16]]]),
        msgspec.msgpack.encode([1.0, [{"type": "BlockRemoved"}]]),
    ],
)  # fmt: skip
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(UnreadableEvents):
        decoded_events(payload)


@pytest.mark.parametrize(("size", "tokens"), [(24, 24), (16, 31), (0, 0), (16, -1)])
def test_blocks_that_cannot_be_compared_are_refused(size: int, tokens: int) -> None:
    cache = EngineCache(size=size)
    content = [1] * tokens if tokens >= 0 else [-1] * 16
    view = KvView(PrefixIndex(100), "a", "m")
    batch = decoded_events(cache.batch([cache.stored([b"1"], None, content)]))
    with pytest.raises(UnreadableEvents):
        view.receive(0, batch)


PATHS = st.sampled_from([[0], [0, 0], [0, 1], [0, 0, 1]])


class Arrivals(RuleBasedStateMachine):
    """A cache, and a view of it from which batches are kept, or which gets some twice.

    The view never holds what the cache did not, and all of it where it is complete.
    """

    @initialize(kept=st.integers(0, 6), encoding=st.sampled_from(ENCODINGS))
    def begin(self, kept: int, encoding: str) -> None:
        self.index = PrefixIndex(100_000)
        self.view = KvView(self.index, "a", "m")
        self.kept, self.encoding = kept, encoding
        self.clock, self.losing = 0.0, False
        self.paths: set[tuple[int, ...]] = set()
        self.restart()

    @rule(what=st.sampled_from(["clear", "restart", "lose", "keep"]))
    def upset(self, what: str) -> None:
        if what == "restart":
            self.restart()
        elif what == "clear":
            self.publish(self.cache.clear())
        else:
            self.losing = what == "lose"

    def restart(self) -> None:
        self.view.forget()  # its connection has ended
        self.cache = EngineCache(self.encoding)
        self.log: list[tuple[bytes, frozenset[tuple[int, ...]]]] = []

    @rule(path=PATHS)
    def read(self, path: list[int]) -> None:
        tokens = [letter for letter in path for _ in range(BLOCK)]
        self.paths.update(tuple(tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK))
        self.publish(self.cache.read(tokens))

    @rule(path=PATHS)
    def evict(self, path: list[int]) -> None:
        self.publish(self.cache.evict([letter for letter in path for _ in range(BLOCK)]))

    @rule(back=st.integers(1, 3))
    def again(self, back: int) -> None:
        """Deliver a batch that the view has got, or has missed before a later one."""
        number = len(self.log) - 1 - back
        if number >= 0 and self.view._next_batch == len(self.log):
            self.arrive(number)

    def publish(self, events: list[Any]) -> None:
        if events:
            self.clock += 1
            payload = self.cache.batch(events, self.clock)
            self.log.append((payload, frozenset(+self.cache.blocks)))
            if not self.losing:
                self.arrive(len(self.log) - 1)

    def arrive(self, number: int) -> None:
        batch = decoded_events(self.log[number][0])
        first = self.view.missing(number, batch)
        if first is not None:  # all but the oldest are sent again
            for at in range(max(first, len(self.log) - self.kept), len(self.log)):
                self.view.receive(at, decoded_events(self.log[at][0]))
        self.view.receive(number, batch)
        truth = self.log[(self.view._next_batch or 0) - 1][1]
        for path in self.paths:
            has = bool(self.index.runs(chain(path)[-1:]).get("a"))
            assert has <= (path in truth)
            assert has or not self.view.complete or path not in truth


Arrivals.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestArrivals = Arrivals.TestCase


@asynccontextmanager
async def followed(*publishers: Publisher, replay: bool = True) -> AsyncIterator[MemberCache]:
    """The cache of a member ``m`` that publishes like this, and is listened to."""
    async with AsyncExitStack() as there:
        for one in publishers:
            await there.enter_async_context(one.listening())
        endpoints = [KvEndpoint(one.events, one.replay if replay else None) for one in publishers]
        cache = MemberCache(PrefixIndex(100_000), "m", endpoints)
        cache.start()
        try:
            if replay:
                await until(lambda: cache.source != SENT)
            yield cache
        finally:
            await cache.stop()


def run(cache: MemberCache, tokens: list[int]) -> int:
    return cache.run(cache._prefix_index.runs(chain(tokens)))


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_what_a_server_publishes_is_known(encoding: str) -> None:
    publisher = Publisher(EngineCache(encoding))
    cache = publisher.cache
    await_first = cache.batch(cache.read(PROMPT[:32]))
    publisher.kept.append((0, await_first))  # before anybody listened
    publisher.number = 1
    async with followed(publisher) as known:
        await until(lambda: run(known, PROMPT) == 2)
        assert known.source == KV_EVENTS
        await publisher.publish(cache.read(PROMPT))
        await until(lambda: run(known, PROMPT) == 10)
        await publisher.publish(cache.evict(PROMPT), lost=True)
        await publisher.publish(cache.read(OTHER))  # the gap is noticed, and asked for
        await until(lambda: (run(known, PROMPT), run(known, OTHER)) == (9, 10))
        assert publisher.asked == [0, 2]
        assert known.source == KV_EVENTS


async def test_a_gap_that_is_kept_nowhere_falls_back_to_what_was_sent() -> None:
    publisher = Publisher(EngineCache(), kept=1)
    async with followed(publisher) as known:
        known.enter(chain(PROMPT))
        known.leave(chain(PROMPT))
        await publisher.publish(publisher.cache.read(PROMPT[:64]))
        await until(lambda: run(known, PROMPT) == 4)
        for tokens in (PROMPT, [1] * 64, [2] * 64):
            await publisher.publish(publisher.cache.read(tokens), lost=tokens != [2] * 64)
        await until(lambda: known.source == BOTH)
        assert (run(known, PROMPT), run(known, [2] * 64), run(known, [1] * 64)) == (10, 4, 0)
        await publisher.publish(publisher.cache.clear())
        await until(lambda: known.source == KV_EVENTS)
        assert (run(known, PROMPT), run(known, [2] * 64)) == (0, 0)


async def test_a_running_request_counts_until_events_tell() -> None:
    publisher = Publisher(EngineCache())
    async with followed(publisher) as known:
        known.enter(chain(PROMPT))
        assert (known.source, run(known, PROMPT)) == (KV_EVENTS, 10)
        known.leave(chain(PROMPT))
        assert run(known, PROMPT) == 0


async def test_events_that_stop_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "_SILENCE_SECONDS", 0.02)
    loop = asyncio.get_running_loop()
    publisher = Publisher(EngineCache())
    async with followed(publisher) as known:
        known.enter(chain(PROMPT))
        began = loop.time()
        await publisher.publish(publisher.cache.read(PROMPT))
        await until(lambda: run(known, PROMPT) == 10 and bool(len(known)))
        known.expect(160, began)  # has come already
        known.expect(16, loop.time())  # fills no block for certain
        await asyncio.sleep(0.05)
        assert known.source == KV_EVENTS
        known.expect(160, loop.time())
        await until(lambda: known.source == SENT)
        assert "no KV events for" in known.failure
        assert run(known, PROMPT) == 10  # what was sent there
        await publisher.publish(publisher.cache.read(OTHER))
        # As a replay goes back to the beginning; the last batch comes behind it.
        await until(lambda: (known.source, run(known, OTHER)) == (KV_EVENTS, 10))
        assert known.failure == ""


async def test_without_a_replay_a_late_reader_knows_a_part() -> None:
    publisher = Publisher(EngineCache())
    async with followed(publisher, replay=False) as known:
        known.enter(chain(PROMPT))
        assert (known.source, known.failure, run(known, PROMPT)) == (SENT, "no KV events yet", 10)
        publisher.number = 5
        while known.source == SENT:  # until the socket has joined
            await publisher.publish(publisher.cache.read([publisher.number] * 16))
            await asyncio.sleep(0.01)
        assert (known.source, run(known, PROMPT)) == (BOTH, 10)


async def test_ranks_are_known_each_by_itself() -> None:
    ranks = [Publisher(EngineCache()), Publisher(EngineCache())]
    async with followed(*ranks) as known:
        await ranks[0].publish(ranks[0].cache.read(PROMPT))
        await until(lambda: run(known, PROMPT) == 5)  # nobody knows which rank is asked
        await ranks[1].publish(ranks[1].cache.read(PROMPT))
        await until(lambda: run(known, PROMPT) == 10)


async def test_a_server_that_starts_again_holds_nothing() -> None:
    publisher = Publisher(EngineCache())
    async with followed(publisher) as known:
        for tokens in (PROMPT, OTHER):
            await publisher.publish(publisher.cache.read(tokens))
        await until(lambda: run(known, OTHER) == 10)
        publisher.cache, publisher.number = EngineCache("0.11"), 0
        publisher.kept.clear()
        await publisher.publish(publisher.cache.read([7] * 32))
        await until(lambda: run(known, [7] * 32) == 2)
        assert (run(known, PROMPT), known.source) == (0, KV_EVENTS)


async def test_another_server_at_the_same_place_holds_nothing_of_the_first() -> None:
    port = two_ports()
    one, other = Publisher(EngineCache()), Publisher(EngineCache())
    async with AsyncExitStack() as there:
        async with one.listening(port=port):
            endpoint = KvEndpoint(one.events, one.replay)
            known = MemberCache(PrefixIndex(100_000), "m", [endpoint])
            there.push_async_callback(known.stop)
            known.start()
            await until(lambda: known.source == KV_EVENTS)
            await one.publish(one.cache.read(PROMPT))
            await until(lambda: run(known, PROMPT) == 10)
        await until(lambda: known.source == SENT)
        assert (known.failure, len(known)) == ("the connection to its KV events has ended", 0)
        await there.enter_async_context(other.listening(port=port))
        await other.publish(other.cache.read(OTHER[:16]))  # nobody is there yet
        while known.source == SENT:
            await other.publish(other.cache.read([*OTHER[:16], *[other.number] * 16]))
            await asyncio.sleep(0.02)
        await until(lambda: run(known, OTHER) == 1)
        assert (known.source, run(known, PROMPT)) == (KV_EVENTS, 0)


async def test_events_that_cannot_be_read_are_used_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_events, "_PAUSE_SECONDS", 0.01)
    publisher = Publisher(EngineCache())
    async with followed(publisher) as known:
        await publisher.publish(publisher.cache.read(PROMPT))
        await until(lambda: run(known, PROMPT) == 10)
        await publisher.send(b"\xc1")
        await until(lambda: "cannot be read" in known.failure)
        assert (known.source, run(known, PROMPT)) == (SENT, 0)


async def test_a_batch_that_would_take_long_is_not_read() -> None:
    publisher = Publisher(EngineCache(), kept=0)
    async with followed(publisher) as known:
        await publisher.publish(publisher.cache.read(PROMPT))
        await until(lambda: run(known, PROMPT) == 10)
        publisher.cache.blocks.clear()
        count = 1_200_000  # tokens, of a byte each
        hashes = list(range(count // 16))
        await publisher.publish([publisher.cache.stored(hashes, None, [1] * count)])
        await until(lambda: known.failure == "the connection to its KV events has ended")
        assert run(known, [1] * count) == 0
        # What follows is read again, over another connection.
        publisher.cache.blocks.clear()
        while run(known, OTHER[:16]) == 0:
            await publisher.publish(publisher.cache.read([*OTHER[:16], *[publisher.number] * 16]))
            await asyncio.sleep(0.02)
        assert run(known, PROMPT) == 0
