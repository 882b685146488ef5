"""The slots of the engine: which prompt each holds, and which one a request takes.

The engine would choose a slot by itself, but it overwrites what other conversations left there.
Here every request names its slot, so that no prompt is lost that memory has room for:

1. A free slot that holds the beginning of the prompt continues, in place. If another conversation
   loses its end by that (one with the same instructions), that is copied to the store before.
2. If the store has more of the prompt, its copy goes to the slot that was used longest ago. What
   that slot holds is copied to the store before.
3. A prompt that nothing is known of takes the slot that was used longest ago, likewise.

A prompt reuses nothing of another scope. The engine compares tokens by itself, so a slot that goes
from one scope to another is emptied in between.

Slots may share one cache that does not hold a whole context of each. A request that begins reserves
what it may come to hold. Slots that nobody uses make room for that: those used longest ago are
copied to the store and emptied. Otherwise the engine would empty some itself, and not copy them.
Requests whose reservations do not fit together must not be sent: the engine would fail all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from causerie.engines.base import EngineFailed
from causerie.engines.llamacpp.prompt_store import (
    LEAST_TOKENS,
    Engine,
    PromptStore,
    StoredPrompt,
)
from causerie.engines.packed_tokens import TOKEN_BYTES, common_tokens, packed, token_count

_REWRITTEN = 4  # tokens at the end of a prompt that its next turn may write otherwise


@dataclass(slots=True)
class Slot:
    """One slot, and what is known of its content while a request has it."""

    id: int
    tokens: bytes = b""
    """What it held when the last request left it, packed."""
    scope: str = ""
    """Cache scope of the tokens that it holds."""
    empty: bool = True
    """True if it holds no token, known or not."""
    asked: int = 0
    """Tokens of that request's prompt."""
    busy: bool = False
    used: int = 0
    cells: int = 0
    """Tokens of the cache that it may come to hold, or may have left."""
    finished: bool = False
    """The engine has completed the request, and computes no more for it."""
    read: int = 0
    """Tokens of the prompt that the engine has read."""
    ahead: int = 0
    """Tokens of them that were computed ahead of the request, and so are new in it."""
    made: list[int] = field(default_factory=list)
    """Tokens that the engine has generated."""

    def shares(self, scope: str, tokens: bytes) -> int:
        """Return how many tokens of a prompt it holds, for requests of a scope."""
        return common_tokens(self.tokens, tokens) if self.scope == scope else 0

    def continued_by(self, shared: int) -> bool:
        """Return whether a prompt that shares so many tokens is the next of its conversation."""
        return shared >= self.asked - _REWRITTEN

    def begin(self, shared: int) -> None:
        """Begin a request of whose prompt it holds ``shared`` tokens."""
        self.read, self.ahead, self.made = shared, 0, []

    def read_ahead(self, count: int, found: int) -> None:
        """Note that the first ``count`` tokens were read, of which it had ``found``."""
        self.read, self.ahead, self.made = count, count - found, []
        self.finished = False  # the request itself is still to come

    def leave(self, prompt: bytes, used: int) -> None:
        """End a request; the last token that was generated has not been computed."""
        self.asked = token_count(prompt)
        self.tokens = prompt[: self.read * TOKEN_BYTES]
        if self.made:
            self.tokens = prompt + packed(self.made[:-1])
        if self.finished:  # else the engine may be computing still
            self.cells = token_count(self.tokens)
        self.made, self.busy, self.used = [], False, used


