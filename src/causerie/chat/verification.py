"""The last check of a choice: what its grammar enforced has to hold at its end.

An engine that gives up a grammar says so only in its log. A choice that breaks a rule ends with
an error; one that takes too much work to check is delivered, and marked.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

import structlog
from msgspec import structs

from causerie.chat.generation import Generation
from causerie.chat.plan import Plan
from causerie.chat.schema.compiled import Work, WorkExceeded
from causerie.chat.validation import decided, validate
from causerie.errors import InternalError
from causerie.protocol.events import (
    Batch,
    Event,
    Finished,
    Partial,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from causerie.protocol.request import ChatRequest

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Choice:
    text: list[str] = field(default_factory=list)
    calls: dict[int, tuple[str, list[str]]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self.text.append(text)
            case ToolCallStarted(index, _, name):
                self.calls[index] = name, []
            case ToolCallDelta(index, arguments):
                self.calls[index][1].append(arguments)

    @property
    def characters(self) -> int:
        arguments = (piece for _, pieces in self.calls.values() for piece in pieces)
        return sum(map(len, self.text)) + sum(map(len, arguments))

    def fault(self, request: ChatRequest, plan: Plan, work: Work, *, whole: bool) -> str | None:
        said = "".join(self.text)
        required = request.tool_choice.mode == "required"
        if required and (said.strip() or (whole and not self.calls)):
            return "A call was required, and there is text in its place."
        if self.calls or request.output is None or not whole:
            return self.fault_of_calls(plan, work, whole=whole)
        if plan.answer is not None and plan.answer.checked is not None:
            return plan.answer.checked.fault_of_text(said, work)
        return validate(said, request.output, work)

    def fault_of_calls(self, plan: Plan, work: Work, *, whole: bool) -> str | None:
        calls = [(name, "".join(pieces)) for name, pieces in self.calls.values()]
        if calls and not whole and not _is_document(calls[-1][1]):
            calls.pop()
        for name, arguments in calls:
            schema = plan.functions.arguments.get(name)
            if schema is None:
                return f"It calls {name[:64]!r}, which may not be called."
            fault = schema.fault_of_text(arguments, work)
            if fault is not None:
                return f"The arguments of {name!r}: {fault}"
        return None


def _is_document(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


async def verified(
    source: AsyncGenerator[Batch, None],
    request: ChatRequest,
    plan: Plan,
    choices: Sequence[Generation],
    begun: Partial | None,
) -> AsyncGenerator[Batch, None]:
    """Yield the same batches; raise :class:`InternalError` where a finished choice breaks a rule.

    The end of a choice that takes too much work to check says so. ``begun`` is what was sent of the
    reply before these events.
    """
    found = [_resumed(plan.resumed, begun) for _ in choices]
    async with aclosing(source):
        async for batch in source:
            for at, event in enumerate(batch):
                if isinstance(event, Finished):
                    choice = found[event.choice]
                    if choices[event.choice].stopped:
                        check = partial(choice.fault_of_calls, plan, whole=False)
                    else:
                        whole = event.reason in ("stop", "tool_calls")
                        check = partial(choice.fault, request, plan, whole=whole)
                    try:
                        fault = await decided(check, choice.characters)
                    except WorkExceeded:
                        log.warning("reply not verified", choice=event.choice)
                        unverified = structs.replace(event, verified=False)
                        batch = [*batch[:at], unverified, *batch[at + 1 :]]
                        continue
                    if fault is not None:
                        raise InternalError(f"The answer does not have the form asked for: {fault}")
                elif isinstance(event, TextDelta | ToolCallStarted | ToolCallDelta):
                    found[event.choice].add(event)
            yield batch


def _resumed(resumed: str, partial: Partial | None) -> _Choice:
    if partial is None:
        return _Choice([resumed])
    calls = {call.index: (call.name, [call.arguments]) for call in partial.calls}
    return _Choice([resumed + partial.text], calls)
