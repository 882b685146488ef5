"""What a server keeps of the prompts that it has read: the blocks that were used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class Cache:
    """Of ``size`` blocks; ``evicted`` are those that the last prompt drove out."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self.evicted: list[int] = []

    def read(self, blocks: Sequence[int]) -> int:
        """Return how many of the first blocks were there; now all are."""
        held = next((at for at, one in enumerate(blocks) if one not in self._blocks), len(blocks))
        for block in reversed(blocks):  # the beginning is used last, as it is freed last
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        self.evicted = []
        while len(self._blocks) > self._size:
            self.evicted.append(self._blocks.popitem(last=False)[0])
        return held
