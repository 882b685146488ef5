"""Other models in place of those there were: what is the same stays, what is gone drains."""

from __future__ import annotations

import asyncio

import pytest
from test_fleet import Ship, Yard, entry, states

from causerie.engines import fleet
from causerie.engines.base import EngineState, TextRequest
from causerie.engines.fleet import Fleet
from causerie.engines.registry import FakeScript


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "LEAVING_SECONDS", 0.001)


async def test_an_equal_recipe_keeps_the_engine() -> None:
    yard = Yard([Ship("a")])
    async with Fleet([entry(yard, recipe="r")]) as fleet:
        engine = fleet.engine("a")
        await engine.facts()
        fleet.replace([entry(yard, recipe="r", slots=7)])
        assert fleet.engine("a") == engine
        await fleet.engine("a").facts()
        assert (yard.made, states(fleet)) == (1, [EngineState.READY])


async def test_a_new_idle_time_holds_for_a_loaded_engine() -> None:
    ship = Ship("a")
    yard = Yard([ship])
    async with Fleet([entry(yard, recipe="r")]) as fleet:
        await fleet.engine("a").facts()
        fleet.replace([entry(yard, recipe="r", idle_seconds=0.001)])
        await ship.stopped.wait()


async def test_another_recipe_is_another_engine_and_the_old_one_ends() -> None:
    first, second = Ship("a"), Ship("a", slots=9)
    yard = Yard([first, second])
    async with Fleet([entry(yard)]) as fleet:
        engine = fleet.engine("a")
        await engine.facts()
        fleet.replace([entry(yard)])
        assert fleet.engine("a") != engine
        await first.stopped.wait()
        await fleet.engine("a").facts()
        assert fleet.engine("a").slots == 9


async def test_a_removed_model_goes_on_for_those_who_use_it() -> None:
    gate = asyncio.Semaphore(0)
    ship = Ship("a", script=FakeScript(replies=["ab"], gate=gate))
    async with Fleet([entry(Yard([ship]))]) as fleet:
        engine = fleet.engine("a")
        async with engine.generate(TextRequest(prompt=(1,), max_tokens=5)) as outputs:
            fleet.replace([])
            assert states(fleet) == []
            with pytest.raises(KeyError):
                fleet.engine("a")
            for _ in range(5):
                gate.release()
            assert [output async for output in outputs]
            assert not ship.stopping.is_set()
        await ship.stopped.wait()


async def test_who_comes_late_to_a_removed_model_is_served_and_it_ends_again() -> None:
    first, second = Ship("a"), Ship("a")
    async with Fleet([entry(Yard([first, second]))]) as fleet:
        engine = fleet.engine("a")
        await engine.facts()
        fleet.replace([])
        await first.stopped.wait()
        await engine.facts()
        await second.stopped.wait()


async def test_a_load_for_nobody_ends_when_its_model_is_removed() -> None:
    ship = Ship("a", may_start=asyncio.Event())
    async with Fleet([entry(Yard([ship]), preload=True)]) as fleet:
        await ship.starting.wait()
        fleet.replace([])
        await ship.stopped.wait()
        assert not ship.started.is_set()


async def test_a_new_model_is_loaded_at_once_where_it_says_so() -> None:
    ship = Ship("b")
    async with Fleet([]) as fleet:
        fleet.replace([entry(Yard([ship]), model="b", preload=True)])
        await ship.started.wait()


async def test_what_is_leaving_counts_until_it_is_gone() -> None:
    """The memory of an engine that is being used is not given to another one."""
    gate = asyncio.Semaphore(0)
    old = Ship("a", memory_bytes=8, script=FakeScript(replies=["ab"], gate=gate))
    new = Ship("b", memory_bytes=8)
    async with Fleet([entry(Yard([old]))], memory_budget=10) as fleet, asyncio.TaskGroup() as group:
        engine = fleet.engine("a")
        async with engine.generate(TextRequest(prompt=(1,), max_tokens=5)):
            fleet.replace([entry(Yard([new]), model="b", recipe="b")], memory_budget=10)
            loading = group.create_task(fleet.engine("b").facts())
            while states(fleet) != [EngineState.LOADING]:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not new.starting.is_set()
        await loading
        assert old.stopped.is_set()


async def test_a_fleet_that_ends_ends_what_is_leaving() -> None:
    ship = Ship("a")
    async with Fleet([entry(Yard([ship]))]) as fleet:
        await fleet.engine("a").facts()
        fleet.replace([])
    assert ship.stopped.is_set()
    fleet.replace([entry(Yard([]), preload=True)])
    assert states(fleet) == [EngineState.ABSENT]
