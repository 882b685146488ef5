"""May a request start now, or must it wait, or go away.

One :class:`SlotQueue` a model. It counts requests when they arrive, before any work
is done for them: as many run as the engine has slots, a bounded number waits
in order, and the next is told at once to come back later.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from causerie.errors import InvalidRequest, Overloaded


class SlotLease:
    """The places of one request. ``waited`` is how long it queued, in seconds."""

    __slots__ = ("_places", "_queue", "_started", "waited")

    def __init__(self, queue: SlotQueue, places: int) -> None:
        self._queue = queue
        self._places = places
        self._started = 0.0
        self.waited = 0.0

    async def __aenter__(self) -> SlotLease:
        if self._queue.take_now(self._places):
            self._started = time.monotonic()
            return self
        arrived = time.monotonic()
        await self._queue.take(self._places)
        self._started = time.monotonic()
        self.waited = self._started - arrived
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._queue.give_back(self._places, time.monotonic() - self._started)


@dataclass(slots=True)
class _Waiting:
    places: int
    turn: asyncio.Future[None]


@dataclass(slots=True)
class SlotQueue:
    """Admission to one model."""

    model: str
    slots: Callable[[], int]
    """Returns the present number of slots; it may change when a model is loaded."""
    max_waiting: int
    """Number of requests that may queue."""
    max_wait_seconds: float
    """Longest wait of one request."""
    _taken: int = 0
    _queue: deque[_Waiting] = field(default_factory=deque)
    _recent: float = 1.0  # seconds that a place is held, smoothed

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def spares(self) -> bool:
        """Return true if a quarter of the slots, and at least one, is free."""
        slots = max(self.slots(), 1)
        return not self._queue and (slots - self._taken) * 4 >= slots and self._taken < slots

    def enter(self, places: int = 1) -> SlotLease:
        """Hold ``places`` (one for each choice) while the block runs.

        Entering raises :class:`Overloaded` at once where the queue is full, and
        after ``max_wait_seconds`` in it; :class:`InvalidRequest` for more places
        than there are.
        """
        return SlotLease(self, places)

    def take_now(self, places: int) -> bool:
        """Take places that are free, unless others wait for them; whether there were."""
        if self._queue or self._taken + places > (self.slots() or 1):
            return False
        self._taken += places
        return True

    def give_back(self, places: int, held_seconds: float) -> None:
        """Places are free again."""
        self._recent += 0.2 * (held_seconds - self._recent)
        self._release(places)

    async def take(self, places: int) -> None:
        """Queue for places; raises as :meth:`enter` does."""
        if places > max(self.slots(), 1):
            raise InvalidRequest(
                f"`n` is {places}, but this model answers {self.slots()} at the same time.",
                param="n",
            )
        self._admit()  # there may be more slots than when the others queued
        if self.take_now(places):
            return
        if len(self._queue) >= self.max_waiting:
            raise self._full(f"its queue (at most {self.max_waiting}) is full")
        entry = _Waiting(places, asyncio.get_running_loop().create_future())
        self._queue.append(entry)
        try:
            async with asyncio.timeout(self.max_wait_seconds):
                await entry.turn
        except TimeoutError:
            self._leave(entry)
            raise self._full(f"no place became free in {self.max_wait_seconds:g} s") from None
        except asyncio.CancelledError:
            self._leave(entry)
            raise

    def _leave(self, entry: _Waiting) -> None:
        """Give up waiting; a place that was handed over meanwhile goes to the next."""
        if entry.turn.done() and not entry.turn.cancelled():
            self._release(entry.places)
        elif entry in self._queue:
            self._queue.remove(entry)
            self._admit()

    def _release(self, places: int) -> None:
        self._taken -= places
        self._admit()

    def _admit(self) -> None:
        while self._queue and self._fits(self._queue[0].places):
            entry = self._queue.popleft()
            if not entry.turn.done():
                self._taken += entry.places
                entry.turn.set_result(None)

    def _fits(self, places: int) -> bool:
        return self._taken + places <= max(self.slots(), 1)

    def _full(self, why: str) -> Overloaded:
        turns = (len(self._queue) + 1) / max(self.slots(), 1)
        wait = min(max(1, round(turns * self._recent)), 60)
        return Overloaded(
            f"The model {self.model} is busy: {why}. Try again in {wait} s.", retry_after=wait
        )
