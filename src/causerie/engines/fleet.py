"""Several engines in one service: loaded on demand, unloaded when idle or when memory is short.

The fleet knows engines only as something that starts, stops and takes memory.
Where weights come from and what an engine is made of is in the ``make`` of its
entry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from types import TracebackType

import structlog

from causerie.engines.base import (
    EngineFailed,
    EngineStatus,
    LoadFailed,
    ModelFacts,
    Output,
    TextRequest,
)
from causerie.engines.berth import Berth, FleetEntry, ManagedEngine

__all__ = ["Fleet", "FleetEngine", "FleetEntry", "ManagedEngine"]

log = structlog.get_logger(__name__)

_STOPPING = "the service is being stopped"


class Fleet:
    """All engines of a service; an async context manager that stops them on leave.

    ``memory_budget`` bounds the estimated memory of loaded models, in bytes:
    for a new one the least recently used are unloaded, never one that is in
    use; for those it waits. After a load that failed the next is tried no
    sooner than after ``retry_seconds``, doubling to 30.
    """

    def __init__(
        self,
        entries: Sequence[FleetEntry],
        *,
        memory_budget: int | None = None,
        retry_seconds: float = 1.0,
    ) -> None:
        self._retry_seconds = retry_seconds
        self._berths = {entry.model: self._berth(entry) for entry in entries}
        self._leaving: set[Berth] = set()
        self._budget = memory_budget
        self._room = asyncio.Lock()  # who holds it may take memory, or is giving some back
        self._released = asyncio.Event()
        self._loads: set[asyncio.Task[ManagedEngine]] = set()
        self._ends: dict[asyncio.Task[None], int] = {}  # with the memory that each gives back
        self._closed = False

    async def __aenter__(self) -> Fleet:
        for berth in self._berths.values():
            if berth.entry.preload:
                _ = self._load(berth)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        for load in list(self._loads):
            load.cancel()
        await asyncio.gather(*self._loads, return_exceptions=True)
        for berth in self._every():
            if berth.idle is not None:
                berth.idle.cancel()
            if berth.engine is not None:
                _ = self._end(berth.engine)
                berth.engine = None
        ended = await asyncio.gather(*self._ends, return_exceptions=True)
        for result in ended:
            if isinstance(result, BaseException):
                raise result

    def replace(self, entries: Sequence[FleetEntry], *, memory_budget: int | None = None) -> None:
        """Have these models from now on.

        Engines of equal recipes stay as they are. The others go on for those
        who use them, and are unloaded then.
        """
        self._budget = memory_budget
        self._released.set()  # who waits for room looks again: there may be more
        before, self._berths = self._berths, {}
        for entry in entries:
            berth = before.get(entry.model)
            if berth is not None and berth.entry.recipe == entry.recipe:
                del before[entry.model]
                berth.entry = entry
                self._unload_when_idle(berth)
            else:
                berth = self._berth(entry)
                if entry.preload and not self._closed:
                    _ = self._load(berth)
            self._berths[entry.model] = berth
        for berth in before.values():
            self._retire(berth)

    def engine(self, model: str) -> FleetEngine:
        """The engine of a model; using it loads it. Raises :class:`KeyError` for unknown ones."""
        return FleetEngine(self, self._berths[model])

    def status(self) -> tuple[EngineStatus, ...]:
        """Every model as it is now."""
        return tuple(berth.status() for berth in self._berths.values())

    async def ready(self) -> None:
        """Wait for every preload; raises the first failure."""
        for berth in self._berths.values():
            if berth.entry.preload:
                await self._loaded(berth, None)

    @asynccontextmanager
    async def using(
        self, berth: Berth, *, first: bool = False, last: bool = False
    ) -> AsyncIterator[ManagedEngine]:
        """The loaded engine, which is not unloaded while the body runs.

        Nor for a moment after it, unless it was a request's last step and no other
        is between its steps: the next one would have to load the model again.
        """
        berth.begin_step(first=first)
        if berth.leaving:
            self._leaving.add(berth)
        if berth.idle is not None:
            berth.idle.cancel()
            berth.idle = None
        try:
            yield await self._loaded(berth, berth.entry.wait_seconds)
        finally:
            berth.end_step(last=last)
            self._released.set()
            self._unload_when_idle(berth)

    async def _loaded(self, berth: Berth, seconds: float | None) -> ManagedEngine:
        """The engine, for which a load under way or a new one is waited for so long."""
        if berth.engine is not None and berth.serves:
            return berth.engine
        loading = self._load(berth)
        done, _ = await asyncio.wait({loading}, timeout=seconds)
        if not done:
            raise EngineFailed(
                f"the model {berth.entry.model} is still being loaded", loading=True, retry_after=5
            )
        if loading.cancelled():
            raise EngineFailed(_STOPPING)
        return loading.result()

    def _load(self, berth: Berth) -> asyncio.Task[ManagedEngine]:
        """The load under way, or a new one; raises where it is too early for that."""
        if self._closed:
            raise EngineFailed(_STOPPING)
        if berth.loading is None:
            early = berth.retry_at - time.monotonic()
            if berth.failure and early > 0:
                raise LoadFailed(berth.failure, retry_after=early)
            # Owned: leaving the fleet cancels and awaits it.
            berth.loading = asyncio.get_running_loop().create_task(self._start(berth))
            self._loads.add(berth.loading)
            berth.loading.add_done_callback(self._loads.discard)
            berth.loading.add_done_callback(_note_end)
        return berth.loading

    async def _start(self, berth: Berth) -> ManagedEngine:
        began = time.monotonic()
        try:
            await self._unload(berth)  # one that has lost what it was made of
            engine = await berth.entry.make()
            await self._take_room(berth, engine)
            await self._bring_up(berth, engine)
        except asyncio.CancelledError:
            raise
        except BaseException as failure:
            if not (isinstance(failure, EngineFailed) and failure.loading):
                berth.note_failure(failure)
                log.warning("model not loaded", model=berth.entry.model, why=berth.failure)
            if isinstance(failure, EngineFailed) and not failure.loading:
                wait = berth.retry_at - time.monotonic()
                raise LoadFailed(berth.failure, retry_after=wait) from failure
            raise
        finally:
            berth.loading = None
            self._released.set()
            self._unload_when_idle(berth)
        berth.note_success()
        seconds = round(time.monotonic() - began, 2)
        log.info("model loaded", model=berth.entry.model, seconds=seconds)
        return engine

    async def _bring_up(self, berth: Berth, engine: ManagedEngine) -> None:
        try:
            await engine.start()
            berth.facts = await engine.facts()  # for those who list models, before anybody asks
        except BaseException:
            berth.engine = None
            await asyncio.shield(self._end(engine))  # it may have got half way
            raise

    async def _take_room(self, berth: Berth, engine: ManagedEngine) -> None:
        """Give the engine its berth, once the budget has room for it."""
        async with self._room:
            await self._make_room(berth.entry, engine.memory_bytes)
            berth.engine = engine

    async def _make_room(self, entry: FleetEntry, need: int) -> None:
        deadline = time.monotonic() + entry.wait_seconds
        while (budget := self._budget) is not None and self._taken() + need > budget:
            if need > budget:
                raise EngineFailed(
                    f"the model {entry.model} needs about {_size(need)}, more than the memory "
                    f"budget of {_size(budget)}; raise it, or lower the model's context or slots"
                )
            now = time.monotonic()
            unused = [berth for berth in self._every() if berth.unused]
            free = [berth for berth in unused if berth.awaited_until <= now]
            if free:
                await self._unload(min(free, key=lambda berth: berth.used_at))
                continue
            self._released.clear()
            until = min([deadline, *(berth.awaited_until for berth in unused)])
            try:
                async with asyncio.timeout(until - now):
                    await self._released.wait()
            except TimeoutError:
                if until < deadline:
                    continue
                raise EngineFailed(
                    f"the model {entry.model} needs about {_size(need)}, and the memory budget of "
                    f"{_size(budget)} is taken by models in use",
                    loading=True,
                    retry_after=5,
                ) from None

    def _taken(self) -> int:
        loaded = [berth.engine for berth in self._every() if berth.engine is not None]
        return sum(engine.memory_bytes for engine in loaded) + sum(self._ends.values())

    def _berth(self, entry: FleetEntry) -> Berth:
        return Berth(entry, first_delay=self._retry_seconds)

    def _every(self) -> list[Berth]:
        return [*self._berths.values(), *self._leaving]

    def _retire(self, berth: Berth) -> None:
        """Its model is no longer wanted."""
        berth.leaving = True
        self._leaving.add(berth)
        if berth.loading is not None and not berth.uses:
            berth.loading.cancel()
        self._unload_when_idle(berth)

    def _unload_when_idle(self, berth: Berth) -> None:
        if berth.idle is not None:
            berth.idle.cancel()
            berth.idle = None
        if berth.leaving and berth.empty:
            self._leaving.discard(berth)
        after = berth.idle_seconds
        if after is None or not berth.unused or self._closed:
            return
        after = max(after, berth.awaited_until - time.monotonic())
        berth.idle = asyncio.get_running_loop().call_later(after, self._begin_unload, berth)

    def _begin_unload(self, berth: Berth) -> None:
        berth.idle = None
        _ = self._own(self._unload_if_unused(berth))

    async def _unload_if_unused(self, berth: Berth) -> None:
        async with self._room:
            if berth.unused:
                await self._unload(berth)

    async def _unload(self, berth: Berth) -> None:
        engine, berth.engine = berth.engine, None
        if engine is not None:
            log.info("model unloaded", model=berth.entry.model)
            await asyncio.shield(self._end(engine))
        self._unload_when_idle(berth)

    def _end(self, engine: ManagedEngine) -> asyncio.Task[None]:
        """Stop an engine for good; nobody's cancellation leaves it half way."""
        return self._own(engine.stop(), engine.memory_bytes)

    def _own(self, ending: Coroutine[object, object, None], memory: int = 0) -> asyncio.Task[None]:
        """A task that leaving the fleet awaits; until it has ended it has this memory."""
        task = asyncio.get_running_loop().create_task(ending)
        self._ends[task] = memory
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._ends[task]
        self._released.set()


