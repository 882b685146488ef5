"""The slots of the engine: which prompt each holds, and which one a request takes.

Every request names its slot, so that no prompt is lost that memory has room for; what leaves a
slot goes to the store. A request that begins reserves what it may come to hold of the cache:
where requests do not fit together, the engine would fail all of them. The rules, and why, are in
`docs/internals/design/prompts-and-caches.md` and `engines.md` there.

The store keeps key-value states in files of anonymous memory, which the engine writes and reads.
They belong to this process, so that they outlive an engine that crashes. They are used again and
never closed while an engine runs: it names them by their descriptors, which must not come to
mean another file. A state that is not what the store takes it for costs time, never a wrong
answer: it holds its own tokens, and the engine compares them.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from causerie.engines.base import EngineFailed
from causerie.engines.machine import group_number, own_groups
from causerie.engines.prefill import TOKEN_BYTES, common_tokens, packed, token_count

if TYPE_CHECKING:
    from causerie.engines.process import EngineClient

log = structlog.get_logger(__name__)

LEAST_TOKENS = 64  # fewer are computed sooner than a state is copied
_LEAST_BYTES = LEAST_TOKENS * TOKEN_BYTES
_MOST_STATES = 256  # each is an open file
_MEMORY = Path("/proc/meminfo")


def prompt_files_folder(process: int | str) -> str:
    """Return the folder of a process's open files, where an engine finds stored prompts."""
    return f"/proc/{process}/fd/"


def can_store_prompts() -> bool:
    """Return whether this system has files of anonymous memory that a child can open."""
    return sys.platform == "linux" and os.access("/proc/self/fd", os.X_OK)


def free_memory() -> int:
    """Return the free bytes of this machine, or of a control group of the process if fewer."""
    free = 0
    for line in _MEMORY.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            free = int(value.split()[0]) * 1024
    for group in own_groups():
        limit, used = (group_number(group / f"memory.{name}") for name in ("max", "current"))
        if limit is not None and used is not None:
            free = min(free, max(limit - used, 0))
    return free


# `tokens` are packed, `size` is in bytes, `used` a count; `scope` is who may use it.
@dataclass(slots=True)
class _StoredPrompt:
    file: int
    scope: str
    tokens: bytes
    size: int
    used: int


