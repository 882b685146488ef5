"""Noticing a child that lives and answers no more: stopped from outside, or stuck in native code.

Reading a long prompt on a slow machine is neither: its threads answer whatever is
computed, and its loop answers after every step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from causerie.engines.base import EngineFailed
from causerie.engines.llamacpp.client import Pulse

_THREADS = ("/health", 10.0)
_LOOP = ("/slots", 200.0)  # longer than one step takes anywhere
_MISSES = 3  # in a row: on a machine that was paused, or is worn out, one or two are late

Ask = Callable[[str, str], Awaitable[object]]


async def silence(ask: Ask, pulse: Pulse) -> None:
    """Wait until one of them answers no more, and nothing else comes either."""
    loop = asyncio.get_running_loop()
    questions = [loop.create_task(_unanswered(ask, pulse, *one)) for one in (_THREADS, _LOOP)]
    try:
        await asyncio.wait(questions, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for question in questions:
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
