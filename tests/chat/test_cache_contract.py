"""The cache contract, with the real engine: a conversation computes no token twice.

At every turn the engine finds at least 95 % of what the turn before has computed again, whatever
changes that the model does not read, and with more conversations than slots. A reply is never
computed again because a tokenizer reads its text otherwise than the model wrote it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from casekit import first_of
from chatkit import Reply, together
from enginekit import THREADS
from msgspec import structs
from weightskit import write_hybrid, write_plain, write_sliding

from causerie.access.admission import SlotQueue
from causerie.chat.chat import Reserve, TextChat, without_limit
from causerie.chat.compiler import Compiler
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.protocol.events import Usage
from causerie.protocol.parameters import SamplingParams
from causerie.protocol.request import (
    ChatRequest,
    JsonSchema,
    Message,
    Regex,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
)

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

SHARE = 0.95
_READ_AGAIN = 4  # tokens: so far before a prompt's end the engine keeps a state to go back to
WEATHER = Tool(
    "get_weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"enum": [1, 2]}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
    "The weather in a city.",
)
CLOCK = Tool("now", {"type": "object", "properties": {}, "additionalProperties": False}, "Time.")
ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 20}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}
TURNS: tuple[dict[str, Any], ...] = (
    {"tool_choice": ToolChoice("required")},
    {"tool_choice": ToolChoice("none")},
    {"tool_choice": ToolChoice("required", ("now",))},
    {"output": JsonSchema(ANSWER), "tool_choice": ToolChoice("none")},
    {},
    {"tool_choice": ToolChoice("auto", ("now",)), "parallel_tool_calls": False},
)
SURE = {
    "type": "object",
    "properties": {"sure": {"type": "boolean"}},
    "required": ["sure"],
    "additionalProperties": False,
}
SHORT_TURNS: tuple[dict[str, Any], ...] = (
    {"tool_choice": ToolChoice("required", ("now",)), "max_tokens": 50},
    {"max_tokens": 5},
    {"tool_choice": ToolChoice("none"), "max_tokens": 5},
    {"output": JsonSchema(SURE), "tool_choice": ToolChoice("none"), "max_tokens": 40},
    *({"max_tokens": 4 + more} for more in range(6)),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(gguf: Path) -> AsyncIterator[LlamaCppEngine]:
    options = LlamaCppOptions(context=4096, parallel=1, threads=THREADS)
    engine = LlamaCppEngine("small", gguf, options)
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chat(engine: LlamaCppEngine) -> AsyncIterator[TextChat]:
    async with compiling(engine) as chat:
        yield chat


@asynccontextmanager
async def compiling(
    engine: LlamaCppEngine, reserve: Reserve = without_limit
) -> AsyncIterator[TextChat]:
    compiler = Compiler(workers=1)
    try:
        yield TextChat(engine, compiler, reserve=reserve)
    finally:
        await compiler.stop()


@dataclass(slots=True)
class Conversation:
    """One conversation of a client that sends back what it got."""

    messages: list[Message]
    thinking: Thinking
    turns: tuple[dict[str, Any], ...] = TURNS
    sampling: SamplingParams = SamplingParams(temperature=0.0)  # noqa: RUF009 - frozen
    question: str = "how is it in Paris?"
    computed: int = 0
    made: int = 0
    """Tokens of the last reply."""
    found: int = 0
    """Tokens of its prompt that had been computed."""
    shares: list[float] = field(default_factory=list)

    async def turn(self, chat: TextChat, number: int) -> None:
        """Ask, note the share of what could be reused that was, and keep the reply."""
        self.messages.append(Message("user", f"Question {number}: {self.question}"))
        request = ChatRequest(
            "m",
            tuple(self.messages),
            tools=(WEATHER, CLOCK),
            max_tokens=56,
            thinking=self.thinking,
            sampling=self.sampling,
        )
        request = structs.replace(request, **self.turns[number % len(self.turns)])
        async with chat.generate(request) as answer:
            reply = together([batch async for batch in answer.events])
        assert reply.usage is not None
        self.found = reply.usage.cached
        if self.computed:
            self.shares.append(reply.usage.cached / self.computed)
        self.computed = reply.usage.prompt + reply.usage.completion - 1
        self.made = reply.usage.completion
        self.keep(reply)

    def keep(self, reply: Reply) -> None:
        """Put the reply into the history, and results behind its calls."""
        complete = reply.calls if reply.finish == "tool_calls" else []
        calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in complete)
        said = Message(
            "assistant", reply.text, tool_calls=calls, reasoning_content=reply.reasoning or None
        )
        self.messages.append(said)
        for call in calls:
            result = json.dumps({"of": call.name, "degrees": 21})
            self.messages.append(Message("tool", result, tool_call_id=call.id))


@pytest.mark.full
async def test_every_turn_finds_what_the_one_before_has_computed(chat: TextChat) -> None:
    thinking = Thinking(enabled=True, budget=8)
    instructions = [Message("system", "You answer questions about the weather, in few words.")]
    conversations = [Conversation(list(instructions), thinking) for _ in range(2)]
    for number, conversation in itertools.product(range(len(TURNS)), conversations):
        await conversation.turn(chat, number)
    for conversation in conversations:
        assert len(conversation.shares) == len(TURNS) - 1
        assert min(conversation.shares) >= SHARE, conversation.shares


@pytest.mark.parametrize("write", first_of([write_plain, write_hybrid]))
async def test_forty_turns_compute_no_token_twice(
    gguf: Path, tmp_path: Path, write: Callable[[Path, Path], None]
) -> None:
    """Where states can be cut back, and where they cannot."""
    write(tmp_path / "tiny.gguf", gguf)
    options = LlamaCppOptions(context=4096, parallel=1, threads=THREADS)
    engine = LlamaCppEngine("tiny", tmp_path / "tiny.gguf", options)
    await engine.start()
    try:
        async with compiling(engine) as chat:
            await forty_turns(chat)
    finally:
        await engine.stop()


async def forty_turns(chat: TextChat) -> None:
    """At temperature 1, where a model often writes a text in other tokens than a tokenizer."""
    conversation = Conversation(
        [Message("system", "You answer in few words.")],
        Thinking(enabled=True, budget=2),
        SHORT_TURNS,
        SamplingParams(temperature=1.0, seed=24),
        "why?",
    )
    for number in range(40):
        await conversation.turn(chat, number)
    assert len(conversation.shares) == 39
    assert min(conversation.shares) >= SHARE, conversation.shares


@pytest.mark.parametrize(
    ("write", "reads_replies_again"), first_of([(write_hybrid, False), (write_sliding, True)])
)
async def test_states_that_cannot_be_cut_back_go_on(
    gguf: Path, tmp_path: Path, write: Callable[[Path, Path], None], reads_replies_again: bool
) -> None:
    """In their slot, and from memory: there a sliding window lacks what stood before the reply.

    Another conversation finds its instructions where one has them, from its first turn on.
    """
    write(tmp_path / "tiny.gguf", gguf)
    options = LlamaCppOptions(context=2048, parallel=1, threads=THREADS)
    engine = LlamaCppEngine("tiny", tmp_path / "tiny.gguf", options)
    turns: tuple[dict[str, Any], ...] = ({"output": Regex("[a-z ]{40,60}"), "tools": ()},)
    told = "You answer in few words. " * 14
    first, second, *others = (
        Conversation([Message("system", said)], Thinking(), turns, question="why? " * 9)
        for said in (told, "You are somebody else. " * 5, told, told)
    )
    await engine.start()
    try:
        async with compiling(engine) as chat:
            for number in range(4):
                await first.turn(chat, number)
                assert bool(first.found) == bool(number)
            assert min(first.shares) >= SHARE, first.shares
            for number, one in itertools.product(range(4, 7), (second, first)):
                lost = one.made + _READ_AGAIN if reads_replies_again else 0
                expected = SHARE - lost / max(one.computed, 1)
                await one.turn(chat, number)
                assert not one.shares or one.shares[-1] >= expected, (one.shares, lost)
            for other in others:  # with the instructions of the first: in its slot, and from memory
                other.computed = len(await engine.tokenize([told], special=False))
                await other.turn(chat, 0)
                assert other.shares[0] >= 1, other.shares
                await second.turn(chat, 0)
    finally:
        await engine.stop()


@pytest.mark.parametrize("write", first_of([write_hybrid, write_sliding]))
async def test_requests_that_share_a_cache_take_turns_and_none_fails(
    gguf: Path, tmp_path: Path, write: Callable[[Path, Path], None]
) -> None:
    """Each may fill it alone, and together they may need four times what it holds."""
    write(tmp_path / "tiny.gguf", gguf)
    options = LlamaCppOptions(context=256, parallel=4, cache_tokens=256, threads=THREADS)
    engine = LlamaCppEngine("tiny", tmp_path / "tiny.gguf", options)
    queue = SlotQueue("tiny", lambda: 4, 10, 600, lambda: engine.status().cache_tokens or 0)
    await engine.start()

    async def fill(chat: TextChat, said: str, most: int | None) -> Usage:
        message = Message("user", said)
        request = ChatRequest("m", (message,), max_tokens=most, ignore_eos=True)
        async with chat.generate(request) as answer:
            reply = together([batch async for batch in answer.events])
        assert reply.usage is not None
        assert reply.finish == "length"
        return reply.usage

    try:
        async with compiling(engine, queue.reserve) as chat:
            limits = (None, 60, None, 30, 60, 100)
            asked = (fill(chat, f"{n} why? " * 20, most) for n, most in enumerate(limits))
            for most, used in zip(limits, await asyncio.gather(*asked), strict=True):
                assert used.completion >= (most or 256 - used.prompt)
            again = await fill(chat, "5 why? " * 20, 8)
            assert again.cached >= SHARE * again.prompt - _READ_AGAIN
    finally:
        await engine.stop()


@pytest.mark.full
async def test_a_reply_in_other_tokens_than_the_tokenizers_is_found_whole(
    chat: TextChat, engine: LlamaCppEngine
) -> None:
    said = "The answer is that nobody knows anything about it, unfortunately"
    usual = await engine.tokenize([said], special=False)
    banned = SamplingParams(temperature=0.0, logit_bias=dict.fromkeys(usual[::2], -100.0))
    turns: tuple[dict[str, Any], ...] = ({"output": Regex(said), "tools": ()},)
    conversation = Conversation([], Thinking(), turns, banned)
    for number in range(3):
        await conversation.turn(chat, number)
        assert conversation.messages[-1].text == said
    assert conversation.shares == [1.0, 1.0]
