"""Noticing a child that lives and answers no more: stopped from outside, or stuck in native code.

The engine chooses the questions: one that threads answer whatever is computed, and perhaps one that
its loop answers after every step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from causerie.engines.base import EngineFailed

_MISSES = 3  # in a row: on a machine that was paused, or is worn out, one or two are late

Ask = Callable[[str, str], Awaitable[object]]
Question = tuple[str, float]  # a path, asked for every so many seconds


@dataclass(slots=True)
class Pulse:
    """When something came from an engine last, on the monotonic clock (seconds)."""

    beat: float = field(default_factory=monotonic)


async def silence(ask: Ask, pulse: Pulse, questions: Sequence[Question]) -> None:
    """Wait until one of them is answered no more, and nothing else comes either."""
    loop = asyncio.get_running_loop()
    asking = [loop.create_task(_unanswered(ask, pulse, *one)) for one in questions]
    try:
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for question in asking:
            question.cancel()


async def _unanswered(ask: Ask, pulse: Pulse, path: str, seconds: float) -> None:
    """Ask every so many seconds, and wait as long for the answer."""
    missed = 0
    while missed < _MISSES:
        before = pulse.beat
        await asyncio.sleep(seconds)
        try:
            async with asyncio.timeout(seconds):
                await ask("GET", path)
            missed = 0
        except (TimeoutError, EngineFailed):
            missed = 0 if pulse.beat > before else missed + 1
