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
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol

import structlog

from causerie.engines.base import (
    EngineFailed,
    EngineState,
    EngineStatus,
    LoadFailed,
    ModelFacts,
    Output,
    TextEngine,
    TextRequest,
)

log = structlog.get_logger(__name__)

_LAST_DELAY = 30.0
_STOPPING = "the service is being stopped"


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
    first_delay: float = 1.0
    failures: int = 0  # in a row
    retry_at: float = 0.0
    idle: asyncio.TimerHandle | None = None

    @property
    def unused(self) -> bool:
        """Loaded, and nobody needs it now."""
        return self.engine is not None and self.loading is None and not self.uses

    def note_success(self) -> None:
        """A load has succeeded."""
        self.failure, self.failures = "", 0

    def note_failure(self, failure: BaseException) -> None:
        """A load has failed; the next may be tried after a while."""
        self.failure = str(failure) or type(failure).__name__
        self.retry_at = time.monotonic() + min(self.first_delay * 2**self.failures, _LAST_DELAY)
        self.failures = min(self.failures + 1, 16)


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
        self._berths = {entry.model: _Berth(entry, first_delay=retry_seconds) for entry in entries}
        self._budget = memory_budget
        self._room = asyncio.Lock()  # who holds it may take memory, or is giving some back
        self._released = asyncio.Event()
        self._loads: set[asyncio.Task[ManagedEngine]] = set()
        self._ends: set[asyncio.Task[None]] = set()
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
        for berth in self._berths.values():
            if berth.idle is not None:
                berth.idle.cancel()
            if berth.engine is not None:
                _ = self._end(berth.engine)
                berth.engine = None
        ended = await asyncio.gather(*self._ends, return_exceptions=True)
        for result in ended:
            if isinstance(result, BaseException):
                raise result

    def engine(self, model: str) -> TextEngine:
        """The engine of a model; using it loads it. Raises :class:`KeyError` for unknown ones."""
        return _Facade(self, self._berths[model])

    def slots(self, model: str) -> int:
        """Requests at the same time, as far as it is known now."""
        berth = self._berths[model]
        return berth.engine.slots if berth.engine is not None else berth.entry.slots

    def status(self) -> tuple[EngineStatus, ...]:
        """Every model as it is now."""
        return tuple(_status(berth) for berth in self._berths.values())

    async def ready(self) -> None:
        """Wait for every preload; raises the first failure."""
        for berth in self._berths.values():
            if berth.entry.preload:
                await self._loaded(berth, None)

    @asynccontextmanager
    async def using(self, berth: _Berth) -> AsyncIterator[ManagedEngine]:
        """The loaded engine, which is not unloaded while the body runs."""
        berth.uses += 1
        if berth.idle is not None:
            berth.idle.cancel()
            berth.idle = None
        try:
            yield await self._loaded(berth, berth.entry.wait_seconds)
        finally:
            berth.uses -= 1
            berth.used_at = time.monotonic()
            self._released.set()
            self._unload_when_idle(berth)

    async def _loaded(self, berth: _Berth, seconds: float | None) -> ManagedEngine:
        """The engine, for which a load under way or a new one is waited for so long."""
        if berth.engine is not None and berth.loading is None:
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

    def _load(self, berth: _Berth) -> asyncio.Task[ManagedEngine]:
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

    async def _start(self, berth: _Berth) -> ManagedEngine:
        began = time.monotonic()
        try:
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
        berth.note_success()
        seconds = round(time.monotonic() - began, 2)
        log.info("model loaded", model=berth.entry.model, seconds=seconds)
        self._unload_when_idle(berth)
        return engine

    async def _bring_up(self, berth: _Berth, engine: ManagedEngine) -> None:
        try:
            await engine.start()
        except BaseException:
            await asyncio.shield(self._end(engine))  # it may have got half way
            berth.engine = None
            raise

    async def _take_room(self, berth: _Berth, engine: ManagedEngine) -> None:
        """Give the engine its berth, once the budget has room for it."""
        async with self._room:
            if self._budget is not None:
                await self._make_room(berth.entry, engine.memory_bytes, self._budget)
            berth.engine = engine

    async def _make_room(self, entry: FleetEntry, need: int, budget: int) -> None:
        if need > budget:
            raise EngineFailed(
                f"the model {entry.model} needs about {_size(need)}, more than the memory budget "
                f"of {_size(budget)}; raise it, or lower the model's context or slots"
            )
        deadline = asyncio.get_running_loop().time() + entry.wait_seconds
        while self._taken() + need > budget:
            unused = [berth for berth in self._berths.values() if berth.unused]
            if unused:
                await self._unload(min(unused, key=lambda berth: berth.used_at))
                continue
            self._released.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._released.wait()
            except TimeoutError:
                raise EngineFailed(
                    f"the model {entry.model} needs about {_size(need)}, and the memory budget of "
                    f"{_size(budget)} is taken by models in use",
                    loading=True,
                    retry_after=5,
                ) from None

    def _taken(self) -> int:
        return sum(
            berth.engine.memory_bytes for berth in self._berths.values() if berth.engine is not None
        )

    def _unload_when_idle(self, berth: _Berth) -> None:
        after = berth.entry.idle_seconds
        if after is None or not berth.unused or self._closed:
            return
        if berth.idle is not None:
            berth.idle.cancel()
        berth.idle = asyncio.get_running_loop().call_later(after, self._begin_unload, berth)

    def _begin_unload(self, berth: _Berth) -> None:
        berth.idle = None
        _ = self._own(self._unload_if_unused(berth))

    async def _unload_if_unused(self, berth: _Berth) -> None:
        async with self._room:
            if berth.unused:
                await self._unload(berth)

    async def _unload(self, berth: _Berth) -> None:
        engine, berth.engine = berth.engine, None
        if engine is not None:
            log.info("model unloaded", model=berth.entry.model)
            await asyncio.shield(self._end(engine))

    def _end(self, engine: ManagedEngine) -> asyncio.Task[None]:
        """Stop an engine for good; nobody's cancellation leaves it half way."""
        return self._own(engine.stop())

    def _own(self, ending: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """A task that leaving the fleet awaits."""
        task = asyncio.get_running_loop().create_task(ending)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)
        return task


def _note_end(load: asyncio.Task[ManagedEngine]) -> None:
    if not load.cancelled():
        load.exception()  # told to whoever waits; a preload nobody waits for shows in the status


def _status(berth: _Berth) -> EngineStatus:
    absent = EngineState.FAILED if berth.failure else EngineState.ABSENT
    status = (
        berth.engine.status()
        if berth.engine is not None
        else EngineStatus(berth.entry.model, absent, berth.entry.slots, detail=berth.failure)
    )
    if berth.loading is not None and status.state is not EngineState.LOADING:
        return replace(status, state=EngineState.LOADING, detail="")
    return status


def _size(memory: int) -> str:
    return f"{memory / 1e9:.1f} GB"


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

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        """What each token adds to the output."""
        async with self._fleet.using(self._berth) as engine:
            return await engine.texts(tokens, visible=visible)

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        """One generation; the model stays loaded meanwhile."""
        async with self._fleet.using(self._berth) as engine, engine.generate(request) as tokens:
            yield tokens
