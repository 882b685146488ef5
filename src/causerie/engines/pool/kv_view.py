"""View of what one cache of a member holds, as far as its events say.

Hashes of vLLM are only names here: an event names the tokens of each block, from which the block of
the prefix index follows, and a removal names the hash. Batches are numbered. One that is missing
leaves nothing certain, so the view begins anew with nothing; what was stored before and is still
there is unknown then, and the view is not ``complete``.
"""

from __future__ import annotations

from collections.abc import Sequence

from causerie.engines.pool.kv_events import Cleared, EventBatch, Removed, Stored, UnreadableEvents
from causerie.engines.pool.prefix_index import BLOCK, PrefixIndex, extended, root


class KvView:
    """Of the cache that is called ``name`` in the index, and is one of ``member``.

    What was sent to the member is in the index by its name; blocks that are gone are taken from
    there too.
    """

    def __init__(self, index: PrefixIndex, name: str, member: str) -> None:
        self.name = name
        self._member = member
        self.complete = False
        """Return whether every block that is there is known."""
        self.block_size = 0
        """Of the cache, in tokens; 0 while nothing was stored."""
        self.salted = False
        """Events name the salts of prompts, which are their scopes."""
        self._index = index
        self._next: int | None = None  # number of the next batch
        self._ts = 0.0  # the latest of its batches
        self._blocks: dict[int, tuple[int, ...]] = {}  # by the hash of vLLM's hash
        self._copies: dict[int, int] = {}  # beyond the first one of a block
        self._group: int | None = None

    def __len__(self) -> int:
        """Return the number of blocks of the prefix index."""
        return len(self._blocks) * max(self.block_size // BLOCK, 1)

    def begin(self) -> None:
        """Take the cache as empty, unless something is known of it: nothing was published yet."""
        if self._next is None:
            self._next, self.complete = 0, True

    def forget(self) -> None:
        """Begin anew: nothing is known."""
        self._next = None
        self._reset(complete=False)

    def missing(self, number: int, batch: EventBatch) -> int | None:
        """Return the first batch that is missing before this one, or ``None``."""
        if self._next is None or self._other_publisher(number, batch):
            return 0 if number else None
        return self._next if number > self._next else None

    def receive(self, number: int, batch: EventBatch) -> None:
        """Apply a batch, unless it was before; raise :class:`UnreadableEvents`."""
        if self._next is None or self._other_publisher(number, batch):
            self._reset(complete=number == 0)
        elif number < self._next:
            return
        elif number > self._next:
            self._reset(complete=False)
        self._next, self._ts = number + 1, max(self._ts, batch.ts)
        for event in batch.events:
            if isinstance(event, Cleared):
                self._reset(complete=True)
                self._ts = batch.ts
                self._index.forget(self._member)
            elif isinstance(event, Stored):
                self._store(event)
            else:
                self._remove(event)

    def _other_publisher(self, number: int, batch: EventBatch) -> bool:
        """Return whether the numbers start at 0 again: the server was started again."""
        return self._next is not None and number < self._next and batch.ts > self._ts

    def _reset(self, *, complete: bool) -> None:
        self.complete = complete
        self._ts = 0.0
        self._group = None
        self._blocks.clear()
        self._copies.clear()
        self._index.forget(self.name)

    def _store(self, event: Stored) -> None:
        size, hashes = event.block_size, event.block_hashes
        if not event.of_text or not self._of_main_group(event):
            return
        if size < 1 or size % BLOCK or len(event.token_ids) != size * len(hashes):
            raise UnreadableEvents(f"blocks of {size} tokens cannot be compared with those here")
        self.block_size = size
        self.salted = self.salted or bool(event.salt)
        parent = event.parent_block_hash
        before = root(event.salt) if parent is None else self._end_of(parent)
        if before is None:
            return  # behind a block that was stored before this view began
        try:
            blocks = extended(before, event.token_ids)
        except (OverflowError, TypeError) as error:
            raise UnreadableEvents(f"a token id is none: {error}") from error
        self._index.add(self.name, blocks)
        each = size // BLOCK
        for at, name in enumerate(hashes):
            key = hash(name)
            if key in self._blocks:
                self._copies[key] = self._copies.get(key, 0) + 1
            else:
                self._blocks[key] = tuple(blocks[at * each : (at + 1) * each])

    def _end_of(self, parent: int | bytes) -> int | None:
        """Return the last block of the parent, ``None`` if unknown."""
        blocks: Sequence[int] | None = self._blocks.get(hash(parent))
        return None if blocks is None else blocks[-1]

    def _of_main_group(self, event: Stored) -> bool:
        """Return whether it is of the first group of caches that prompts are read from."""
        if self._group is None:
            self._group = event.group_idx
        return event.group_idx == self._group

    def _remove(self, event: Removed) -> None:
        if not event.of_text or event.group_idx != self._group:
            return
        for name in event.block_hashes:
            key = hash(name)
            if copies := self._copies.pop(key, 0):
                if copies > 1:
                    self._copies[key] = copies - 1
            elif (blocks := self._blocks.pop(key, None)) is not None:
                self._index.remove(self.name, blocks)
                self._index.remove(self._member, blocks)
