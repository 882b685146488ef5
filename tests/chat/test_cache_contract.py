"""The cache contract, with the real engine: a conversation computes no token twice.

At every turn the engine finds at least 95 % of what the turn before has computed again, whatever
changes that the model does not read, and with more conversations than slots.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from chatkit import Reply, together
from enginekit import THREADS
from msgspec import structs

from causerie.chat.chat import TextChat
from causerie.chat.compiler import Compiler
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.protocol.parameters import SamplingParams
from causerie.protocol.request import (
    ChatRequest,
    JsonSchema,
    Message,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
)

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

SHARE = 0.95
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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chat(gguf: Path) -> AsyncIterator[TextChat]:
    options = LlamaCppOptions(context=2048, parallel=1, threads=THREADS)
    engine = LlamaCppEngine("small", gguf, options)
    await engine.start()
    compiler = Compiler(workers=1)
    yield TextChat(engine, compiler)
    await compiler.stop()
    await engine.stop()


@dataclass(slots=True)
class Conversation:
    """One conversation of a client that sends back what it got."""

    messages: list[Message]
    thinking: Thinking
    computed: int = 0
    shares: list[float] = field(default_factory=list)

    async def turn(self, chat: TextChat, number: int) -> None:
        """Ask, note the share of what could be reused that was, and keep the reply."""
        self.messages.append(Message("user", f"Question {number}: how is it in Paris?"))
        request = ChatRequest(
            "m",
            tuple(self.messages),
            tools=(WEATHER, CLOCK),
            max_tokens=56,
            thinking=self.thinking,
            sampling=SamplingParams(temperature=0.0),
        )
        request = structs.replace(request, **TURNS[number % len(TURNS)])
        async with chat.generate(request) as answer:
            reply = together([batch async for batch in answer.events])
        assert reply.usage is not None
        if self.computed:
            self.shares.append(reply.usage.cached / self.computed)
        self.computed = reply.usage.prompt + reply.usage.completion - 1
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


@pytest.mark.parametrize("thinking", [Thinking(), Thinking(enabled=True, budget=8)])
async def test_every_turn_finds_what_the_one_before_has_computed(
    chat: TextChat, thinking: Thinking
) -> None:
    instructions = [Message("system", "You answer questions about the weather, in few words.")]
    conversations = [Conversation(list(instructions), thinking) for _ in range(2)]
    for number, conversation in itertools.product(range(len(TURNS)), conversations):
        await conversation.turn(chat, number)
    for conversation in conversations:
        assert len(conversation.shares) == len(TURNS) - 1
        assert min(conversation.shares) >= SHARE, conversation.shares
