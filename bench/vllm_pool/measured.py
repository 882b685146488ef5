"""Real vLLM servers under the pool of the service: hits and TTFT, and what they are held to."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import quantiles

import msgspec

from causerie.composition.vllm_engines import vllm_engine
from causerie.engines.base import EngineState, Output, Stopped, TextRequest, Token
from causerie.engines.fleet import ManagedEngine
from causerie.engines.pool.pool import EnginePool
from causerie.protocol.parameters import SamplingParams
from causerie.settings.tree import ModelSettings
from vllm_pool.cache import Cache

OWN = 48  # tokens of a prompt that no other one begins with
REPLY = 8
AT_ONCE = 4
LOAD_SECONDS = 1_800.0

Generate = Callable[[TextRequest], AbstractAsyncContextManager[AsyncIterator[Output]]]


@dataclass(frozen=True)
class Work:
    """Prompts of tokens that say nothing: each is one of the ``beginnings``, and more."""

    beginnings: int
    tokens: int
    requests: int

    @property
    def longest(self) -> int:
        """Return the most tokens of a prompt and its reply."""
        return self.tokens + OWN + REPLY

    def prompts(self, seed: str, words: int) -> list[list[int]]:
        draw = random.Random(seed)
        starts = [self._text(draw, words, self.tokens) for _ in range(self.beginnings)]
        every = [starts[at % self.beginnings] for at in range(self.requests)]
        draw.shuffle(every)
        return [[*start, *self._text(draw, words, OWN)] for start in every]

    def best_rate(self, prompts: Sequence[Sequence[int]], blocks: int, size: int) -> float:
        """Return the share of tokens that one cache of so many blocks of ``size`` tokens has.

        The prompts come one after the other. Like vLLM, it finds whole blocks and never a whole
        prompt; what fills no block, and the reply, takes blocks that nobody finds again.
        """
        cache = Cache(blocks)
        hits = 0
        for at, prompt in enumerate(prompts):
            ends = range(size, len(prompt) + 1, size)
            whole = [hash(tuple(prompt[:end])) for end in ends]
            rest = -(-(len(prompt) + REPLY) // size) - len(whole)
            held = cache.read([*whole, *(hash((at, one)) for one in range(rest))])
            hits += min(held, (len(prompt) - 1) // size) * size
        return hits / sum(map(len, prompts))

    def _text(self, draw: random.Random, words: int, tokens: int) -> list[int]:
        return draw.choices(range(1_000, words), k=tokens)


@dataclass
class Measured:
    """Tokens of prompts that were read from a cache, and seconds to first tokens."""

    tokens: int = 0
    cached: int = 0
    waits: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.cached / self.tokens

    @property
    def deciles(self) -> Sequence[float]:
        return quantiles(self.waits, n=10)


@asynccontextmanager
async def started(options: dict[str, object], folder: Path) -> AsyncIterator[ManagedEngine]:
    """The engine of these ``[models.vllm]``."""
    told = {"id": "m", "engine": "vllm", "ref": str(folder), "vllm": options}
    engine = await vllm_engine(msgspec.convert(told, ModelSettings), folder, None, LOAD_SECONDS)
    try:
        await engine.start()
        if isinstance(engine, EnginePool):
            while {member.state for member in engine.status().members} != {EngineState.READY}:  # noqa: ASYNC110
                await asyncio.sleep(0.5)  # nothing tells of the second one
        yield engine
    finally:
        await engine.stop()


def in_turn(pool: EnginePool) -> Generate:
    """Round robin over the members, beside the choice of the pool."""
    turns = cycle(member.engine for member in pool._members.values())
    return lambda request: next(turns).generate(request)


async def measured(generate: Generate, prompts: Sequence[Sequence[int]]) -> Measured:
    """Send all prompts, some at once."""
    result = Measured()
    left = iter(prompts)

    async def sender() -> None:
        for prompt in left:
            request = TextRequest(prompt, REPLY, SamplingParams(temperature=0.0), ignore_eos=True)
            began, first = time.perf_counter(), None
            async with generate(request) as outputs:
                async for output in outputs:
                    if isinstance(output, Token) and first is None:
                        first = time.perf_counter() - began
                    elif isinstance(output, Stopped):
                        result.tokens += output.prompt_tokens
                        result.cached += output.cached_tokens
            result.waits.append(first or 0.0)

    await asyncio.gather(*(sender() for _ in range(AT_ONCE)))
    return result