def _note_end(load: asyncio.Task[ManagedEngine]) -> None:
    if not load.cancelled():
        load.exception()  # told to whoever waits; a preload nobody waits for shows in the status


def _size(memory: int) -> str:
    return f"{memory / 1e9:.1f} GB"


class FleetEngine:
    """A model's engine that loads itself when it is used; equal where it is the same one."""

    def __init__(self, fleet: Fleet, berth: Berth) -> None:
        self._fleet = fleet
        self._berth = berth

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FleetEngine) and other._berth is self._berth

    def __hash__(self) -> int:
        return hash(self._berth)

    @property
    def slots(self) -> int:
        """Requests at the same time, as far as it is known now."""
        return self._berth.slots

    @property
    def known(self) -> ModelFacts | None:
        """Facts of the model as they were last; ``None`` where nobody has asked for them yet."""
        return self._berth.facts

    async def facts(self) -> ModelFacts:
        """Facts of the model, loaded for it."""
        async with self._fleet.using(self._berth, first=True) as engine:
            self._berth.facts = facts = await engine.facts()
            return facts

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Token ids of the pieces."""
        async with self._fleet.using(self._berth) as engine:
            return await engine.tokenize(pieces, special=special)

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        """What each token adds to the output."""
        async with self._fleet.using(self._berth) as engine:
            return await engine.texts(tokens, visible=visible)

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        """One generation; the model stays loaded meanwhile."""
        async with (
            self._fleet.using(self._berth, last=True) as engine,
            engine.generate(request) as tokens,
        ):
            yield tokens
