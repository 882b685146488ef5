"""A generation at a member of a pool, and what the pool learns of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import Any

from causerie.engines.base import Output, TextRequest
from causerie.engines.pool.member import Member
from causerie.engines.pool.prefix_index import BLOCK, extended
from causerie.engines.supervised import SupervisedEngine


class MemberTurn:
    """Of a prompt with these ``blocks``, of which the member has ``unread`` tokens to read.

    ``before`` is the root of its chain of blocks; ``left`` is called at the end.
    """

    def __init__(
        self,
        at: Member,
        prompt: Sequence[int],
        before: int,
        blocks: Sequence[int],
        unread: int,
        left: Callable[[Member], None],
    ) -> None:
        self._at = at
        self._before = before
        self._blocks = blocks
        self._rest = prompt[len(blocks) * BLOCK :]  # the tokens that fill no block
        self._read = self._unread = unread
        self._left = left
        self._since = monotonic()
        at.running += 1
        at.unread += unread
        at.cache.enter(blocks)

    @property
    def member(self) -> str:
        """Return the name of the member."""
        return self._at.name

    @property
    def engine(self) -> SupervisedEngine[Any]:
        """Return the engine of the member."""
        return self._at.engine

    def generate(self, request: TextRequest) -> AbstractAsyncContextManager[AsyncIterator[Output]]:
        """Return the generation by the member."""
        return self._at.engine.generate(request)

    def answered(self) -> None:
        """The first token has come, so the prompt has been read."""
        self._at.unread -= self._unread
        self._unread = 0
        self._at.answered()

    def end(self, made: Sequence[int] | None = None, failure: str = "") -> None:
        """Free the member; keep that it has ``made`` these tokens, or let it rest."""
        at = self._at
        at.running -= 1
        at.unread -= self._unread
        at.cache.leave(self._blocks)
        self._unread = 0
        if made is not None:
            at.answered()
            at.cache.expect(self._read, self._since)
            # The reply is in its cache too, for the next turn of the conversation.
            before = self._blocks[-1] if self._blocks else self._before
            at.cache.holds(extended(before, [*self._rest, *made]))
        elif failure:
            at.failed(failure)
        self._left(at)
