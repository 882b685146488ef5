"""An engine that writes at random what the grammar of a request admits.

A model follows its habits; this one turns wherever the grammar lets it, so it finds documents
that the grammar admits and the schema forbids. After some hundred bytes it takes the shortest way
to the end that it sees.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from causerie.engines.base import Output, Started, Stopped, TextRequest, Token
from causerie.engines.grammar_matcher import Spelling
from causerie.engines.registry import (
    _VOCABULARY,
    FAKE_END,
    FakeEngine,
    _grammar_matcher,
    _token_ids_already_accepted,
)

_CLOSING = b'"}]'
_WEIGHTS = {
    ord('"'): 8.0,
    ord("\\"): 0.5,
    ord(" "): 0.5,
    ord("\n"): 0.1,
    ord("\t"): 0.05,
    FAKE_END: 2.0,
}
_TURNS = (*range(32, 127), 9, 10, 0xC3, 0xA9, FAKE_END)
_AT_RANDOM = 300  # bytes
_YIELD_EVERY = 16


@dataclass(slots=True)
class RandomWriter(FakeEngine):
    """The engine. The same requests in the same order get the same answers."""

    dice: random.Random = field(default_factory=lambda: random.Random(0))

    async def _tokens(self, request: TextRequest) -> AsyncGenerator[Output, None]:
        taken = _token_ids_already_accepted(request)
        matcher = _grammar_matcher(request, taken)
        spelling, made = Spelling(_VOCABULARY, frozenset(), request.visible), 0
        yield Started(0)
        while made < request.max_tokens:
            id = self._turn(matcher.compute_bitmask(), len(taken) + made)
            made += 1
            yield Token(id, spelling(id), bytes([id]) if id < FAKE_END else b"")
            if id == FAKE_END:
                break
            matcher.consume_token(id)
            if made % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        yield Stopped("stop" if id == FAKE_END else "length", len(request.prompt), made)

    def _turn(self, mask: bytes, written: int) -> int:
        """Return one of the bytes that a mask allows."""

        def allowed(id: int) -> bool:
            return bool(mask[id // 8] >> (id % 8) & 1)

        if written > _AT_RANDOM:
            if allowed(FAKE_END):
                return FAKE_END
            if closing := [id for id in _CLOSING if allowed(id)]:
                return self.dice.choice(closing)
        ways = [id for id in _TURNS if allowed(id)]
        if not ways:
            return next((id for id in range(256) if allowed(id)), FAKE_END)
        weights = [_WEIGHTS.get(id, 1.0) for id in ways]
        return self.dice.choices(ways, weights)[0]
