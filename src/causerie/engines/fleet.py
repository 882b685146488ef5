"""Several engines in one service: loaded on demand, unloaded when idle or when memory is short.

The fleet knows engines only as something that starts, stops and takes memory. The ``make`` of
an entry knows the source of weights and the inputs of an engine. A :class:`ModelSlot` is the
place of one model.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, cast

import structlog

from causerie.engines import base

LEAVING_SECONDS = 1.0  # between the steps of a request that still has the engine
FIRST_DELAY = 1.0  # after a load that failed; it doubles
_LAST_DELAY = 30.0


class ManagedEngine(base.TextEngine, Protocol):
    """A text engine that can be loaded and unloaded."""

    @property
    def slots(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...

    async def start(self) -> None:
        """Load the model; raise :class:`EngineFailed` with the reason."""

    async def stop(self) -> None:
        """Unload the model, and leave nothing of it behind."""

    def status(self) -> base.EngineStatus: ...


@dataclass(frozen=True, slots=True)
class FleetEntry:
    """One model of a fleet: how its engine is made, and when it is loaded and unloaded."""

    model: str
    make: Callable[[], Awaitable[ManagedEngine]]
    """Gets the engine's inputs (weights, say) and builds it without starting it."""
    slots: int = 1  # the best guess before the engine is built
    preload: bool = False
    idle_seconds: float | None = None  # without a request until it is unloaded; `None`: never
    wait_seconds: float = 60.0  # longest wait of a request for a load
    recipe: object = field(default_factory=object)  # an entry with an equal one keeps the engine
    renew: Callable[[ManagedEngine], None] | None = None
    """Gives an engine that is kept what its recipe leaves open."""


@dataclass(slots=True, eq=False)
class ModelSlot:
    """The place of one model: its engine while there is one, and who uses it."""

    entry: FleetEntry
    engine: ManagedEngine | None = None
    facts: base.ModelFacts | None = None  # of the engine, as they were last
    loading: asyncio.Task[ManagedEngine] | None = None
    uses: int = 0
    used_at: float = field(default_factory=time.monotonic)
    awaited: deque[float] = field(default_factory=deque)  # until when requests' next steps are
    failure: str = ""
    failures: int = 0  # in a row
    retry_at: float = 0.0
    idle: asyncio.TimerHandle | None = None
    leaving: bool = False  # it serves those who have it already, and nobody else
    dismissed: bool = False  # to be unloaded as soon as nobody uses it

    @property
    def empty(self) -> bool:
        return self.engine is None and self.loading is None and not self.uses

    @property
    def serves(self) -> bool:
        """Return whether the slot's engine is loaded, or restarts by itself."""
        if self.engine is None or self.loading is not None:
            return False
        return self.engine.status().state is not base.EngineState.ABSENT

    def status(self) -> base.EngineStatus:
        absent = base.EngineState.FAILED if self.failure else base.EngineState.ABSENT
        status = (
            self.engine.status()
            if self.engine is not None
            else base.EngineStatus(self.entry.model, absent, self.entry.slots, detail=self.failure)
        )
        if self.loading is not None and status.state is not base.EngineState.LOADING:
            return replace(status, state=base.EngineState.LOADING, detail="")
        if self.idle is not None:
            left = self.idle.when() - asyncio.get_running_loop().time()
            return replace(status, unload_seconds=max(left, 0.0))
        return status

    @property
    def unused(self) -> bool:
        return self.engine is not None and self.loading is None and not self.uses

    @property
    def awaited_until(self) -> float:
        return self.awaited[-1] if self.awaited else 0.0

    @property
    def evictable(self) -> bool:
        return self.unused and self.awaited_until <= time.monotonic()

    def begin_step(self, *, first: bool) -> None:
        """Count one use of the model by a step of a request, which is then awaited no longer."""
        self.uses += 1
        if self.awaited and not first:
            _ = self.awaited.popleft()

    def end_step(self, *, last: bool) -> None:
        """End a request's step; unless it was the last, await the next one for a moment."""
        self.uses -= 1
        self.used_at = time.monotonic()
        while self.awaited and self.awaited[0] <= self.used_at:
            _ = self.awaited.popleft()
        if not last:
            self.awaited.append(self.used_at + LEAVING_SECONDS)

    def renew(self) -> None:
        if self.engine is not None and self.entry.renew is not None:
            self.entry.renew(self.engine)

    def record_failure(self, failure: BaseException) -> None:
        """Record that a load has failed; the next may be tried after a while."""
        self.failure = str(failure) or type(failure).__name__
        self.retry_at = time.monotonic() + min(FIRST_DELAY * 2**self.failures, _LAST_DELAY)
        self.failures = min(self.failures + 1, 16)


