"""Requests under way at a provider, and how many there may be."""

from __future__ import annotations


class RequestSlots:
    """The slots of one provider, counted in this process; ``most`` of ``None`` bounds nothing."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._taken = 0

    @property
    def taken(self) -> int:
        """Requests under way."""
        return self._taken

    @property
    def spares(self) -> bool:
        """Return true if a quarter of the slots, and at least one, is free."""
        most = self.most
        return most is None or (self.taken < most and (most - self.taken) * 4 >= most)

    def take(self) -> bool:
        """Take a slot; false where none is free."""
        if self.most is not None and self._taken >= self.most:
            return False
        self._taken += 1
        return True

    def give_back(self) -> None:
        self._taken -= 1
