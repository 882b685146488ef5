"""Engines as a worker process has them: it asks the process that keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import count
from typing import TypeVar

from causerie.composition import engine_messages as messages
from causerie.engines.model_slot import Edition
from causerie.engines.packed_tokens import packed
from causerie.engines.vllm.lent import LentServer
from causerie.engines.watchdog import Pulse
from causerie.errors import Failed, InternalError
from causerie.workers.questions import QuestionLine

_BEAT_SECONDS = 1.0  # long before anybody takes a server for silent

A = TypeVar("A", bound=messages.Answer)


class EnginesClient:
    """Asks on a line."""

    def __init__(self, line: QuestionLine) -> None:
        self._line = line
        self._numbers = count(1)
        self._running: dict[int, ServerInUse] = {}

    async def follow(self, model: str, has: Edition) -> messages.EngineTold:
        """Return the engine of a model once it is loaded and another than ``has``."""
        return await self._ask(
            messages.Follow(next(self._numbers), model, has), messages.EngineTold
        )

    async def enter(self, model: str, places: int, has: Edition) -> tuple[int, messages.Entered]:
        """Take places at a model; return the number to :meth:`leave` them by."""
        number = next(self._numbers)
        question = messages.Enter(number, model, places, has)
        return number, await self._ask(question, messages.Entered)

    def leave(self, number: int) -> None:
        """Give the places back."""
        self._tell(messages.LeaveModel(number))

    async def choose(
        self, engine: int, prompt: Sequence[int], scope: str, tried: Collection[str]
    ) -> ServerInUse:
        """Return a server for a prompt in a scope; raise :class:`EngineFailed`."""
        number = next(self._numbers)
        question = messages.Choose(number, engine, packed(prompt), scope, list(tried))
        chosen = await self._ask(question, messages.Chosen)
        made = self._running[number] = ServerInUse(self, number, chosen.server)
        return made

    async def beat(self) -> None:
        """Report which servers something comes from, for ever."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            moved = [number for number, one in self._running.items() if one.moved()]
            if moved:
                self._tell(messages.Beats(moved))

    def answered(self, number: int) -> None:
        """The first token of a generation has come."""
        self._tell(messages.Answered(number))

    def end(self, number: int, made: Sequence[int] | None, failure: str) -> None:
        """A generation has ended."""
        if self._running.pop(number, None) is not None:
            tokens = None if made is None else packed(made)
            self._tell(messages.EndGeneration(number, tokens, failure))

    async def _ask(self, question: messages.Question, kind: type[A]) -> A:
        try:
            found = messages.answer(await self._line.ask(messages.encoded(question)))
        except asyncio.CancelledError:
            self._tell(messages.LeaveModel(question.number))
            raise
        if isinstance(found, Failed | messages.EngineAway):
            raise found.failure()
        if not isinstance(found, kind):
            raise InternalError("A question about engines has a wrong answer.")
        return found

    def _tell(self, notice: messages.Notice) -> None:
        self._line.tell(messages.encoded(notice))


class ServerInUse:
    """A server that was chosen for one generation, until its ``end``."""

    def __init__(self, client: EnginesClient, number: int, server: LentServer) -> None:
        self._client = client
        self._number = number
        self.server = server
        self.pulse = Pulse()
        self._told = self.pulse.beat

    def moved(self) -> bool:
        """Return whether something has come since this was asked last."""
        moved, self._told = self.pulse.beat > self._told, self.pulse.beat
        return moved

    def answered(self) -> None:
        """The first token has come."""
        self._client.answered(self._number)

    def end(self, made: Sequence[int] | None = None, failure: str = "") -> None:
        """As :meth:`causerie.engines.pool.turn.Turn.end`. Only the first time does something."""
        self._client.end(self._number, made, failure)
