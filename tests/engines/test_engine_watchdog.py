"""Noticing a child that lives and answers no more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from casekit import each_of

from causerie.engines.base import EngineFailed
from causerie.engines.process import Pulse, wait_for_silence

_LONG = 3600.0


class Child:
    """Answers a question as it is told to, one word a time: `well`, `late`, `gone`, `busy`."""

    def __init__(self, *words: str) -> None:
        self._words: Iterator[str] = iter(words)
        self.left = len(words)
        self.pulse = Pulse()

    async def ask(self, method: str, path: str) -> object:
        self.left -= 1
        word = next(self._words)
        if word == "busy":
            self.pulse.beat += 1.0  # a token comes all the same
        if word in ("late", "busy"):
            await asyncio.Event().wait()
        if word == "gone":
            raise EngineFailed("the engine is gone")
        return {}


@each_of("seconds", [(0.01, _LONG), (_LONG, 0.01)])
@each_of(
    "words",
    [
        ("well", "late", "late", "late"),
        ("gone", "late", "gone"),
        ("late", "late", "well", "late", "late", "late"),  # before the one: all was paused
        ("late", "late", "busy", "late", "late", "late"),
    ],
)
async def test_three_questions_in_a_row_without_an_answer(
    seconds: tuple[float, float], words: tuple[str, ...]
) -> None:
    child = Child(*words)
    async with asyncio.timeout(60):
        await wait_for_silence(child.ask, child.pulse, [("/", each) for each in seconds])
    assert child.left == 0
