"""Requests under way that several processes count together."""

from __future__ import annotations

from collections.abc import Iterable

from causerie.providers.request_slots import RequestSlots
from causerie.workers.layout import SLOTS_WORDS
from causerie.workers.shared_memory import SharedMemory


class SharedRequestSlots(RequestSlots):
    """The slots at a place of the shared memory: a word for each process, which it alone writes."""

    def __init__(self, memory: SharedMemory, at: int, member: int, most: int | None) -> None:
        self.most = most
        self._memory = memory
        self._numbers = memory.numbers
        self._at = at
        self._own = at + member

    @property
    def taken(self) -> int:
        """Requests under way, of all processes."""
        return sum(self._numbers[self._at : self._at + SLOTS_WORDS])

    def take(self) -> bool:
        """Take a slot; false where no process has left one."""
        if self.most is None:
            self._numbers[self._own] += 1
            return True
        with self._memory:  # nobody else takes one meanwhile
            free = self.taken < self.most
            self._numbers[self._own] += free
        return free

    def give_back(self) -> None:
        """The slot is free again."""
        self._numbers[self._own] -= 1


def forget(memory: SharedMemory, places: Iterable[int], member: int) -> None:
    """Take back the slots of a process that has ended."""
    for at in places:
        memory.numbers[at + member] = 0
