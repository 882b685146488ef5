"""Admission to one model: run a request, queue it, or refuse it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from causerie.errors import InvalidRequest, Overloaded


@dataclass(slots=True)
class _Waiting:
    amount: int
    turn: asyncio.Future[None]


@dataclass(slots=True)
class _Capacity:
    size: Callable[[], int]
    """Returns the present amount; it may change when a model is loaded."""
    taken: int = 0
    queue: deque[_Waiting] = field(default_factory=deque)

    def take_now(self, amount: int) -> bool:
        """Take ``amount`` if it is free and no request waits; return whether it was taken."""
        if self.queue or not self._is_amount_free(amount):
            return False
        self.taken += amount
        return True

    async def take(self, amount: int, seconds: float) -> None:
        """Queue until ``amount`` is free; raise :class:`TimeoutError` after ``seconds``."""
        entry = _Waiting(amount, asyncio.get_running_loop().create_future())
        self.queue.append(entry)
        try:
            async with asyncio.timeout(seconds):
                await entry.turn
        except (TimeoutError, asyncio.CancelledError):
            if entry.turn.done() and not entry.turn.cancelled():
                self.give_back(entry.amount)
            elif entry in self.queue:
                self.queue.remove(entry)
                self.admit()
            raise

    def give_back(self, amount: int) -> None:
        self.taken -= amount
        self.admit()

    def admit(self) -> None:
        """Give queued requests their amounts, in order, until one has to wait for more."""
        while self.queue and self._is_amount_free(self.queue[0].amount):
            entry = self.queue.popleft()
            if not entry.turn.done():
                self.taken += entry.amount
                entry.turn.set_result(None)

    def _is_amount_free(self, slots_or_tokens: int) -> bool:
        return self.taken + slots_or_tokens <= max(self.size(), 1)


class SlotQueue:
    """Admission to one model: as many requests run as it has slots, and others queue in order.

    ``cache_tokens`` returns the tokens of the cache that the slots share, 0 if there is no limit.
    """

    def __init__(
        self,
        model: str,
        slots: Callable[[], int],
        max_waiting: int,
        max_wait_seconds: float,
        cache_tokens: Callable[[], int] = lambda: 0,
    ) -> None:
        self.max_waiting = max_waiting
        self.max_wait_seconds = max_wait_seconds
        self._model_name = model
        self._slot_allocator = _Capacity(slots)
        self._cache_token_allocator = _Capacity(cache_tokens)
        self._mean_hold_seconds = 1.0  # seconds that a place is held, smoothed

    @property
    def waiting(self) -> int:
        return len(self._slot_allocator.queue) + len(self._cache_token_allocator.queue)

    @property
    def spares(self) -> bool:
        """Return whether nothing waits and a quarter of the slots, at least one, is free."""
        slots, taken = max(self._slot_allocator.size(), 1), self._slot_allocator.taken
        return not self.waiting and (slots - taken) * 4 >= slots and taken < slots

    @asynccontextmanager
    async def enter(self, places: int = 1) -> AsyncIterator[float]:
        """Hold ``places`` (one for each choice) during the block; yield the seconds in the queue.

        Entering raises :class:`Overloaded` if the queue is full or after ``max_wait_seconds`` in
        it, and :class:`InvalidRequest` for more places than slots.
        """
        arrived = started = time.monotonic()
        if not self._slot_allocator.take_now(places):
            await self._queue_for_slots(places)
            started = time.monotonic()
        try:
            yield started - arrived
        finally:
            self._mean_hold_seconds += 0.2 * (time.monotonic() - started - self._mean_hold_seconds)
            self._slot_allocator.give_back(places)

    async def _queue_for_slots(self, count: int) -> None:
        slots = self._slot_allocator.size()
        if count > max(slots, 1):
            raise InvalidRequest(
                f"`n` is {count}, but this model answers {slots} at the same time.", param="n"
            )
        self._slot_allocator.admit()  # there may be more slots than when the others queued
        if self._slot_allocator.take_now(count):
            return
        if len(self._slot_allocator.queue) >= self.max_waiting:
            raise self._build_overload_error(f"its queue (at most {self.max_waiting}) is full")
        try:
            await self._slot_allocator.take(count, self.max_wait_seconds)
        except TimeoutError:
            reason = f"no place became free in {self.max_wait_seconds:g} s"
            raise self._build_overload_error(reason) from None

    @asynccontextmanager
    async def reserve(self, choices: int, tokens: int) -> AsyncIterator[None]:
        """Hold ``tokens`` tokens of the cache for each of the ``choices`` during the block.

        Raises :class:`Overloaded` after ``max_wait_seconds``, and :class:`InvalidRequest` for more
        choices than the cache can hold.
        """
        size, amount = self._cache_token_allocator.size(), choices * tokens
        if not size:
            yield
            return
        if amount > size:
            raise InvalidRequest(
                f"`n` is {choices}, and each choice may need {tokens} tokens with the prompt, but "
                f"this model holds {size} at the same time. Lower `n` or `max_tokens`.",
                param="n",
            )
        if not self._cache_token_allocator.take_now(amount):
            try:
                await self._cache_token_allocator.take(amount, self.max_wait_seconds)
            except TimeoutError:
                free = f"room for {amount} tokens in its cache"
                seconds = f"{self.max_wait_seconds:g} s"
                raise self._build_overload_error(f"no {free} became free in {seconds}") from None
        try:
            yield
        finally:
            self._cache_token_allocator.give_back(amount)

    def _build_overload_error(self, reason: str) -> Overloaded:
        turns = (self.waiting + 1) / max(self._slot_allocator.size(), 1)
        wait = min(max(1, round(turns * self._mean_hold_seconds)), 60)
        return Overloaded(
            f"The model {self._model_name} is busy: {reason}. Try again in {wait} s.",
            retry_after=wait,
        )
