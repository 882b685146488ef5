"""Chunked prefill: how many tokens of a long prompt the engine is given at once, by its speed.

In each of its steps the engine computes a token of every stream, and fills its batch with tokens of
a prompt. The size of the batch is fixed when it loads, so that during a long prompt every step
would take as long as a whole batch. Long prompts are therefore given in *chunks*, of which each
extends what the slot holds. A chunk that is smaller than the batch makes a short step. While nobody
streams, a chunk is many batches, so that its round trip does not count.
"""

from __future__ import annotations

import asyncio

_LONG_SECONDS = 3.0
_ALONE_SECONDS = 4.0  # on a busy machine a round trip takes a tenth of a second
_STREAMING_SECONDS = 0.125  # half of what a stream may wait: a step may take twice as long
_ROWS = 8  # of a matrix that kernels take together
_SLOWER, _FASTER = 0.5, 0.25  # weight of a new step


class ChunkedPrefill:
    """The speed of one engine, and whose turn it is to have a chunk read.

    ``batch`` and ``context`` are the engine's, in tokens. ``token_seconds`` is the speed expected
    of it, and counts until a step was seen. Without ``enabled`` every prompt is read whole.
    """

    def __init__(
        self, batch: int, context: int, token_seconds: float, *, enabled: bool = True
    ) -> None:
        self.turn = asyncio.Lock()
        """Held while a chunk is read: two of them would make one step longer."""
        self.token_seconds = token_seconds
        self._batch = batch
        self._context = context
        self._enabled = enabled
        self._seen = False

    def observe(self, tokens: int, seconds: float) -> None:
        """Note a step in which the engine read so many tokens of a prompt.

        Few tokens tell nothing, since most of such a step is not theirs. Slower steps count more
        than faster ones: a stream that waits is worse than a prompt that does.
        """
        if tokens < _ROWS or seconds <= 0:
            return
        new = seconds / tokens
        weight = _SLOWER if new > self.token_seconds else _FASTER
        self.token_seconds += (new - self.token_seconds) * (weight if self._seen else 1.0)
        self._seen = True

    def is_long(self, read: int, total: int) -> bool:
        """Return whether a prompt of which so much was read needs chunks.

        One that does not fit is left to the engine, which refuses it before it reads.
        """
        rest = (total - read) * self.token_seconds
        return self._enabled and total < self._context and rest > _LONG_SECONDS

    def chunk(self, *, streaming: bool) -> int:
        """Return the tokens of the next chunk: whole batches, or fewer where streams would wait."""
        batch, fitting = self._batch, int(_STREAMING_SECONDS / self.token_seconds)
        if streaming and fitting < batch:
            return min(max(fitting // _ROWS, 1) * _ROWS, batch)
        return max(int(_ALONE_SECONDS / self.token_seconds) // batch, 1) * batch