class Slots:
    """All slots of one child process, which hold ``cache_tokens`` together.

    ``store`` outlives the child.
    """

    def __init__(self, count: int, cache_tokens: int, store: PromptStore) -> None:
        self._slots = [Slot(id) for id in range(count)]
        self._cache_tokens = cache_tokens
        self._store = store
        self._free = asyncio.Semaphore(count)
        self._choosing = asyncio.Lock()  # also while others make room for the one that was chosen
        self._uses = 0

    @property
    def streaming(self) -> bool:
        """Return whether a request has had its first token, and not yet its last."""
        return any(slot.made for slot in self._slots)

    @asynccontextmanager
    async def hold(
        self, engine: Engine, prompt: Sequence[int], max_tokens: int, scope: str = ""
    ) -> AsyncIterator[Slot]:
        """Yield the slot for a prompt and at most ``max_tokens`` behind it, once one is free.

        Raises :class:`EngineFailed` where they do not fit next to what runs.
        """
        tokens = packed(prompt)
        async with self._free:
            cells = len(prompt) + max_tokens
            slot, shared, stored = await self._taken(engine, scope, tokens, cells)
            try:
                slot.begin(await self._prepared(engine, slot, scope, shared, stored))
                yield slot
            finally:
                self._uses += 1
                slot.leave(tokens, self._uses)

    async def _taken(
        self, engine: Engine, scope: str, tokens: bytes, cells: int
    ) -> tuple[Slot, int, StoredPrompt | None]:
        """Take the slot that is best for a prompt; others make room for its ``cells``."""
        async with self._choosing:
            free = [slot for slot in self._slots if not slot.busy]
            slot, shared, stored = self._chosen(free, scope, tokens)
            before = slot.cells
            slot.busy, slot.finished, slot.cells = True, False, cells
            try:
                await self._make_room(engine, stored)
            except BaseException:
                slot.busy, slot.finished, slot.cells = False, True, before
                raise
            slot.begin(0)
            return slot, shared, stored

    async def _make_room(self, engine: Engine, needed: StoredPrompt | None) -> None:
        """Empty slots that nobody uses until the cache has room for all that may come."""
        while sum(slot.cells for slot in self._slots) > self._cache_tokens:
            idle = [slot for slot in self._slots if slot.cells and not slot.busy]
            if not idle:
                raise EngineFailed(
                    f"the running requests may need more than the {self._cache_tokens} tokens that "
                    "the engine's cache holds"
                )
            oldest = min(idle, key=lambda slot: slot.used)
            await self._store.save(engine, oldest.id, oldest.scope, oldest.tokens, needed)
            await _erase(engine, oldest)
            oldest.cells = 0

    def _chosen(
        self, free: Sequence[Slot], scope: str, tokens: bytes
    ) -> tuple[Slot, int, StoredPrompt | None]:
        """Return the slot, the tokens of the prompt that it will hold, and where they come from."""
        found = [(slot.shares(scope, tokens), slot) for slot in free]
        shared, own = max(found, key=lambda each: (each[0], -each[1].used))
        stored, more = self._store.best(scope, tokens)
        oldest = min(free, key=lambda slot: slot.used)
        if stored is not None and more >= shared + LEAST_TOKENS:
            return oldest, more, stored
        goes_on = shared > 0 and own.continued_by(shared)
        return (own, shared, None) if goes_on or shared >= LEAST_TOKENS else (oldest, 0, None)

    async def _prepared(
        self, engine: Engine, slot: Slot, scope: str, shared: int, stored: StoredPrompt | None
    ) -> int:
        """Make the slot hold what was found; return how many tokens of the prompt it has then."""
        lost = token_count(slot.tokens) - (0 if stored else shared)
        goes_on = stored is None and slot.continued_by(shared)
        if lost >= LEAST_TOKENS and not goes_on:
            await self._store.save(engine, slot.id, slot.scope, slot.tokens, stored)
        if slot.scope != scope and not slot.empty:
            await _erase(engine, slot)
        slot.scope, slot.empty = scope, False
        if stored is None:
            return shared
        return shared if await self._store.restore(engine, slot.id, stored) else 0


async def _erase(engine: Engine, slot: Slot) -> None:
    await engine.ask("POST", f"/slots/{slot.id}?action=erase")
    slot.tokens, slot.asked, slot.empty = b"", 0, True
