"""Chunked prefill: how many tokens of a prompt the engine is given at once, by its speed.

In each of its steps the engine computes a token of every stream, and fills its batch with tokens of
a prompt. The size of the batch is fixed when it loads, so that during a long prompt every step
would take as long as a whole batch. Long prompts are therefore given in *chunks*, of which each
extends what the slot holds. A chunk that is smaller than the batch makes a short step. While nobody
streams, a chunk is many batches, so that its round trip does not count.

A prompt that is not long mixes in one batch with those of others. Beside a stream it is read in
chunks where a whole batch takes too long, but in none that cost more than they are worth.
"""

from __future__ import annotations

import asyncio

from causerie.engines.prefill_speed import LEAST_OBSERVED, STREAMING_SECONDS, PrefillSpeed

FULL_SPEED = 64
"""Tokens of a chunk that costs a CPU at most 5 % more for a token than whole batches do."""

_LONG_SECONDS = 3.0
_ALONE_SECONDS = 4.0  # on a busy machine a round trip takes a tenth of a second
_WAITING_SECONDS = 2 * STREAMING_SECONDS  # what a stream may wait
_ROWS = LEAST_OBSERVED  # of a matrix that kernels take together


class ChunkedPrefill:
    """The speed of one engine, and whose turn it is to have a chunk read.

    ``batch`` and ``context`` are the engine's, in tokens; chunks of ``full_speed`` tokens cost
    hardly more than whole batches do. ``token_seconds`` is the speed expected of it, and counts
    until a step was seen. Without ``enabled`` every prompt is read whole.
    """

    def __init__(
        self,
        batch: int,
        context: int,
        token_seconds: float,
        full_speed: int = FULL_SPEED,
        *,
        enabled: bool = True,
    ) -> None:
        self.turn = asyncio.Lock()
        """Held while a chunk is read: two of them would make one step longer."""
        self.speed = PrefillSpeed(token_seconds)
        self._batch = batch
        self._context = context
        self._full_speed = full_speed
        self._enabled = enabled

    def least_chunk(self, read: int, total: int, *, streaming: bool) -> int | None:
        """Return the least tokens of a chunk, for a prompt of which so much was read.

        ``None`` where it is read whole. One that does not fit is left to the engine, which refuses
        it before it reads.
        """
        if not self._enabled or total >= self._context:
            return None
        rest, seconds = total - read, self.speed.token_seconds
        if rest * seconds > _LONG_SECONDS:
            return _ROWS
        waits = streaming and min(rest, self._batch) * seconds > _WAITING_SECONDS
        return self._full_speed if waits and self._full_speed < self._batch else None

    def chunk(self, least: int, *, streaming: bool) -> int:
        """Return the tokens of the next chunk: whole batches, or fewer where streams would wait."""
        batch, fitting = self._batch, self.speed.fitting(STREAMING_SECONDS)
        if streaming and fitting < batch:
            return min(max(fitting // _ROWS * _ROWS, least), batch)
        return max(self.speed.fitting(_ALONE_SECONDS) // batch, 1) * batch