@dataclass(slots=True)
class PromptStore:
    """Saved slot states. ``limit`` is in bytes, 0 for none; ``token_bytes`` estimates a token's."""

    limit: int
    token_bytes: int
    _stored_prompts: list[_StoredPrompt] = field(default_factory=list)
    _spare_files: list[int] = field(default_factory=list)  # files without a state
    _use_counter: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def size(self) -> int:
        return sum(state.size for state in self._stored_prompts)

    def best(self, scope: str, prompt: bytes) -> tuple[_StoredPrompt | None, int]:
        """Return the scope's stored prompt that shares most tokens with a prompt, and how many."""
        head = prompt[:_LEAST_BYTES]
        alike = [state for state in self._prompts_of_scope(scope) if state.tokens.startswith(head)]
        shared = [(common_tokens(state.tokens, prompt), state.used, state) for state in alike]
        tokens, _, state = max(shared, key=lambda each: each[:2], default=(0, 0, None))
        return state, tokens

    def covers(self, scope: str, tokens: bytes) -> bool:
        return any(state.tokens.startswith(tokens) for state in self._prompts_of_scope(scope))

    async def save(
        self,
        engine: EngineClient,
        slot: int,
        scope: str,
        tokens: bytes,
        needed: _StoredPrompt | None = None,
    ) -> None:
        """Keep the state of a slot with these tokens if it is worth it; never drop ``needed``."""
        expected = token_count(tokens) * self.token_bytes
        if len(tokens) < _LEAST_BYTES or self.covers(scope, tokens):
            return
        for state in [
            one for one in self._prompts_of_scope(scope) if tokens.startswith(one.tokens)
        ]:
            self._drop_prompt(state)
        if expected > self.limit:
            return
        self._evict_prompts(expected, needed)
        if self.size + expected > self.limit or expected > free_memory() // 2:
            return
        file = self._spare_files.pop() if self._spare_files else os.memfd_create("prompt")
        state = _StoredPrompt(file, scope, tokens, expected, next(self._use_counter))
        try:
            body = {"filename": str(file)}
            await engine.ask("POST", f"/slots/{slot}?action=save", body)
        except BaseException as failure:
            self._clear_file(file)
            if not isinstance(failure, EngineFailed):
                raise
            log.warning("prompt not kept", reason=str(failure))
            return
        state.size = os.fstat(file).st_size
        self._stored_prompts.append(state)
        self._evict_prompts(0, needed)

    async def restore(self, engine: EngineClient, slot: int, state: _StoredPrompt) -> bool:
        """Copy a state into a slot; return whether that worked. One that fails is dropped."""
        state.used = next(self._use_counter)
        try:
            body = {"filename": str(state.file)}
            await engine.ask("POST", f"/slots/{slot}?action=restore", body)
        except EngineFailed as failure:
            log.warning("prompt not restored", reason=str(failure))
            self._drop_prompt(state)
            return False
        return True

    def close(self) -> None:
        """Give all memory back; no engine may be running that knows the files."""
        for file in (*(state.file for state in self._stored_prompts), *self._spare_files):
            os.close(file)
        self._stored_prompts, self._spare_files = [], []

    def _prompts_of_scope(self, scope: str) -> list[_StoredPrompt]:
        return [state for state in self._stored_prompts if state.scope == scope]

    def _evict_prompts(self, new_bytes: int, protected: _StoredPrompt | None) -> None:
        droppable = [state for state in self._stored_prompts if state is not protected]
        droppable.sort(key=lambda state: state.used, reverse=True)
        while droppable and (
            self.size + new_bytes > self.limit or len(self._stored_prompts) >= _MOST_STATES
        ):
            self._drop_prompt(droppable.pop())

    def _drop_prompt(self, state: _StoredPrompt) -> None:
        # Two restores of one state may both fail.
        if any(one is state for one in self._stored_prompts):
            self._stored_prompts = [one for one in self._stored_prompts if one is not state]
            self._clear_file(state.file)

    def _clear_file(self, file: int) -> None:
        os.ftruncate(file, 0)
        self._spare_files.append(file)


_REWRITTEN = 4  # tokens at the end of a prompt that its next turn may write otherwise


@dataclass(slots=True)
class Slot:
    """One slot, and what is known of its content while a request has it."""

    id: int
    tokens: bytes = b""  # what it held when the last request left it, packed
    scope: str = ""  # cache scope of the tokens that it holds
    empty: bool = True  # true if it holds no token, known or not
    asked: int = 0  # tokens of that request's prompt
    busy: bool = False
    used: int = 0
    cells: int = 0  # tokens of the cache that it may come to hold, or may have left
    finished: bool = False  # the engine has completed the request, and computes no more for it
    read: int = 0  # tokens of the prompt that the engine has read
    ahead: int = 0  # tokens of them that were computed ahead of the request, and so are new in it
    made: list[int] = field(default_factory=list)  # tokens that the engine has generated

    def shares(self, scope: str, tokens: bytes) -> int:
        """Return how many first tokens of a prompt the slot holds; 0 for another scope."""
        return common_tokens(self.tokens, tokens) if self.scope == scope else 0

    def continued_by(self, shared: int) -> bool:
        """Return whether a prompt that shares so many tokens continues the slot's conversation."""
        return shared >= self.asked - _REWRITTEN

    def begin(self, shared: int) -> None:
        self.read, self.ahead, self.made = shared, 0, []

    def read_ahead(self, count: int, found: int) -> None:
        """Note that the first ``count`` tokens were read; the slot had held ``found`` of them."""
        self.read, self.ahead, self.made = count, count - found, []
        self.finished = False  # the request itself is still to come

    def leave(self, prompt: bytes, used: int) -> None:
        """End a request; the slot holds its tokens but the last one that was generated."""
        self.asked = token_count(prompt)
        self.tokens = prompt[: self.read * TOKEN_BYTES]
        if self.made:
            self.tokens = prompt + packed(self.made[:-1])
        if self.finished:  # else the engine may be computing still
            self.cells = token_count(self.tokens)
        self.made, self.busy, self.used = [], False, used


