"""Several engines: loaded on demand, shared, unloaded, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from causerie.engines import fleet
from causerie.engines.base import EngineFailed, EngineState, LoadFailed, Stopped, TextRequest
from causerie.engines.fleet import NOT_LOADED, Fleet, FleetEntry, ManagedEngine
from causerie.engines.registry import FakeEngine, FakeScript


def opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class Ship(FakeEngine):
    """An engine whose start and stop wait for the test, which sees them."""

    may_start: asyncio.Event = field(default_factory=opened)
    may_stop: asyncio.Event = field(default_factory=opened)
    starting: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    fails: str = ""

    async def start(self) -> None:
        self.starting.set()
        await self.may_start.wait()
        if self.fails:
            raise EngineFailed(self.fails)
        await FakeEngine.start(self)
        self.started.set()

    async def stop(self) -> None:
        self.stopping.set()
        await self.may_stop.wait()
        await FakeEngine.stop(self)
        self.stopped.set()


@dataclass
class Yard:
    """Makes ships: the given ones, in turn. ``made`` counts them."""

    ships: list[Ship]
    made: int = 0

    async def __call__(self) -> ManagedEngine:
        self.made += 1
        return self.ships[self.made - 1]


def entry(make: Callable[[], Awaitable[ManagedEngine]], **rest: object) -> FleetEntry:
    options = {"model": "a", **rest}
    return FleetEntry(make=make, **options)


@pytest.fixture
def single_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step of a request is followed by another one."""
    monkeypatch.setattr(fleet, "LEAVING_SECONDS", 0.0)


