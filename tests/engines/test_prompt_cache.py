"""Prompts that are found again in slots and in memory, with the real engine and a tiny model.

The slots share one cache, so they lose their prompts also to requests in other slots.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from casekit import first_of
from enginekit import THREADS, Run, Subject
from waiting import eventually

from causerie.engines.base import EngineState, TextRequest
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.protocol.parameters import SamplingParams

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

GREEDY = SamplingParams(temperature=0.0)
SLOTS = 2
SHARE = 0.95


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject(tiny_gguf: Path) -> AsyncIterator[Subject]:
    async with running(tiny_gguf) as made:
        yield made


@asynccontextmanager
async def running(weights: Path) -> AsyncIterator[Subject]:
    options = LlamaCppOptions(context=512, parallel=SLOTS, cache_tokens=512, threads=THREADS)
    engine = LlamaCppEngine("small", weights, options)
    await engine.start()
    yield Subject(engine, await engine.facts())
    await engine.stop()


@dataclass(slots=True)
class Conversation:
    """One conversation: its tokens so far, and how many of them an engine has computed."""

    tokens: list[int]
    computed: int = 0
    shares: list[float] = field(default_factory=list)

    async def turn(self, subject: Subject, said: list[int]) -> Run:
        """Say something, and note the share of what could be reused that was."""
        self.tokens += said
        run = await subject.run(TextRequest(list(self.tokens), 6, GREEDY, ignore_eos=True))
        if self.computed:
            self.shares.append(run.stopped.cached_tokens / self.computed)
        self.tokens += run.ids
        self.computed = len(self.tokens) - 1  # the last one was drawn and never read
        return run


def words(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(1000, 40_000) for _ in range(count)]


@pytest.mark.parametrize("shared", first_of([0, 150]))
async def test_more_conversations_than_slots_are_found_again(subject: Subject, shared: int) -> None:
    draw = random.Random(shared)
    instructions = words(draw, shared)
    conversations = [Conversation(instructions + words(draw, 70)) for _ in range(3 * SLOTS)]
    for _ in range(3):
        for conversation in conversations:
            await conversation.turn(subject, words(draw, 20))
    shares = [share for conversation in conversations for share in conversation.shares]
    assert len(shares) == 2 * len(conversations)
    assert min(shares) >= SHARE


async def test_instructions_that_another_conversation_has_are_found(subject: Subject) -> None:
    draw = random.Random(7)
    instructions = words(draw, 200)
    first, second = (Conversation(list(instructions)) for _ in range(2))
    await first.turn(subject, words(draw, 100))
    run = await second.turn(subject, words(draw, 100))
    assert run.stopped.cached_tokens == len(instructions)
    await first.turn(subject, words(draw, 10))
    assert min(first.shares) >= SHARE


async def test_a_project_reuses_nothing_of_another(subject: Subject) -> None:
    """The same prompt is read once for each scope; within one it is found, wherever it went."""
    draw = random.Random(13)
    prompt = words(draw, 150)
    for scope in ("a", "b", "c", ""):
        request = TextRequest(prompt, 1, GREEDY, scope=scope)
        assert (await subject.run(request)).stopped.cached_tokens == 0
    for scope in ("c", "a", "b", ""):
        longer = TextRequest([*prompt, *words(draw, 5)], 1, GREEDY, scope=scope)
        assert (await subject.run(longer)).stopped.cached_tokens == len(prompt)


async def test_what_memory_kept_outlives_a_crash_of_the_engine(subject: Subject) -> None:
    draw = random.Random(11)
    conversations = [Conversation(words(draw, 120)) for _ in range(2 * SLOTS)]
    for conversation in conversations:
        await conversation.turn(subject, words(draw, 10))
    engine = subject.engine
    assert isinstance(engine, LlamaCppEngine)
    assert engine.pid is not None
    before = engine.status().restarts

    async def restarted() -> bool:
        status = engine.status()
        return status.restarts > before and status.state is EngineState.READY

    os.kill(engine.pid, signal.SIGKILL)
    await eventually(restarted)
    for conversation in conversations[:SLOTS]:  # the others were in the slots
        await conversation.turn(subject, words(draw, 10))
        assert min(conversation.shares) >= SHARE


@pytest.mark.full
async def test_the_text_is_the_same_from_memory(gguf: Path) -> None:
    """Of a real model: the likeliest tokens of random weights lie too close to each other."""
    draw = random.Random(3)
    async with running(gguf) as subject:
        prompt = await subject.prompt("Count from one to fifty. " * 10)
        request = TextRequest(prompt, 20, GREEDY, ignore_eos=True)
        before = await subject.run(request)
        for _ in range(SLOTS):
            await Conversation(words(draw, 100)).turn(subject, [])
        again = await subject.run(request)
    assert again.stopped.cached_tokens >= SHARE * len(prompt)
    assert again.ids == before.ids
