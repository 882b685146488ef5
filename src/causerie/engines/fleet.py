"""Several engines in one service: loaded on demand, unloaded when idle or when memory is short.

The fleet knows engines only as something that starts, stops and takes memory.
Where weights come from and what an engine is made of is in the ``make`` of its
entry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, TypeVar

import structlog

from causerie.engines.base import (
    EngineFailed,
    EngineState,
    EngineStatus,
    ModelFacts,
    Output,
    TextEngine,
    TextRequest,
)

T = TypeVar("T")
log = structlog.get_logger(__name__)


class ManagedEngine(TextEngine, Protocol):
    """A text engine that can be loaded and unloaded."""

    @property
    def slots(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...

    async def start(self) -> None:
        """Load; raises :class:`EngineFailed` with the reason."""
        ...

    async def stop(self) -> None:
        """Unload; nothing is left behind."""
        ...

    def status(self) -> EngineStatus: ...


@dataclass(frozen=True, slots=True)
class FleetEntry:
    """One model.

    ``make`` gets what the engine needs (weights, say) and builds it without
    starting it; ``slots`` is the best guess before that. ``idle_seconds``
    without a request unload it (``None``: never); a request waits at most
    ``wait_seconds`` for a load.
    """

    model: str
    make: Callable[[], Awaitable[ManagedEngine]]
    slots: int = 1
    preload: bool = False
    idle_seconds: float | None = None
    wait_seconds: float = 60.0


@dataclass(slots=True)
class _Berth:
    """The place of one model: its engine while there is one, and who uses it."""

    entry: FleetEntry
    engine: ManagedEngine | None = None
    loading: asyncio.Task[ManagedEngine] | None = None
    uses: int = 0
    used_at: float = field(default_factory=time.monotonic)
    failure: str = ""
    idle: asyncio.TimerHandle | None = None


class Fleet:
    """All engines of a service; an async context manager that stops them on leave.

    ``memory_budget`` bounds the estimated memory of loaded models, in bytes:
    for a new one the least recently used are unloaded, never one that is in use.
    """

    def __init__(self, entries: Sequence[FleetEntry], *, memory_budget: int | None = None) -> None:
        self._berths = {entry.model: _Berth(entry) for entry in entries}
        self._budget = memory_budget
        self._making_room = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

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
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for berth in self._berths.values():
            if berth.idle is not None:
                berth.idle.cancel()
        await asyncio.gather(
            *(b.engine.stop() for b in self._berths.values() if b.engine is not None)
        )

    def engine(self, model: str) -> TextEngine:
        """The engine of a model; using it loads it. Raises :class:`KeyError` for unknown ones."""
        return _Facade(self, self._berths[model])

    def slots(self, model: str) -> int:
        """Requests at the same time, as far as it is known now."""
        berth = self._berths[model]
        return berth.engine.slots if berth.engine is not None else berth.entry.slots

    def status(self) -> tuple[EngineStatus, ...]:
        """Every model as it is now."""
        return tuple(self._status(berth) for berth in self._berths.values())

    async def ready(self) -> None:
        """Wait for every preload; raises the first failure."""
        for berth in self._berths.values():
            if berth.entry.preload:
                await asyncio.shield(self._load(berth))

    @asynccontextmanager
    async def using(self, berth: _Berth) -> AsyncIterator[ManagedEngine]:
        """The loaded engine, which is not unloaded while the body runs."""
        berth.uses += 1
        if berth.idle is not None:
            berth.idle.cancel()
            berth.idle = None
        try:
            yield await self._loaded(berth)
        finally:
            berth.uses -= 1
            berth.used_at = time.monotonic()
            self._unload_when_idle(berth)

    async def _loaded(self, berth: _Berth) -> ManagedEngine:
        if berth.engine is not None and berth.loading is None:
            return berth.engine
        loading = self._load(berth)
        try:
            async with asyncio.timeout(berth.entry.wait_seconds):
                return await asyncio.shield(loading)
        except TimeoutError:
            raise EngineFailed(
                f"the model {berth.entry.model} is still being loaded", loading=True, retry_after=5
            ) from None

    def _load(self, berth: _Berth) -> asyncio.Task[ManagedEngine]:
        """The load under way, or a new one."""
        if berth.loading is None:
            berth.loading = self._owned(self._start(berth))
        return berth.loading

    async def _start(self, berth: _Berth) -> ManagedEngine:
        started = time.monotonic()
        try:
            engine = await berth.entry.make()
            async with self._making_room:
                await self._make_room(berth, engine)
                berth.engine = engine
            await engine.start()
        except EngineFailed as failure:
            berth.engine, berth.failure = None, str(failure)
            log.warning("model not loaded", model=berth.entry.model, why=str(failure))
            raise
        except BaseException:
            berth.engine = None
            raise
        finally:
            berth.loading = None
        berth.failure = ""
        seconds = round(time.monotonic() - started, 2)
        log.info("model loaded", model=berth.entry.model, seconds=seconds)
        self._unload_when_idle(berth)
        return engine

    async def _make_room(self, wanting: _Berth, engine: ManagedEngine) -> None:
        if self._budget is None:
            return
        while self._taken() + engine.memory_bytes > self._budget:
            idle = [
                berth
                for berth in self._berths.values()
                if berth.engine is not None
                and berth.loading is None
                and not berth.uses
                and berth is not wanting
            ]
            if not idle:
                need = engine.memory_bytes / 1e9
                raise EngineFailed(
                    f"the model {wanting.entry.model} needs about {need:.1f} GB, and the memory "
                    f"budget of {self._budget / 1e9:.1f} GB is taken by models in use",
                    retry_after=5,
                )
            await self._unload(min(idle, key=lambda berth: berth.used_at))

    def _taken(self) -> int:
        return sum(
            berth.engine.memory_bytes for berth in self._berths.values() if berth.engine is not None
        )

    def _unload_when_idle(self, berth: _Berth) -> None:
        after = berth.entry.idle_seconds
        if after is None or berth.uses or berth.engine is None:
            return
        if berth.idle is not None:
            berth.idle.cancel()
        loop = asyncio.get_running_loop()
        berth.idle = loop.call_later(after, lambda: self._owned(self._unload_if_idle(berth)))

    async def _unload_if_idle(self, berth: _Berth) -> None:
        if not berth.uses and berth.loading is None:
            await self._unload(berth)

    async def _unload(self, berth: _Berth) -> None:
        engine, berth.engine = berth.engine, None
        if engine is not None:
            log.info("model unloaded", model=berth.entry.model)
            await engine.stop()

    def _owned(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """A task that leaving the fleet cancels and awaits."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # told to whoever waits; a preload nobody waits for shows in status

    def _status(self, berth: _Berth) -> EngineStatus:
        if berth.engine is not None:
            return berth.engine.status()
        state = EngineState.LOADING if berth.loading is not None else EngineState.ABSENT
        if berth.failure and berth.loading is None:
            state = EngineState.FAILED
        return EngineStatus(
            model=berth.entry.model, state=state, slots=berth.entry.slots, detail=berth.failure
        )


class _Facade:
    """A model's engine that loads itself when it is used."""

    def __init__(self, fleet: Fleet, berth: _Berth) -> None:
        self._fleet = fleet
        self._berth = berth

    async def facts(self) -> ModelFacts:
        """Facts of the model, loaded for it."""
        async with self._fleet.using(self._berth) as engine:
            return await engine.facts()

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Token ids of the pieces."""
        async with self._fleet.using(self._berth) as engine:
            return await engine.tokenize(pieces, special=special)

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        """One generation; the model stays loaded meanwhile."""
        async with self._fleet.using(self._berth) as engine, engine.generate(request) as tokens:
            yield tokens