class Slots:
    """All slots of one child, which hold ``cache_tokens`` together; ``store`` outlives it."""

    def __init__(self, count: int, cache_tokens: int, store: PromptStore) -> None:
        self._slots = [Slot(id) for id in range(count)]
        self._cache_tokens = cache_tokens
        self._prompt_store = store
        self._free_slot_semaphore = asyncio.Semaphore(count)
        self._slot_lock = asyncio.Lock()  # also while others make room for the one that was chosen
        self._use_counter = itertools.count(1)

    @property
    def streaming(self) -> bool:
        """Return whether a request has had its first token, and not yet its last."""
        return any(slot.made for slot in self._slots)

    @asynccontextmanager
    async def hold(
        self, engine: EngineClient, prompt: Sequence[int], max_tokens: int, scope: str = ""
    ) -> AsyncIterator[Slot]:
        """Yield a free slot with room for the request; raise :class:`EngineFailed` without room."""
        tokens = packed(prompt)
        async with self._free_slot_semaphore:
            cells = len(prompt) + max_tokens
            slot, shared, stored = await self._choose_and_reserve_slot(engine, scope, tokens, cells)
            try:
                slot.begin(
                    await self._prepare_slot_and_count_held(engine, slot, scope, shared, stored)
                )
                yield slot
            finally:
                slot.leave(tokens, next(self._use_counter))

    async def _choose_and_reserve_slot(
        self, engine: EngineClient, scope: str, tokens: bytes, cells: int
    ) -> tuple[Slot, int, _StoredPrompt | None]:
        async with self._slot_lock:
            free = [slot for slot in self._slots if not slot.busy]
            slot, shared, stored = self._choose_slot_and_stored_prompt(free, scope, tokens)
            before = slot.cells
            slot.busy, slot.finished, slot.cells = True, False, cells
            try:
                await self._evict_idle_slots(engine, stored)
            except BaseException:
                slot.busy, slot.finished, slot.cells = False, True, before
                raise
            slot.begin(0)
            return slot, shared, stored

    async def _evict_idle_slots(self, engine: EngineClient, needed: _StoredPrompt | None) -> None:
        while sum(slot.cells for slot in self._slots) > self._cache_tokens:
            idle = [slot for slot in self._slots if slot.cells and not slot.busy]
            if not idle:
                raise EngineFailed(
                    f"the running requests may need more than the {self._cache_tokens} tokens that "
                    "the engine's cache holds"
                )
            oldest = min(idle, key=lambda slot: slot.used)
            await self._prompt_store.save(engine, oldest.id, oldest.scope, oldest.tokens, needed)
            await _erase_slot(engine, oldest)
            oldest.cells = 0

    def _choose_slot_and_stored_prompt(
        self, free: Sequence[Slot], scope: str, tokens: bytes
    ) -> tuple[Slot, int, _StoredPrompt | None]:
        found = [(slot.shares(scope, tokens), slot) for slot in free]
        shared, own = max(found, key=lambda each: (each[0], -each[1].used))
        stored, more = self._prompt_store.best(scope, tokens)
        oldest = min(free, key=lambda slot: slot.used)
        if stored is not None and more >= shared + LEAST_TOKENS:
            return oldest, more, stored
        goes_on = shared > 0 and own.continued_by(shared)
        return (own, shared, None) if goes_on or shared >= LEAST_TOKENS else (oldest, 0, None)

    async def _prepare_slot_and_count_held(
        self,
        engine: EngineClient,
        slot: Slot,
        scope: str,
        shared: int,
        stored: _StoredPrompt | None,
    ) -> int:
        lost = token_count(slot.tokens) - (0 if stored else shared)
        goes_on = stored is None and slot.continued_by(shared)
        if lost >= LEAST_TOKENS and not goes_on:
            await self._prompt_store.save(engine, slot.id, slot.scope, slot.tokens, stored)
        if slot.scope != scope and not slot.empty:
            await _erase_slot(engine, slot)
        slot.scope, slot.empty = scope, False
        if stored is None:
            return shared
        return shared if await self._prompt_store.restore(engine, slot.id, stored) else 0


async def _erase_slot(engine: EngineClient, slot: Slot) -> None:
    await engine.ask("POST", f"/slots/{slot.id}?action=erase")
    slot.tokens, slot.asked, slot.empty = b"", 0, True
