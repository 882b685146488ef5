"""Replies of a chat target put together, and cut where they may break off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from causerie.chat.answer import SchemaCache, answer_plan
from causerie.chat.chat import TextChat
from causerie.chat.compiler import Compiler, Vocabulary
from causerie.chat.schema import WhiteSpace
from causerie.chat.schema.compiled import Work
from causerie.chat.schema.normal import Rewriter
from causerie.chat.validation import MOST_STEPS, CheckedSchema
from causerie.protocol.events import (
    Batch,
    Finished,
    Partial,
    PartialCall,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Trail,
    Usage,
)
from causerie.protocol.request import ChatRequest, JsonSchema, OutputFormat


def validate(text: str, output: OutputFormat) -> str | None:
    """Return what a finished answer breaks, as the check of a reply says it, or nothing."""
    work = Work(MOST_STEPS)
    if isinstance(output, JsonSchema):
        rules = Rewriter(output.schema, "schema").rewrite()
        return CheckedSchema(rules).fault_of_text(text, work)
    plan = answer_plan(output, (), SchemaCache(), white_space=WhiteSpace.FIXED)
    return asyncio.run(plan).fault(text, work)


class Unchecked(Compiler):
    """Takes every grammar, for engines that are asked only what compiles."""

    def __init__(self) -> None:
        super().__init__(workers=0)

    async def check(self, grammar: str, vocabulary: Vocabulary, *, param: str) -> None:
        del grammar, vocabulary, param

    async def fault_of(self, *given: object, **more: object) -> str | None:
        return None


@dataclass(slots=True)
class Reply:
    """A reply put together from events."""

    reasoning: str = ""
    text: str = ""
    calls: list[PartialCall] = field(default_factory=list)
    finish: str | None = None
    usage: Usage | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def said(self) -> tuple[str, str, list[tuple[str, str]], str | None]:
        """All of it but what differs from one generation to the next."""
        calls = [(call.name, call.arguments) for call in self.calls]
        return self.reasoning, self.text, calls, self.finish


@dataclass(frozen=True, slots=True)
class Cut:
    """A reply that broke off: what went out before, and what its target knew of it."""

    before: tuple[Batch, ...]
    partial: Partial


def together(batches: Sequence[Batch]) -> Reply:
    reply = Reply()
    for event in (event for batch in batches for event in batch):
        match event:
            case ReasoningDelta(text):
                assert not reply.text
                assert not reply.calls
                reply.reasoning += text
            case TextDelta(text, logprobs):
                reply.text += text
                reply.logprobs += logprobs
            case ToolCallStarted(index, id, name):
                assert index == len(reply.calls)
                reply.calls.append(PartialCall(index, id, name, ""))
            case ToolCallDelta(index, arguments):
                old = reply.calls[index]
                reply.calls[index] = PartialCall(index, old.id, old.name, old.arguments + arguments)
            case Finished(reason):
                assert reply.finish is None
                reply.finish = reason
            case Usage():
                reply.usage = event
    return reply


async def whole_and_cuts(chat: TextChat, request: ChatRequest) -> tuple[Reply, list[Cut]]:
    """A reply to its end, and all the ways in which it might have broken off."""
    batches: list[Batch] = []
    cuts: list[Cut] = []
    async with chat.generate(request) as answer:
        async for batch in answer.events:
            batches.append(batch)
            reply, usage, trail = together(batches), answer.usage(), answer.trail()
            if reply.finish is None:
                cuts.append(Cut(tuple(batches), partial_of(reply, usage, trail)))
    return together(batches), cuts


def partial_of(reply: Reply, usage: Usage, trail: Trail | None) -> Partial:
    return Partial(
        reply.reasoning, reply.text, tuple(reply.calls), usage.completion, usage.reasoning, trail
    )


async def continued(chat: TextChat, request: ChatRequest, cut: Cut) -> Reply:
    """The whole reply as a client has it; its usage is of what was new."""
    assert chat.continues(request, cut.partial)
    async with chat.generate(request, cut.partial) as answer:
        rest = [batch async for batch in answer.events]
    return together([*cut.before, *rest])
