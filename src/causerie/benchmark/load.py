"""So many replies at a time: each stream asks anew as soon as its reply has come to its end."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from causerie.benchmark.figures import Figures, figures
from causerie.benchmark.sample import Sample
from causerie.errors import ServiceError
from causerie.protocol.events import ReasoningDelta, TextDelta
from causerie.protocol.parsing import ParsingRules, parse
from causerie.protocol.request import ChatRequest
from causerie.providers.target import ProviderTarget

_RULES = ParsingRules()
_WORDS = (ReasoningDelta, TextDelta)
_NUMBERS = 10**9  # to begin with: no two runs, and no two providers, get the same prompts
_REST_SECONDS = 1.0  # after a failure: who has no room now is not asked without pause
_UNFINISHED = "had not ended when it was given up"


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """Prompts and replies of a benchmark."""

    prompt_tokens: int = 200
    max_tokens: int = 128
    same: bool = False
    """Send the same prompt each time, otherwise ever new ones."""
    seconds: float = 10.0
    """Length of a run."""
    grace_seconds: float = 60.0
    """Time for which running requests may continue after it."""


@dataclass(slots=True)
class BenchProgress:
    """Progress of a run for observers."""

    samples: list[Sample] = field(default_factory=list)

    @property
    def failures(self) -> int:
        """Return the number of failed replies."""
        return sum(bool(one.failure) for one in self.samples)


class BenchLoad:
    """Asks one model of a provider."""

    def __init__(
        self,
        chat: ProviderTarget,
        asking: BenchPrompt,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chat = chat
        self._asking = asking
        self._clock = clock
        self._numbers: Iterator[int] = itertools.count(random.Random().randrange(_NUMBERS))

    async def once(self) -> Sample:
        """Request one reply; raise :class:`ServiceError` if it fails."""
        return await self._reply(self._request())

    async def run(self, streams: int, seen: BenchProgress) -> Figures:
        """Run concurrent replies for the seconds of a run, and return their figures."""
        seconds = self._asking.seconds
        began, worked = self._clock(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(streams):
                group.create_task(self._stream(seen, began + seconds))
        busy = (time.process_time() - worked) / (self._clock() - began)
        return figures(seen.samples, streams, began, seconds, busy)

    async def _stream(self, seen: BenchProgress, end: float) -> None:
        while (now := self._clock()) < end:
            sample = await self._told(end + self._asking.grace_seconds - now)
            seen.samples.append(sample)
            if sample.failure and (left := end - self._clock()) > 0:
                await asyncio.sleep(min(_REST_SECONDS, left))

    async def _told(self, seconds: float) -> Sample:
        """Request one reply and return its sample, even if it fails."""
        began = self._clock()
        try:
            async with asyncio.timeout(seconds):
                return await self._reply(self._request())
        except ServiceError as error:
            failure = _why(error)
        except TimeoutError:
            failure = _UNFINISHED
        return Sample(began, self._clock(), failure=failure)

    async def _reply(self, request: ChatRequest) -> Sample:
        began = self._clock()
        first: float | None = None
        async with self._chat.generate(request) as reply:
            async for batch in reply.events:
                if first is None and any(isinstance(one, _WORDS) and one.text for one in batch):
                    first = self._clock()
            usage = reply.usage()
        return Sample(began, self._clock(), first, usage.prompt, usage.completion)

    def _request(self) -> ChatRequest:
        asking = self._asking
        number = 0 if asking.same else next(self._numbers)
        fields = {
            "model": self._chat.model,
            "messages": [{"role": "user", "content": prompt(number, asking.prompt_tokens)}],
            "max_tokens": asking.max_tokens,
            "stream": True,
        }
        return parse(msgspec.json.encode(fields), _RULES)


def _why(error: ServiceError) -> str:
    """Return the reason in a word or two: the status, or why there is none."""
    if (status := error.metadata.get("upstream_status")) is not None:
        return f"status {status}"
    return str(error.metadata.get("upstream_failure", error.code)).replace("_", " ")


_VOCABULARY = """
amber anchor autumn basket beacon bridge candle canyon castle cedar cellar circle copper
corner cotton dancer desert dinner dragon ember engine fabric falcon feather finger forest
garden ginger glacier hammer harbor hollow honey island jacket jungle kettle ladder lantern
lemon letter marble meadow mirror morning needle ocean orange orchard paper pepper pillow
planet pocket prairie quarry rabbit ribbon river saddle sailor shadow silver spider spring
summer temple thunder timber tunnel valley velvet village violin walnut water window winter
""".split()  # noqa: SIM905 - to be read
_ASKING = "Write a long story, without an end, in which all of these occur:"
_ASKING_TOKENS = 20


def prompt(number: int, tokens: int) -> str:
    """Return the prompt of that number; with most vocabularies it has about that many tokens."""
    chosen = random.Random(number).choices(_VOCABULARY, k=max(tokens - _ASKING_TOKENS, 1))
    return f"{' '.join(chosen)}\n\n{_ASKING} the words above, and the number {number}."