@pytest.fixture
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that failed is tried again at once."""
    monkeypatch.setattr(fleet, "FIRST_DELAY", 0.0)


def states(fleet: Fleet) -> list[EngineState]:
    return [status.state for status in fleet.status()]


async def test_it_loads_on_demand_and_shares_one_load() -> None:
    ship = Ship("a", may_start=asyncio.Event(), slots=3)
    yard = Yard([ship])
    async with Fleet([entry(yard, slots=9)]) as fleet:
        assert states(fleet) == [EngineState.ABSENT]
        assert fleet.engine("a").slots == 9
        async with asyncio.TaskGroup() as group:
            first = group.create_task(fleet.engine("a").facts())
            second = group.create_task(fleet.engine("a").tokenize(["x"], special=False))
            await ship.starting.wait()
            ship.may_start.set()
        assert first.result().parallel == 3
        assert second.result() == [120]
        assert yard.made == 1
        assert fleet.engine("a").slots == 3
        assert states(fleet) == [EngineState.READY]
    assert ship.stopped.is_set()


async def test_a_loaded_model_is_not_loaded_again() -> None:
    yard = Yard([Ship("a")])
    async with Fleet([entry(yard, preload=True)]) as fleet:
        await fleet.engine("a").load()
        await fleet.engine("a").load()
        await fleet.engine("a").facts()
    assert yard.made == 1


@pytest.mark.usefixtures("no_delay")
async def test_the_log_tells_of_a_load_that_fails_unless_somebody_else_does() -> None:
    async def broken() -> ManagedEngine:
        raise EngineFailed("not a model file")

    with capture_logs() as logged:
        async with Fleet([entry(broken)]) as fleet:
            with pytest.raises(LoadFailed, match="not a model file"):
                await fleet.engine("a").load()
            assert logged == []
            with pytest.raises(LoadFailed):
                await fleet.engine("a").facts()
    (line,) = logged
    assert (line["event"], line["why"]) == (NOT_LOADED, "not a model file")


async def test_an_unknown_model_is_refused() -> None:
    async with Fleet([entry(Yard([]))]) as fleet:
        with pytest.raises(KeyError):
            fleet.engine("b")


async def test_a_load_raises_why_the_preload_failed() -> None:
    ship = Ship("a", fails="not a model")
    async with Fleet([entry(Yard([ship]), preload=True)]) as fleet:
        with pytest.raises(EngineFailed, match="not a model"):
            await fleet.engine("a").load()
        (status,) = fleet.status()
        assert status.state is EngineState.FAILED
        assert status.detail == "not a model"
    assert ship.stopped.is_set()  # it may have got half way


async def test_a_failed_load_is_not_tried_again_at_once() -> None:
    yard = Yard([Ship("a", fails="no memory"), Ship("a")])
    async with Fleet([entry(yard)]) as fleet:
        with pytest.raises(EngineFailed, match="no memory"):
            await fleet.engine("a").facts()
        with pytest.raises(EngineFailed, match="no memory") as again:
            await fleet.engine("a").facts()
        assert 0 < again.value.retry_after <= 1
        assert yard.made == 1


@pytest.mark.usefixtures("no_delay")
async def test_a_failed_load_is_tried_again_later() -> None:
    yard = Yard([Ship("a", fails="no memory"), Ship("a")])
    async with Fleet([entry(yard)]) as fleet:
        with pytest.raises(EngineFailed, match="no memory"):
            await fleet.engine("a").facts()
        await fleet.engine("a").facts()
        assert [(status.state, status.detail) for status in fleet.status()] == [
            (EngineState.READY, "")
        ]


async def test_what_fails_unexpectedly_shows_too() -> None:
    async def broken() -> ManagedEngine:
        raise RuntimeError("a bug")

    async with Fleet([entry(broken)]) as fleet:
        with pytest.raises(RuntimeError, match="a bug"):
            await fleet.engine("a").facts()
        (status,) = fleet.status()
        assert (status.state, status.detail) == (EngineState.FAILED, "a bug")


async def test_a_request_does_not_wait_longer_than_it_may() -> None:
    ship = Ship("a", may_start=asyncio.Event())
    async with Fleet([entry(Yard([ship]), wait_seconds=0.01)]) as fleet:
        with pytest.raises(EngineFailed, match="still being loaded") as failure:
            await fleet.engine("a").facts()
        assert failure.value.loading
        assert states(fleet) == [EngineState.LOADING]
        ship.may_start.set()
        await ship.started.wait()  # the load went on


async def test_leaving_ends_a_load_and_who_waits_for_it() -> None:
    ship = Ship("a", may_start=asyncio.Event())
    fleet = Fleet([entry(Yard([ship]))])
    async with asyncio.TaskGroup() as group, fleet:
        waiting = group.create_task(told(fleet))
        await ship.starting.wait()
    assert waiting.result() == "the service is being stopped"
    assert ship.stopped.is_set()
    assert await told(fleet) == "the service is being stopped"


async def told(fleet: Fleet) -> str:
    with pytest.raises(EngineFailed) as failure:
        await fleet.engine("a").facts()
    return str(failure.value)


async def test_cancelling_one_request_leaves_the_load_to_the_others() -> None:
    ship = Ship("a", may_start=asyncio.Event())
    async with Fleet([entry(Yard([ship]))]) as fleet, asyncio.TaskGroup() as group:
        first = group.create_task(fleet.engine("a").facts())
        second = group.create_task(fleet.engine("a").facts())
        await ship.starting.wait()
        first.cancel()
        ship.may_start.set()
        assert (await second).context_length == 8192
    assert first.cancelled()


@pytest.mark.usefixtures("single_steps")
async def test_an_idle_model_is_unloaded_and_comes_back() -> None:
    first, second = Ship("a"), Ship("a")
    yard = Yard([first, second])
    async with Fleet([entry(yard, idle_seconds=0.001)]) as fleet:
        await fleet.engine("a").facts()
        await first.stopped.wait()
        assert states(fleet) == [EngineState.ABSENT]
        await fleet.engine("a").facts()
        assert yard.made == 2


async def test_a_load_makes_the_facts_known() -> None:
    """A list of models need not wait for the first request."""
    async with Fleet([entry(Yard([Ship("a")]), preload=True)]) as fleet:
        await fleet.engine("a").load()
        assert fleet.engine("a").known is not None


async def test_a_model_that_has_lost_what_it_was_made_of_is_made_anew() -> None:
    first, second = Ship("a"), Ship("a")
    yard = Yard([first, second])
    async with Fleet([entry(yard)]) as fleet:
        await fleet.engine("a").facts()
        await FakeEngine.stop(first)  # it gives up by itself
        assert states(fleet) == [EngineState.ABSENT]
        await fleet.engine("a").facts()
        assert first.stopped.is_set()
        assert states(fleet) == [EngineState.READY]
    assert yard.made == 2


@pytest.mark.usefixtures("single_steps")
async def test_a_model_that_comes_back_waits_for_its_own_end() -> None:
    first, second = Ship("a", may_stop=asyncio.Event()), Ship("a")
    async with Fleet([entry(Yard([first, second]), idle_seconds=0.001)]) as fleet:
        await fleet.engine("a").facts()
        await first.stopping.wait()
        async with asyncio.TaskGroup() as group:
            again = group.create_task(fleet.engine("a").facts())
            await asyncio.sleep(0)
            assert not second.starting.is_set()
            first.may_stop.set()
        assert again.result().parallel == second.slots


async def test_a_model_that_generates_is_not_idle() -> None:
    gate = asyncio.Semaphore(0)
    ship = Ship("a", FakeScript(["abc"], gate=gate))
    async with Fleet([entry(Yard([ship]), idle_seconds=0.0)]) as fleet:
        async with fleet.engine("a").generate(TextRequest([1], 10)) as output:
            await anext(output)
            for _ in range(5):  # an idle timer would have run by now
                await asyncio.sleep(0)
            assert not ship.stopping.is_set()
            for _ in range(4):
                gate.release()
            last = [item async for item in output][-1]
        assert isinstance(last, Stopped)
        await ship.stopped.wait()


@pytest.mark.usefixtures("single_steps")
async def test_leaving_waits_for_an_unload_under_way() -> None:
    ship = Ship("a", may_stop=asyncio.Event())
    fleet = Fleet([entry(Yard([ship]), idle_seconds=0.0)])
    async with asyncio.TaskGroup() as group, fleet:
        await fleet.engine("a").facts()
        await ship.stopping.wait()
        group.create_task(let_go(ship))
    assert ship.stopped.is_set()


async def let_go(ship: Ship) -> None:
    ship.may_stop.set()


def three(budget: int) -> tuple[Fleet, dict[str, Ship]]:
    """Three models of 40 bytes each."""
    ships = {name: Ship(name, memory_bytes=40) for name in "abc"}
    entries = [entry(Yard([ship, ship]), model=name) for name, ship in ships.items()]
    return Fleet(entries, memory_budget=budget), ships


@pytest.mark.usefixtures("single_steps")
async def test_the_least_recently_used_makes_room() -> None:
    fleet, ships = three(budget=100)
    async with fleet:
        for model in "aba":
            await fleet.engine(model).facts()
        await fleet.engine("c").facts()
        assert ships["b"].stopped.is_set()
        assert states(fleet) == [EngineState.READY, EngineState.ABSENT, EngineState.READY]


async def test_who_generates_is_waited_for() -> None:
    fleet, ships = three(budget=50)
    ships["a"].script = FakeScript(["abc"], gate=asyncio.Semaphore(0))
    async with fleet, asyncio.TaskGroup() as group:
        async with fleet.engine("a").generate(TextRequest([1], 10)) as output:
            await anext(output)
            waiting = group.create_task(fleet.engine("b").facts())
            for _ in range(10):
                await asyncio.sleep(0)
            assert not ships["a"].stopping.is_set()
            assert not ships["b"].starting.is_set()
        await waiting
        assert ships["a"].stopped.is_set()


async def test_a_request_keeps_its_model_from_step_to_step() -> None:
    fleet, ships = three(budget=50)
    async with fleet, asyncio.TaskGroup() as group:
        first = fleet.engine("a")
        await first.facts()
        waiting = group.create_task(fleet.engine("b").facts())
        for text in "ab":
            for _ in range(10):
                await asyncio.sleep(0)
            assert not ships["a"].stopping.is_set()
            await first.tokenize([text], special=False)
        async with first.generate(TextRequest([1], 10)) as output:
            assert [type(item) async for item in output][-1] is Stopped
        async with asyncio.timeout(60):  # the last step waits for nothing
            await waiting


async def test_the_end_of_one_request_is_not_that_of_another() -> None:
    fleet, ships = three(budget=50)
    async with fleet, asyncio.TaskGroup() as group:
        engine = fleet.engine("a")
        await engine.facts()  # one is between its steps
        waiting = group.create_task(fleet.engine("b").facts())
        await engine.facts()
        for ended in (False, True):
            for _ in range(10):
                await asyncio.sleep(0)
            assert not ships["a"].stopping.is_set(), ended
            async with engine.generate(TextRequest([1], 10)) as output:
                assert [type(item) async for item in output][-1] is Stopped
        async with asyncio.timeout(60):
            await waiting


async def test_an_idle_time_of_zero_begins_at_the_end_of_the_request() -> None:
    ship = Ship("a")
    async with Fleet([entry(Yard([ship]), idle_seconds=0)]) as fleet:
        engine = fleet.engine("a")
        await engine.facts()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not ship.stopping.is_set()
        async with engine.generate(TextRequest([1], 10)) as output:
            assert [type(item) async for item in output][-1] is Stopped
        async with asyncio.timeout(60):
            await ship.stopped.wait()


async def test_room_is_not_waited_for_for_ever() -> None:
    ships = [Ship(name, memory_bytes=40) for name in "ab"]
    ships[0].script = FakeScript(["abc"], gate=asyncio.Semaphore(0))
    entries = [entry(Yard([ship]), model=ship.model, wait_seconds=0.01) for ship in ships]
    async with Fleet(entries, memory_budget=50) as fleet:
        async with fleet.engine("a").generate(TextRequest([1], 10)) as output:
            await anext(output)
            with pytest.raises(EngineFailed) as failure:
                await fleet.engine("b").facts()
        assert failure.value.loading
        assert not ships[0].stopping.is_set()


async def test_a_larger_budget_is_heard_of_by_who_waits_for_room() -> None:
    fleet, ships = three(budget=50)
    ships["a"].script = FakeScript(["abc"], gate=asyncio.Semaphore(0))
    entries = [entry(Yard([ship]), model=name) for name, ship in ships.items()]
    async with fleet, asyncio.TaskGroup() as group:
        async with fleet.engine("a").generate(TextRequest([1], 10)) as output:
            await anext(output)
            waiting = group.create_task(fleet.engine("b").facts())
            for _ in range(10):
                await asyncio.sleep(0)
            assert not ships["b"].starting.is_set()
            fleet.replace(entries, memory_budget=80)
            async with asyncio.timeout(60):
                await waiting
        assert not ships["a"].stopping.is_set()


@pytest.mark.usefixtures("single_steps")
async def test_a_load_that_a_reload_cancels_leaves_no_room_before_there_is_some() -> None:
    """A model whose unloading it had started still ends."""
    old = Ship("b", memory_bytes=10, may_stop=asyncio.Event())
    new = Ship("a", memory_bytes=10)
    other = entry(Yard([old]), model="b")
    first = entry(Yard([Ship("a", memory_bytes=10)]), preload=True)
    async with Fleet([other], memory_budget=10) as fleet:
        await fleet.engine("b").facts()
        fleet.replace([other, first], memory_budget=10)
        await old.stopping.wait()
        fleet.replace([other, entry(Yard([new]), preload=True)], memory_budget=10)
        for _ in range(20):
            await asyncio.sleep(0)
        early = new.starting.is_set()
        old.may_stop.set()
        await fleet.engine("a").load()
        assert new.started.is_set()
        assert not early


async def test_what_never_fits_is_said_at_once() -> None:
    fleet, ships = three(budget=39)
    async with fleet:
        with pytest.raises(EngineFailed, match="more than the memory budget") as failure:
            await fleet.engine("a").facts()
    assert not failure.value.loading
    assert not ships["a"].starting.is_set()


@pytest.mark.usefixtures("single_steps")
async def test_an_idle_model_gives_way_where_the_machine_has_no_memory_left() -> None:
    """The one that was used longest ago goes first; one without a time to be idle stays."""
    ships = {name: Ship(name, memory_bytes=100) for name in "abcd"}

    def free() -> int:
        loaded = [ship for ship in ships.values() if ship.started.is_set()]
        return 300 - sum(100 for ship in loaded if not ship.stopped.is_set())

    entries = [
        entry(Yard([ship]), model=name, idle_seconds=None if name == "a" else 300.0)
        for name, ship in ships.items()
    ]
    async with Fleet(entries, free_memory=free) as fleet:
        for name in "abc":
            await fleet.engine(name).load()
        assert fleet.reclaimable() == 200
        await fleet.engine("d").load()
        assert [ship.stopped.is_set() for ship in ships.values()] == [False, True, False, False]


async def test_a_model_is_unloaded_when_it_is_asked_for() -> None:
    """At once if nobody uses it, else when its last request has ended."""
    yard = Yard([Ship("a"), Ship("a")])
    async with Fleet([entry(yard)]) as fleet:
        await fleet.unload("a")  # which is not loaded
        await fleet.engine("a").load()
        async with fleet.engine("a").generate(TextRequest([1], 5)) as tokens:
            await fleet.unload("a")
            assert states(fleet) == [EngineState.READY]
            assert [each async for each in tokens]
        await yard.ships[0].stopped.wait()
        assert states(fleet) == [EngineState.ABSENT]
        await fleet.engine("a").load()
        assert (yard.made, states(fleet)) == (2, [EngineState.READY])
        with pytest.raises(KeyError):
            await fleet.unload("b")


async def test_the_status_says_when_a_model_is_unloaded() -> None:
    async with Fleet([entry(Yard([Ship("a")]), idle_seconds=300.0)]) as fleet:
        await fleet.engine("a").load()
        [status] = fleet.status()
        assert status.unload_seconds is not None
        assert 290 < status.unload_seconds <= 300
