"""The child's lines, as values of the seam: generations as streams of tokens, and tokenisation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from time import monotonic
from typing import Any, Literal

import msgspec

from causerie.engines.base import EngineFailed, EngineRefused, Output, Stopped, TextRequest, Token
from causerie.engines.grammar_matcher import Spelling
from causerie.engines.process import EngineProcess
from causerie.engines.sampling import engine_fields
from causerie.engines.watchdog import Pulse

_ENGINE = "openvino"
_PIECE = 65_536


class _Answer(msgspec.Struct, gc=False):
    id: int = 0
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    end: Literal["stop", "length", "ignored"] | None = None
    refused: str = ""
    encoded: tuple[list[int], ...] = ()
    ready: bool = False
    version: str = ""


_decode = msgspec.json.Decoder(_Answer).decode
_encode = msgspec.json.Encoder().encode


class OpenVinoClient:
    """Speaks to one child by its input and output; ``version`` is that of what it runs.

    ``pulse`` beats whenever something comes. The answers are read by a task of its own,
    which ``close`` ends.
    """

    def __init__(self, process: EngineProcess, pulse: Pulse) -> None:
        self.version = ""
        self._process = process
        self._pulse = pulse
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Queue[_Answer | None]] = {}
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[bool] = loop.create_future()
        self._gone = False
        self._reader = loop.create_task(self._read())

    async def close(self) -> None:
        """Read no more; whoever waits hears that the engine is gone."""
        self._reader.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader

    async def loaded(self) -> bool:
        """Wait until the model is loaded, or the child has ended: then return whether it is."""
        return await asyncio.shield(self._ready)

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return once the child has answered between two steps; raise :class:`EngineFailed`."""
        async with self._order({"ping": path}) as answers:
            await _next(answers)

    async def encode(self, texts: Sequence[str]) -> Sequence[list[int]]:
        """Return the token ids of each text; raise :class:`EngineFailed`."""
        async with self._order({"encode": texts}) as answers:
            return (await _next(answers)).encoded

    @asynccontextmanager
    async def complete(
        self, request: TextRequest, spelling: Spelling, ebnf: str | None = None
    ) -> AsyncIterator[AsyncGenerator[Output, None]]:
        """Yield one completion, under a grammar in EBNF or none; leaving ends it."""
        async with self._order(generation(request, ebnf)) as answers:
            outputs = _outputs(answers, request, spelling)
            try:
                yield outputs
            finally:
                await outputs.aclose()

    @asynccontextmanager
    async def _order(self, order: dict[str, Any]) -> AsyncIterator[asyncio.Queue[_Answer | None]]:
        if self._gone:
            raise EngineFailed("the engine is gone", loading=True)
        number = next(self._numbers)
        answers: asyncio.Queue[_Answer | None] = asyncio.Queue()
        self._waiting[number] = answers
        try:
            await self._process.tell(_encode({**order, "id": number}) + b"\n")
            yield answers
        finally:
            if self._waiting.pop(number, None) is not None and "generate" in order:
                # Not waited for: the child obeys it before its next step.
                self._process.post(_encode({"cancel": True, "id": number}) + b"\n")

    async def _read(self) -> None:
        rest = b""  # not line by line: a line may be longer than any limit
        try:
            while piece := await self._process.stdout.read(_PIECE):
                self._pulse.beat = monotonic()
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._take(_decode(line))
        finally:
            self._gone = True
            if not self._ready.done():
                self._ready.set_result(False)
            for answers in self._waiting.values():
                answers.put_nowait(None)

    def _take(self, answer: _Answer) -> None:
        if answer.ready:
            self.version = answer.version
            self._ready.set_result(True)
        elif (answers := self._waiting.get(answer.id)) is not None:
            answers.put_nowait(answer)


def generation(request: TextRequest, ebnf: str | None) -> dict[str, Any]:
    """Return the order of a generation. Unset parameters are neutral, not the engine's defaults."""
    fields: dict[str, float] = dict(engine_fields(_ENGINE, request.sampling))
    if fields.get("top_k") == 0:
        del fields["top_k"]  # off is its default, and no number
    if request.sampling.seed is not None:
        fields["rng_seed"] = request.sampling.seed % 2**32
    return {
        "generate": request.prompt,
        "max_tokens": request.max_tokens,
        "ignore_eos": request.ignore_eos,
        "fields": fields,
        "ebnf": ebnf,
    }


async def _next(answers: asyncio.Queue[_Answer | None]) -> _Answer:
    answer = await answers.get()
    if answer is None:
        raise EngineFailed("the engine broke off its answer")
    return answer


async def _outputs(
    answers: asyncio.Queue[_Answer | None], request: TextRequest, spelling: Spelling
) -> AsyncGenerator[Output, None]:
    made = 0
    while True:
        answer = await _next(answers)
        if answer.refused:
            raise EngineRefused(f"the engine refused the request: {answer.refused}")
        for id, logprob in zip(answer.ids, answer.logprobs, strict=True):
            made += 1
            if request.logprobs is None:
                yield Token(id, spelling(id))
            else:
                yield Token(id, spelling(id), spelling.raw(id), min(logprob, 0.0))
        if answer.end == "ignored":
            raise EngineFailed("the engine has no room for the request")
        if answer.end is not None:
            yield Stopped(answer.end, len(request.prompt), made)
            return
