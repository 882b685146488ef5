"""Requests under way that several processes count together."""

from __future__ import annotations

from collections.abc import Iterable

from causerie.providers.request_slots import RequestSlots
from causerie.workers.layout import SLOTS_WORDS
from causerie.workers.shared_memory import MEMBERS, SharedMemory

_TAKEN = 0  # sum of the members
_MEMBERS = SLOTS_WORDS - MEMBERS


class SharedRequestSlots(RequestSlots):
    """The slots at a place of the shared memory, as the process ``member`` takes them."""

    def __init__(self, memory: SharedMemory, at: int, member: int, most: int | None) -> None:
        self.most = most
        self._memory = memory
        self._numbers = memory.numbers
        self._at = at
        self._own = at + _MEMBERS + member

    @property
    def taken(self) -> int:
        """Requests under way, of all processes."""
        return self._numbers[self._at + _TAKEN]

    def take(self) -> bool:
        """Take a slot; false where no process has left one."""
        with self._memory:
            if self.most is not None and self.taken >= self.most:
                return False
            self._add(1)
        return True

    def give_back(self) -> None:
        """The slot is free again."""
        with self._memory:
            self._add(-1)

    def _add(self, more: int) -> None:
        self._numbers[self._own] += more
        self._numbers[self._at + _TAKEN] += more


def forget(memory: SharedMemory, places: Iterable[int], member: int) -> None:
    """Take back the slots of a process that has ended."""
    numbers = memory.numbers
    with memory:
        for at in places:
            numbers[at + _MEMBERS + member] = 0
            numbers[at + _TAKEN] = sum(numbers[at + _MEMBERS : at + _MEMBERS + MEMBERS])
