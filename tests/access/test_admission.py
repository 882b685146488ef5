"""Admission to one model: places, the queue in its order, and who is sent away."""

from __future__ import annotations

import asyncio

import pytest

from causerie.access.admission import SlotQueue
from causerie.errors import InvalidRequest, Overloaded


class Model:
    """As many places as the test says, and who is inside."""

    def __init__(self, slots: int, *, max_waiting: int = 10, max_wait_seconds: float = 30) -> None:
        self.slots = slots
        self.gate = SlotQueue("m", lambda: self.slots, max_waiting, max_wait_seconds)
        self.inside: list[str] = []
        self.leave: dict[str, asyncio.Event] = {}

    async def attempt(self, name: str, places: int = 1) -> float:
        leave = self.leave[name] = asyncio.Event()
        async with self.gate.enter(places) as entry:
            self.inside.append(name)
            try:
                await leave.wait()
            finally:
                self.inside.remove(name)
        return entry


async def turn() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_places_then_a_queue_in_order() -> None:
    model = Model(2)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(model.attempt(name)) for name in "abcd"]
        await turn()
        assert (model.inside, model.gate.waiting) == (["a", "b"], 2)
        model.leave["b"].set()
        await turn()
        assert (model.inside, model.gate.waiting) == (["a", "c"], 1)
        for name in "acd":
            model.leave[name].set()
    assert [task.result() > 0 for task in tasks] == [False, False, True, True]


async def test_nobody_overtakes_whoever_needs_more_places() -> None:
    model = Model(2)
    async with asyncio.TaskGroup() as group:
        for name, places in (("a", 1), ("wide", 2), ("c", 1)):
            group.create_task(model.attempt(name, places))
        await turn()
        assert model.inside == ["a"]
        model.leave["a"].set()
        await turn()
        assert model.inside == ["wide"]
        model.leave["wide"].set()
        await turn()
        assert model.inside == ["c"]
        model.leave["c"].set()


def sharing(max_wait_seconds: float = 30) -> SlotQueue:
    return SlotQueue("m", lambda: 4, 10, max_wait_seconds, lambda: 1000)


async def test_requests_that_share_a_cache_wait_in_order_for_the_tokens_that_they_need() -> None:
    queue, inside = sharing(), list[int]()
    leave = {tokens: asyncio.Event() for tokens in (600, 900, 300)}

    async def attempt(tokens: int) -> None:
        async with queue.reserve(1, tokens):
            inside.append(tokens)
            await leave[tokens].wait()

    async with asyncio.TaskGroup() as group:
        tasks = {tokens: group.create_task(attempt(tokens)) for tokens in leave}
        await turn()
        assert (inside, queue.waiting, queue.spares) == ([600], 2, False)
        _ = tasks[900].cancel()
        await turn()
        assert (inside, queue.waiting) == ([600, 300], 0)
        for event in leave.values():
            event.set()
    async with queue.reserve(2, 500):
        assert queue.spares


async def test_who_waits_too_long_for_tokens_is_told_when_to_come_back() -> None:
    queue = sharing(max_wait_seconds=0.01)
    async with queue.reserve(1, 600):
        with pytest.raises(Overloaded, match="no room for 500 tokens in its cache became free"):
            async with queue.reserve(1, 500):
                pass
        async with queue.reserve(1, 400):
            pass


async def test_choices_that_a_cache_never_holds_are_refused() -> None:
    queue = sharing()
    with pytest.raises(InvalidRequest, match=r"`n` is 3.* 400 tokens .* holds 1000"):
        async with queue.reserve(3, 400):
            pass
    async with Model(1).gate.reserve(3, 400):
        pass


async def test_a_full_queue_is_said_at_once() -> None:
    model = Model(1, max_waiting=1)
    async with asyncio.TaskGroup() as group:
        for name in "ab":
            group.create_task(model.attempt(name))
        await turn()
        with pytest.raises(Overloaded, match=r"its queue \(at most 1\) is full") as refused:
            await model.attempt("c")
        assert refused.value.code == "queue_full"
        assert int(refused.value.headers["Retry-After"]) >= 1
        for name in "ab":
            model.leave[name].set()


async def test_who_waits_too_long_is_sent_away_and_leaves_no_trace() -> None:
    model = Model(1, max_wait_seconds=0.01)
    async with asyncio.TaskGroup() as group:
        group.create_task(model.attempt("a"))
        await turn()
        with pytest.raises(Overloaded, match=r"no place became free in 0\.01 s"):
            await model.attempt("b")
        assert model.gate.waiting == 0
        model.leave["a"].set()
    async with model.gate.enter():
        pass


@pytest.mark.parametrize("turns", range(4))
async def test_who_gives_up_passes_the_place_on(turns: int) -> None:
    model = Model(1)
    async with asyncio.TaskGroup() as group:
        group.create_task(model.attempt("a"))
        await turn()
        waiting = group.create_task(model.attempt("b"))
        group.create_task(model.attempt("c"))
        await turn()
        model.leave["a"].set()
        for _ in range(turns):  # until just before, while and after the place is handed over
            await asyncio.sleep(0)
        waiting.cancel()
        await turn()
        assert model.inside == ["c"]
        model.leave["c"].set()
    async with model.gate.enter():
        pass


async def test_more_than_there_are_is_the_requests_mistake() -> None:
    with pytest.raises(InvalidRequest, match="`n` is 3, but this model answers 2"):
        await Model(2).attempt("a", 3)


async def test_a_failure_inside_gives_the_place_back() -> None:
    gate = Model(1).gate
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with gate.enter():
                raise ZeroDivisionError


async def test_slots_that_come_later_are_given_to_those_who_wait() -> None:
    model = Model(1)
    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(model.attempt(name))
        await turn()
        model.slots = 4
        group.create_task(model.attempt("d"))
        await turn()
        assert sorted(model.inside) == ["a", "b", "c", "d"]
        for name in "abcd":
            model.leave[name].set()


async def test_a_model_without_slots_yet_takes_one() -> None:
    model = Model(0)
    async with model.gate.enter():
        assert not model.gate.spares