log = structlog.get_logger(__name__)

NOT_LOADED = "model not loaded"  # what the log says of a load that failed

_STOPPING = "the service is being stopped"


class Fleet:
    """All engines of a service; an async context manager that stops them on leave.

    ``memory_budget`` bounds the estimated memory of loaded models, in bytes:
    for a new one the least recently used are unloaded, never one that is in
    use; for those it waits. Idle models that are unloaded after some time are also
    unloaded earlier where ``free_memory`` has too few bytes for a new one.
    """

    def __init__(
        self,
        entries: Sequence[FleetEntry],
        *,
        memory_budget: int | None = None,
        free_memory: Callable[[], int] = lambda: sys.maxsize,
    ) -> None:
        self._model_slots = {entry.model: ModelSlot(entry) for entry in entries}
        self._leaving_slots: set[ModelSlot] = set()
        self._memory_budget = memory_budget
        self._get_free_bytes = free_memory
        self._memory_lock = asyncio.Lock()  # who holds it may take memory, or is giving some back
        self._memory_released_event = asyncio.Event()
        self._load_tasks: set[asyncio.Task[ManagedEngine]] = set()
        self._bytes_by_end_task: dict[asyncio.Task[None], int] = {}  # that each gives back
        self._is_closed = False

    async def __aenter__(self) -> Fleet:
        for model_slot in self._model_slots.values():
            if model_slot.entry.preload:
                _ = self._ensure_load_task(model_slot)
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._is_closed = True
        for load in list(self._load_tasks):
            load.cancel()
        await asyncio.gather(*self._load_tasks, return_exceptions=True)
        for model_slot in self._all_slots():
            if model_slot.idle is not None:
                model_slot.idle.cancel()
            if model_slot.engine is not None:
                _ = self._start_engine_stop_task(model_slot.engine)
                model_slot.engine = None
        ended = await asyncio.gather(*self._bytes_by_end_task, return_exceptions=True)
        for result in ended:
            if isinstance(result, BaseException):
                raise result

    def replace(self, entries: Sequence[FleetEntry], *, memory_budget: int | None = None) -> None:
        """Replace the models; engines of equal recipes stay, others are unloaded once unused."""
        self._memory_budget = memory_budget
        self._memory_released_event.set()  # who waits for room looks again: there may be more
        before, self._model_slots = self._model_slots, {}
        for entry in entries:
            model_slot = before.get(entry.model)
            if model_slot is not None and model_slot.entry.recipe == entry.recipe:
                del before[entry.model]
                model_slot.entry = entry
                model_slot.renew()
                self._schedule_idle_unload(model_slot)
            else:
                model_slot = ModelSlot(entry)
                if entry.preload and not self._is_closed:
                    _ = self._ensure_load_task(model_slot)
            self._model_slots[entry.model] = model_slot
        for model_slot in before.values():
            model_slot.leaving = True
            self._leaving_slots.add(model_slot)
            if model_slot.loading is not None and not model_slot.uses:
                model_slot.loading.cancel()
            self._schedule_idle_unload(model_slot)

    def engine(self, model: str) -> FleetEngine:
        """Return the engine of a model; using it loads it. Raise :class:`KeyError` if unknown."""
        return FleetEngine(self, self._model_slots[model])

    def status(self) -> tuple[base.EngineStatus, ...]:
        return tuple(model_slot.status() for model_slot in self._model_slots.values())

    async def unload(self, model: str) -> None:
        """Unload a model as soon as nobody uses it. Raise :class:`KeyError` if unknown."""
        model_slot = self._model_slots[model]
        if model_slot.engine is not None:
            model_slot.dismissed = True
            await self._unload_if_unused(model_slot)

    def reclaimable(self) -> int:
        """Return the memory in bytes of unused models that may be unloaded for another one."""
        return sum(slot.engine.memory_bytes for slot in self._self_unloading_slots() if slot.engine)

    def _self_unloading_slots(self) -> Sequence[ModelSlot]:
        evictable = (slot for slot in self._all_slots() if slot.evictable)
        return [slot for slot in evictable if slot.entry.idle_seconds is not None]

    @asynccontextmanager
    async def using(
        self,
        model_slot: ModelSlot,
        *,
        first: bool = False,
        last: bool = False,
        log_failure: bool = True,
    ) -> AsyncIterator[ManagedEngine]:
        """Yield the loaded engine, which is not unloaded while the body runs.

        Nor for a moment after it, unless it was a request's last step and no other
        is between its steps: the next one would have to load the model again.
        With ``log_failure`` a load that begins here is logged if it fails.
        """
        model_slot.begin_step(first=first)
        if model_slot.leaving:
            self._leaving_slots.add(model_slot)
        self._schedule_idle_unload(model_slot)  # which it is no more
        try:
            yield await self._loaded_engine(model_slot, log_failure)
        finally:
            model_slot.end_step(last=last)
            self._memory_released_event.set()
            self._schedule_idle_unload(model_slot)

    async def _loaded_engine(self, model_slot: ModelSlot, log_failure: bool) -> ManagedEngine:
        if model_slot.engine is not None and model_slot.serves:
            return model_slot.engine
        loading = self._ensure_load_task(model_slot, log_failure)
        done, _ = await asyncio.wait({loading}, timeout=model_slot.entry.wait_seconds)
        if not done:
            raise base.EngineFailed(
                f"the model {model_slot.entry.model} is still being loaded",
                loading=True,
                retry_after=5,
            )
        if loading.cancelled():
            raise base.EngineFailed(_STOPPING)
        return loading.result()

    def _ensure_load_task(
        self, model_slot: ModelSlot, log_failure: bool = True
    ) -> asyncio.Task[ManagedEngine]:
        if self._is_closed:
            raise base.EngineFailed(_STOPPING)
        if model_slot.loading is None:
            early = model_slot.retry_at - time.monotonic()
            if model_slot.failure and early > 0:
                raise base.LoadFailed(model_slot.failure, retry_after=early)
            # Owned: leaving the fleet cancels and awaits it.
            model_slot.loading = asyncio.get_running_loop().create_task(
                self._load_engine(model_slot, log_failure)
            )
            self._load_tasks.add(model_slot.loading)
            model_slot.loading.add_done_callback(self._load_tasks.discard)
            # Raised to whoever waits; of a preload it is shown in the status.
            model_slot.loading.add_done_callback(lambda load: load.cancelled() or load.exception())
        return model_slot.loading

    async def _load_engine(self, model_slot: ModelSlot, log_failure: bool) -> ManagedEngine:
        began = time.monotonic()
        try:
            await self._unload_and_await(model_slot)  # one that has lost what it was made of
            engine = await model_slot.entry.make()
            async with self._memory_lock:
                await self._free_memory(model_slot.entry, engine.memory_bytes)
                model_slot.engine = engine
                model_slot.renew()  # the entry may be another than the one that it was made for
            await self._start_engine(model_slot, engine)
        except Exception as failure:
            if not (isinstance(failure, base.EngineFailed) and failure.loading):
                model_slot.record_failure(failure)
                if log_failure:
                    log.warning(NOT_LOADED, model=model_slot.entry.model, why=model_slot.failure)
            if isinstance(failure, base.EngineFailed) and not failure.loading:
                wait = model_slot.retry_at - time.monotonic()
                raise base.LoadFailed(model_slot.failure, retry_after=wait) from failure
            raise
        finally:
            model_slot.loading = None
            self._memory_released_event.set()
            self._schedule_idle_unload(model_slot)
        model_slot.failure, model_slot.failures = "", 0
        seconds = round(time.monotonic() - began, 2)
        log.info("model loaded", model=model_slot.entry.model, seconds=seconds)
        return engine

    async def _start_engine(self, model_slot: ModelSlot, engine: ManagedEngine) -> None:
        try:
            await engine.start()
            # For those who list models, before anybody asks.
            model_slot.facts = await engine.facts()
        except BaseException:
            model_slot.engine = None
            await asyncio.shield(self._start_engine_stop_task(engine))  # it may have got half way
            raise

    async def _free_memory(self, entry: FleetEntry, need: int) -> None:
        while need > self._get_free_bytes() and (idle := self._self_unloading_slots()):
            await self._unload_and_await(min(idle, key=lambda model_slot: model_slot.used_at))
        deadline = time.monotonic() + entry.wait_seconds
        while (budget := self._memory_budget) is not None and self._taken_bytes() + need > budget:
            if need > budget:
                raise base.EngineFailed(
                    f"the model {entry.model} needs about {_gigabytes(need)}, more than the memory "
                    f"budget of {_gigabytes(budget)}; raise it, or lower the model's context or "
                    "slots"
                )
            unused = [model_slot for model_slot in self._all_slots() if model_slot.unused]
            if free := [model_slot for model_slot in unused if model_slot.evictable]:
                await self._unload_and_await(min(free, key=lambda model_slot: model_slot.used_at))
                continue
            self._memory_released_event.clear()
            until = min([deadline, *(model_slot.awaited_until for model_slot in unused)])
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await self._memory_released_event.wait()
            except TimeoutError:
                if until < deadline:
                    continue
                raise base.EngineFailed(
                    f"the model {entry.model} needs about {_gigabytes(need)}, and the memory "
                    f"budget of {_gigabytes(budget)} is taken by models in use",
                    loading=True,
                    retry_after=5,
                ) from None

    def _taken_bytes(self) -> int:
        loaded = (each.engine.memory_bytes for each in self._all_slots() if each.engine is not None)
        return sum(loaded) + sum(self._bytes_by_end_task.values())

    def _all_slots(self) -> list[ModelSlot]:
        return [*self._model_slots.values(), *self._leaving_slots]

    def _schedule_idle_unload(self, model_slot: ModelSlot) -> None:
        if model_slot.idle is not None:
            model_slot.idle.cancel()
            model_slot.idle = None
        if model_slot.leaving and model_slot.empty:
            self._leaving_slots.discard(model_slot)
        hurries = model_slot.leaving or model_slot.dismissed
        after = LEAVING_SECONDS if hurries else model_slot.entry.idle_seconds
        if after is None or not model_slot.unused or self._is_closed:
            return
        after = max(after, model_slot.awaited_until - time.monotonic())
        model_slot.idle = asyncio.get_running_loop().call_later(
            after, lambda: self._start_end_task(self._unload_if_unused(model_slot))
        )

    async def _unload_if_unused(self, model_slot: ModelSlot) -> None:
        async with self._memory_lock:
            if model_slot.unused:
                await self._unload_and_await(model_slot)

    async def _unload_and_await(self, model_slot: ModelSlot) -> None:
        engine, model_slot.engine = model_slot.engine, None
        model_slot.dismissed = False
        if engine is not None:
            log.info("model unloaded", model=model_slot.entry.model)
            await asyncio.shield(self._start_engine_stop_task(engine))
        self._schedule_idle_unload(model_slot)

    def _start_engine_stop_task(self, engine: ManagedEngine) -> asyncio.Task[None]:
        return self._start_end_task(engine.stop(), engine.memory_bytes)

    def _start_end_task(
        self, ending: Coroutine[object, object, None], memory: int = 0
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(ending)
        self._bytes_by_end_task[task] = memory
        task.add_done_callback(self._forget_end_task)
        return task

    def _forget_end_task(self, task: asyncio.Task[None]) -> None:
        del self._bytes_by_end_task[task]
        self._memory_released_event.set()


def _gigabytes(memory: int) -> str:
    return f"{memory / 1e9:.1f} GB"


@dataclass(frozen=True, slots=True)
class FleetEngine:
    """A model's engine that loads itself on use; two are equal if they have the same slot."""

    _fleet: Fleet = field(compare=False)
    _model_slot: ModelSlot

    @property
    def slots(self) -> int:
        engine = self._model_slot.engine
        return self._model_slot.entry.slots if engine is None else engine.slots

    @property
    def cache_tokens(self) -> int:
        """Return the tokens of the cache that requests share, while loaded; 0 for no limit."""
        return self._model_slot.status().cache_tokens or 0

    @property
    def loaded(self) -> bool:
        return self._model_slot.status().state is base.EngineState.READY

    @property
    def known(self) -> base.ModelFacts | None:
        """Return the facts of the model as they were last; ``None`` before the first load."""
        return self._model_slot.facts

    async def load(self) -> None:
        """Load the model; a failure is raised and not logged."""
        async with self._fleet.using(self._model_slot, first=True, log_failure=False):
            pass

    async def facts(self) -> base.ModelFacts:
        async with self._fleet.using(self._model_slot, first=True) as engine:
            self._model_slot.facts = await engine.facts()
            return self._model_slot.facts

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        async with self._fleet.using(self._model_slot) as engine:
            return await engine.tokenize(pieces, special=special)

    async def pictured_tokens(self, pieces: Sequence[str | base.Image]) -> list[int]:
        async with self._fleet.using(self._model_slot) as engine:
            return await cast(base.ImageEngine, engine).pictured_tokens(pieces)

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        async with self._fleet.using(self._model_slot) as engine:
            return await engine.texts(tokens, visible=visible)

    async def input_tokens(self, texts: Sequence[str]) -> list[list[int]]:
        async with self._fleet.using(self._model_slot) as engine:
            return await cast(base.EmbeddingEngine, engine).input_tokens(texts)

    async def embed(self, inputs: Sequence[Sequence[int]]) -> list[bytes]:
        async with self._fleet.using(self._model_slot) as engine:
            return await cast(base.EmbeddingEngine, engine).embed(inputs)

    @asynccontextmanager
    async def generate(
        self, request: base.TextRequest
    ) -> AsyncIterator[AsyncIterator[base.Output]]:
        async with (
            self._fleet.using(self._model_slot, last=True) as engine,
            engine.generate(request) as tokens,
        ):
            yield tokens
