"""Prompts that have left their slots: their key-value states in files of anonymous memory.

The engine writes a slot's state to such a file and reads it back. The files belong to this process,
so that they outlive an engine that crashes. They are used again and never closed while an engine
runs: it names them by their descriptors, which must not come to mean another file. A state that is
not what the store takes it for costs time, never a wrong answer: it holds its own tokens, and the
engine compares them. The store is bounded by a limit in bytes and by the memory that is free.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import structlog

from causerie.engines.base import EngineFailed
from causerie.engines.control_group import number, own_groups
from causerie.engines.packed_tokens import TOKEN_BYTES, common_tokens, token_count

log = structlog.get_logger(__name__)

LEAST_TOKENS = 64  # fewer are computed sooner than a state is copied
_LEAST_BYTES = LEAST_TOKENS * TOKEN_BYTES
_MOST_STATES = 256  # each is an open file
_MEMORY = Path("/proc/meminfo")


class Engine(Protocol):
    """The engine, asked over HTTP; raises :class:`EngineFailed`."""

    async def ask(self, method: str, path: str, body: object = None) -> Any: ...


def files_for(process: int | str) -> str:
    """Return the folder in which an engine finds the files of a process."""
    return f"/proc/{process}/fd/"


def is_possible() -> bool:
    """Return whether this system has files of anonymous memory that a child can open."""
    return sys.platform == "linux" and os.access("/proc/self/fd", os.X_OK)


def free_memory() -> int:
    """Return the bytes that this machine, or a control group of this process, has left."""
    free = 0
    for line in _MEMORY.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            free = int(value.split()[0]) * 1024
    for group in own_groups():
        limit, used = (number(group / f"memory.{name}") for name in ("max", "current"))
        if limit is not None and used is not None:
            free = min(free, max(limit - used, 0))
    return free


@dataclass(slots=True)
class StoredPrompt:
    """One state: its file, its packed tokens, its bytes, and when it was used (a count).

    ``scope`` is that of the requests that may use it.
    """

    file: int
    scope: str
    tokens: bytes
    size: int
    used: int


@dataclass(slots=True)
class PromptStore:
    """The states. ``limit`` is in bytes, 0 for none; ``token_bytes`` estimates one token's."""

    limit: int
    token_bytes: int
    _states: list[StoredPrompt] = field(default_factory=list)
    _spare: list[int] = field(default_factory=list)  # files without a state
    _uses: int = 0

    @property
    def size(self) -> int:
        """Return the bytes of all states."""
        return sum(state.size for state in self._states)

    def best(self, scope: str, prompt: bytes) -> tuple[StoredPrompt | None, int]:
        """Return the state of a scope that shares most of a packed prompt, and how many tokens."""
        head = prompt[:_LEAST_BYTES]
        alike = [state for state in self._of(scope) if state.tokens.startswith(head)]
        shared = [(common_tokens(state.tokens, prompt), state.used, state) for state in alike]
        tokens, _, state = max(shared, key=lambda each: each[:2], default=(0, 0, None))
        return state, tokens

    def covers(self, scope: str, tokens: bytes) -> bool:
        """Return whether a state of a scope holds all of these packed tokens."""
        return any(state.tokens.startswith(tokens) for state in self._of(scope))

    async def save(
        self,
        engine: Engine,
        slot: int,
        scope: str,
        tokens: bytes,
        needed: StoredPrompt | None = None,
    ) -> None:
        """Keep the state of a slot that holds these tokens, if it is worth it and has room.

        No room is made by dropping the one that is ``needed``.
        """
        expected = token_count(tokens) * self.token_bytes
        if len(tokens) < _LEAST_BYTES or self.covers(scope, tokens):
            return
        for state in [one for one in self._of(scope) if tokens.startswith(one.tokens)]:
            self._drop(state)
        if not self._has_room(expected, needed):
            return
        file = self._spare.pop() if self._spare else os.memfd_create("prompt")
        state = StoredPrompt(file, scope, tokens, expected, self._next_use())
        try:
            body = {"filename": str(file)}
            await engine.ask("POST", f"/slots/{slot}?action=save", body)
        except EngineFailed as failure:
            log.warning("prompt not kept", reason=str(failure))
            self._empty(file)
            return
        except BaseException:
            self._empty(file)
            raise
        state.size = os.fstat(file).st_size
        self._states.append(state)
        self._bound(0, needed)

    async def restore(self, engine: Engine, slot: int, state: StoredPrompt) -> bool:
        """Copy a state into a slot; return whether that worked. One that fails is dropped."""
        state.used = self._next_use()
        try:
            body = {"filename": str(state.file)}
            await engine.ask("POST", f"/slots/{slot}?action=restore", body)
        except EngineFailed as failure:
            log.warning("prompt not restored", reason=str(failure))
            self._drop(state)
            return False
        return True

    def close(self) -> None:
        """Give all memory back; no engine may be running that knows the files."""
        for file in (*(state.file for state in self._states), *self._spare):
            os.close(file)
        self._states, self._spare = [], []

    def _of(self, scope: str) -> list[StoredPrompt]:
        return [state for state in self._states if state.scope == scope]

    def _has_room(self, size: int, needed: StoredPrompt | None) -> bool:
        """Return whether a state of this size fits, after old ones have made room for it."""
        if size > self.limit:
            return False
        self._bound(size, needed)
        return self.size + size <= self.limit and size <= free_memory() // 2

    def _bound(self, more: int, needed: StoredPrompt | None) -> None:
        """Drop the states that were used longest ago until ``more`` bytes fit within the limit."""
        droppable = [state for state in self._states if state is not needed]
        droppable.sort(key=lambda state: state.used, reverse=True)
        while droppable and (self.size + more > self.limit or len(self._states) >= _MOST_STATES):
            self._drop(droppable.pop())

    def _drop(self, state: StoredPrompt) -> None:
        if any(one is state for one in self._states):  # two restores of one state may both fail
            self._states = [one for one in self._states if one is not state]
            self._empty(state.file)

    def _empty(self, file: int) -> None:
        """Give the memory of a file back, and keep its descriptor for another state."""
        os.ftruncate(file, 0)
        self._spare.append(file)

    def _next_use(self) -> int:
        self._uses += 1
        return self._uses
