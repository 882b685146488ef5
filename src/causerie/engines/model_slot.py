"""The place of one model in the fleet, and what the fleet needs to know of it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple, Protocol

from causerie.engines.base import EngineState, EngineStatus, ModelFacts, TextEngine

LEAVING_SECONDS = 1.0  # between the steps of a request that still has the engine
_LAST_DELAY = 30.0
_numbers = count(1)


class Edition(NamedTuple):
    """An engine by its number in this process, and its facts by theirs; 0 is none."""

    engine: int = 0
    facts: int = 0


class ManagedEngine(TextEngine, Protocol):
    """A text engine that can be loaded and unloaded."""

    @property
    def slots(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...

    async def start(self) -> None:
        """Load the model; raise :class:`EngineFailed` with the reason."""
        ...

    async def stop(self) -> None:
        """Unload; nothing is left behind."""
        ...

    def status(self) -> EngineStatus: ...


@dataclass(frozen=True, slots=True)
class FleetEntry:
    """One model."""

    model: str
    make: Callable[[], Awaitable[ManagedEngine]]
    """Gets the engine's inputs (weights, say) and builds it without starting it."""
    slots: int = 1
    """The best guess before the engine is built."""
    preload: bool = False
    idle_seconds: float | None = None
    """Time without a request after which it is unloaded; ``None``: never."""
    wait_seconds: float = 60.0
    """Longest wait of a request for a load."""
    recipe: object = field(default_factory=object)
    """An entry that replaces one with an equal recipe keeps its engine."""
    renew: Callable[[ManagedEngine], None] | None = None
    """Gives an engine that is kept what its recipe leaves open."""


@dataclass(slots=True, eq=False)
class ModelSlot:
    """The place of one model: its engine while there is one, and who uses it.

    One that is ``leaving`` serves those who have it already, and nobody else.
    """

    entry: FleetEntry
    engine: ManagedEngine | None = None
    facts: ModelFacts | None = None  # of the engine, as they were last
    loading: asyncio.Task[ManagedEngine] | None = None
    uses: int = 0
    used_at: float = field(default_factory=time.monotonic)
    awaited: deque[float] = field(default_factory=deque)  # until when requests' next steps are
    failure: str = ""
    first_delay: float = 1.0
    failures: int = 0  # in a row
    retry_at: float = 0.0
    idle: asyncio.TimerHandle | None = None
    leaving: bool = False
    edition: Edition = field(default_factory=lambda: Edition(next(_numbers)))
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # set, and replaced

    @property
    def empty(self) -> bool:
        """Return whether nothing is loaded or loading, and no request uses it."""
        return self.engine is None and self.loading is None and not self.uses

    @property
    def serves(self) -> bool:
        """Return whether its engine is loaded, or will be loaded again without a new engine."""
        if self.engine is None or self.loading is not None:
            return False
        return self.engine.status().state is not EngineState.ABSENT

    @property
    def idle_seconds(self) -> float | None:
        """Return how long it may be unused before it is unloaded; ``None`` for no limit."""
        return LEAVING_SECONDS if self.leaving else self.entry.idle_seconds

    @property
    def slots(self) -> int:
        """Return the number of concurrent requests, as far as it is known now."""
        return self.engine.slots if self.engine is not None else self.entry.slots

    def status(self) -> EngineStatus:
        """Return the current status."""
        absent = EngineState.FAILED if self.failure else EngineState.ABSENT
        status = (
            self.engine.status()
            if self.engine is not None
            else EngineStatus(self.entry.model, absent, self.entry.slots, detail=self.failure)
        )
        if self.loading is not None and status.state is not EngineState.LOADING:
            return replace(status, state=EngineState.LOADING, detail="")
        return status

    @property
    def unused(self) -> bool:
        """Return whether the model is loaded and no request needs it now."""
        return self.engine is not None and self.loading is None and not self.uses

    @property
    def awaited_until(self) -> float:
        """Return the time until which the next step of a request is expected."""
        return self.awaited[-1] if self.awaited else 0.0

    def begin_step(self, *, first: bool) -> None:
        """A step of a request begins, which one before it has announced, unless it is the first."""
        self.uses += 1
        if self.awaited and not first:
            _ = self.awaited.popleft()

    def end_step(self, *, last: bool) -> None:
        """A step of a request has ended; another one follows soon, unless it was the last."""
        self.uses -= 1
        self.used_at = time.monotonic()
        while self.awaited and self.awaited[0] <= self.used_at:
            _ = self.awaited.popleft()
        if not last:
            self.awaited.append(self.used_at + LEAVING_SECONDS)

    def renew(self) -> None:
        """Give the engine, if there is one, what the entry says now."""
        if self.engine is not None and self.entry.renew is not None:
            self.entry.renew(self.engine)

    def note_facts(self, facts: ModelFacts) -> None:
        """Have these facts, which are the same object as long as nothing has changed."""
        if facts is not self.facts:
            self.facts = facts
            self.edition = self.edition._replace(facts=next(_numbers))
            self.changed.set()
            self.changed = asyncio.Event()

    def note_success(self) -> None:
        """Record that a load has succeeded."""
        self.failure, self.failures = "", 0

    def note_failure(self, failure: BaseException) -> None:
        """Record that a load has failed; the next may be tried after a while."""
        self.failure = str(failure) or type(failure).__name__
        self.retry_at = time.monotonic() + min(self.first_delay * 2**self.failures, _LAST_DELAY)
        self.failures = min(self.failures + 1, 16)
