"""Prompts that left their slots: what is kept, what is dropped, and which slot is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from casekit import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from causerie.engines.base import EngineFailed
from causerie.engines.llamacpp import slots
from causerie.engines.llamacpp.slots import (
    LEAST_TOKENS,
    PromptStore,
    Slots,
    can_store_prompts,
    prompt_files_folder,
)
from causerie.engines.prefill import common_tokens, packed, token_count

pytestmark = pytest.mark.skipif(not can_store_prompts(), reason="needs files of anonymous memory")

_TOKENS = st.lists(st.integers(0, 3), max_size=30)
BYTES = 10  # of a token
ENOUGH = 100_000  # tokens: a cache that nobody has to leave


class Writer:
    """An engine that writes ``BYTES`` for each token of a slot, or fails."""

    def __init__(self) -> None:
        self.held: dict[int, bytes] = {}
        self.asked: list[str] = []
        self.failing = False

    async def ask(self, method: str, path: str, body: Any = None) -> None:
        assert method == "POST"
        self.asked.append(path)
        if self.failing:
            raise EngineFailed("the engine answered 500")
        slot, action = path.removeprefix("/slots/").split("?action=")
        if action == "erase":
            self.held.pop(int(slot), None)
            return
        file = Path(prompt_files_folder("self"), body["filename"])
        if action == "save":
            file.write_bytes(b"x" * BYTES * token_count(self.held[int(slot)]))
        assert file.stat().st_size

    async def turn(self, slots: Slots, prompt: list[int], made: int = 2, room: int = 2) -> int:
        """Take a slot, read the prompt and generate; return the tokens that were there."""
        async with slots.hold(self, prompt, room) as slot:
            shared = slot.read
            slot.read = len(prompt)
            slot.made += range(made)
            slot.finished = True
        self.held[slot.id] = slot.tokens
        return shared


def prompt(start: int, count: int = 100) -> list[int]:
    return list(range(start, start + count))


@given(_TOKENS, _TOKENS)
def test_common_tokens(one: list[int], other: list[int]) -> None:
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    assert common_tokens(packed(one), packed(other)) == shared


async def test_states_make_room_for_newer_ones() -> None:
    engine, store = Writer(), PromptStore(250 * BYTES, BYTES)
    for start in (1000, 2000, 3000):
        engine.held[0] = packed(prompt(start))
        await store.save(engine, 0, "", engine.held[0])
    assert store.size == 200 * BYTES
    assert [store.covers("", packed(prompt(start))) for start in (1000, 2000, 3000)] == [
        False,
        True,
        True,
    ]
    store.close()
    assert store.size == 0


async def test_a_state_that_goes_on_takes_the_place_of_its_beginning() -> None:
    engine, store = Writer(), PromptStore(10_000 * BYTES, BYTES)
    for count in (100, 200):
        engine.held[0] = packed(prompt(1000, count))
        await store.save(engine, 0, "", engine.held[0])
    assert store.size == 200 * BYTES
    await store.save(engine, 0, "", packed(prompt(1000, 150)))
    assert len(engine.asked) == 2  # it is covered
    store.close()


async def test_what_is_short_or_does_not_fit_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, store = Writer(), PromptStore(99 * BYTES, BYTES)
    await store.save(engine, 0, "", packed(prompt(1000, LEAST_TOKENS - 1)))
    await store.save(engine, 0, "", packed(prompt(1000, 100)))
    monkeypatch.setattr(slots, "free_memory", lambda: 90 * BYTES)
    await store.save(engine, 0, "", packed(prompt(1000, 80)))
    assert engine.asked == []


async def test_a_state_that_cannot_be_copied_costs_nothing() -> None:
    engine, store = Writer(), PromptStore(10_000 * BYTES, BYTES)
    slots = Slots(1, ENOUGH, store)
    await engine.turn(slots, prompt(1000))
    engine.failing = True
    assert await engine.turn(slots, prompt(5000)) == 0
    assert store.size == 0
    engine.failing = False
    await engine.turn(slots, prompt(1000))
    assert store.size == 101 * BYTES
    engine.failing = True
    assert await engine.turn(slots, prompt(5000)) == 0
    assert store.size == 0
    store.close()


async def test_conversations_that_take_turns_find_their_prompts() -> None:
    engine, store = Writer(), PromptStore(10_000 * BYTES, BYTES)
    slots = Slots(2, ENOUGH, store)
    for turn in range(1, 4):
        for start in (1000, 2000, 3000, 4000, 5000):
            shared = await engine.turn(slots, prompt(start, 100 * turn))
            assert shared == 100 * (turn - 1)
    store.close()


async def test_one_conversation_is_never_copied() -> None:
    engine, store = Writer(), PromptStore(10_000 * BYTES, BYTES)
    slots = Slots(4, ENOUGH, store)
    shared = [await engine.turn(slots, prompt(1, count)) for count in (10, 30, 200, 205, 400)]
    assert shared == [0, 10, 30, 200, 205]
    assert engine.asked == []


async def test_what_was_not_read_is_not_taken_for_there() -> None:
    engine, slots = Writer(), Slots(1, ENOUGH, PromptStore(0, BYTES))
    async with slots.hold(engine, prompt(1000, 300), 2) as slot:
        slot.read = 130  # and then its client left
    assert await engine.turn(slots, prompt(1000, 300)) == 130


async def test_a_request_waits_for_a_free_slot() -> None:
    engine, slots = Writer(), Slots(2, ENOUGH, PromptStore(0, BYTES))
    taken: list[int] = []

    async def third() -> None:
        async with slots.hold(engine, prompt(3000), 2) as slot:
            taken.append(slot.id)

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(slots.hold(engine, prompt(1000), 2))
        async with slots.hold(engine, prompt(2000), 2) as second:
            assert {first.id, second.id} == {0, 1}
            waits = asyncio.create_task(third())
            await asyncio.sleep(0)
            assert taken == []
        await waits
    assert taken == [second.id]


async def test_slots_that_share_a_cache_are_emptied_for_a_long_request_and_found_again() -> None:
    engine, store = Writer(), PromptStore(10_000 * BYTES, BYTES)
    slots = Slots(2, 500, store)
    for start in (1000, 2000):
        await engine.turn(slots, prompt(start, 200))
    assert engine.asked == []
    assert await engine.turn(slots, prompt(5000, 300), room=100) == 0
    assert set(engine.held) == {0}
    assert "/slots/1?action=erase" in engine.asked
    for start in (1000, 2000):
        assert await engine.turn(slots, prompt(start, 220)) == 200
    store.close()


async def test_requests_that_would_overfill_a_cache_are_refused_and_cost_nothing() -> None:
    engine = Writer()
    slots = Slots(2, 500, PromptStore(0, BYTES))
    async with slots.hold(engine, prompt(1000, 200), 100) as slot:
        slot.read = 200
        with pytest.raises(EngineFailed, match="more than the 500 tokens"):
            await engine.turn(slots, prompt(2000, 200), room=1)
        assert await engine.turn(slots, prompt(2000, 150), room=50) == 0
    assert engine.asked == []


async def test_a_request_that_was_left_counts_whole_until_its_slot_is_emptied() -> None:
    """The engine may compute for it still when the next one comes."""
    engine, store = Writer(), PromptStore(10_000 * BYTES, BYTES)
    slots = Slots(2, 500, store)
    async with slots.hold(engine, prompt(1000, 100), 300) as slot:
        slot.read = 100  # and then its client left
    engine.held[0] = slot.tokens
    await engine.turn(slots, prompt(2000, 150), room=50)
    assert engine.asked == ["/slots/0?action=save", "/slots/0?action=erase"]
    assert await engine.turn(slots, prompt(1000, 110)) == 100
    store.close()


def test_free_memory_is_the_least_of_machine_and_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine").write_text("MemTotal: 9 kB\nMemAvailable:   8 kB\n")
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setattr(slots, "_MEMORY", tmp_path / "machine")
    monkeypatch.setattr(slots, "own_groups", lambda: (own, tmp_path))
    assert slots.free_memory() == 8192
    for group, limit, used in ((tmp_path, "10000", "7000"), (own, "2500", "1000")):
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text(f"{used}\n")
    assert slots.free_memory() == 1500
    (own / "memory.max").write_text("max\n")
    assert slots.free_memory() == 3000


class Computing:
    """An engine that reuses whatever its slot has of a prompt, as llama.cpp does, of any scope."""

    def __init__(self) -> None:
        self.slots: dict[int, tuple[str, bytes]] = {}
        self.files: dict[str, tuple[str, bytes]] = {}
        self.fails_at = ""

    async def ask(self, method: str, path: str, body: Any = None) -> None:
        slot, action = path.removeprefix("/slots/").split("?action=")
        if action == self.fails_at:
            raise EngineFailed("the engine answered 500")
        if action == "erase":
            self.slots.pop(int(slot), None)
        elif action == "save":
            self.files[body["filename"]] = self.slots[int(slot)]
            Path(prompt_files_folder("self"), body["filename"]).write_bytes(b"x")
        else:
            self.slots[int(slot)] = self.files[body["filename"]]

    def read(self, slot: int, scope: str, tokens: bytes) -> int:
        """Read a prompt; return how much of it was there, which only this scope had sent."""
        before, held = self.slots.get(slot, (scope, b""))
        found = common_tokens(held, tokens)
        assert before == scope or not found, "a prompt of another scope was reused"
        self.slots[slot] = scope, tokens
        return found


class Scopes(RuleBasedStateMachine):
    """Projects take turns with prompts that begin alike, and some of their requests fail.

    Nothing of one is reused for another, whatever the engine and the store do.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.engine, self.store = Computing(), PromptStore(10_000 * BYTES, BYTES)
        self.slots = Slots(2, 900, self.store)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        with suppress(EngineFailed):
            self.runner.run(work)

    @rule(
        scope=st.sampled_from(["", "a", "b"]),
        length=st.sampled_from([3, 100, 150, 300]),
        reads=st.booleans(),
        fails_at=st.sampled_from(["", "", "", "save", "restore", "erase"]),
    )
    def turn(self, scope: str, length: int, reads: bool, fails_at: str) -> None:
        async def turn() -> None:
            self.engine.fails_at = fails_at
            said = prompt(1000, length)
            async with self.slots.hold(self.engine, said, 10, scope) as slot:
                if reads:
                    found = self.engine.read(slot.id, scope, packed(said))
                    assert slot.read <= found or not slot.read
                    slot.read, slot.finished = length, True

        self.run(turn())

    def teardown(self) -> None:
        self.store.close()
        self.runner.close()


Scopes.TestCase.settings = settings(
    max_examples=examples(100), stateful_step_count=20, deadline=None
)
TestScopes = Scopes.TestCase


async def test_a_scope_finds_its_own_prompt_and_no_other() -> None:
    engine, store = Writer(), PromptStore(10_000 * BYTES, BYTES)
    slots = Slots(1, ENOUGH, store)
    shared: list[int] = []
    for scope in ("a", "b", "a", "b", ""):
        async with slots.hold(engine, prompt(1000), 2, scope) as slot:
            shared.append(slot.read)
            slot.read, slot.finished = 100, True
        engine.held[slot.id] = slot.tokens
    assert shared == [0, 0, 100, 100, 0]
    store.close()
