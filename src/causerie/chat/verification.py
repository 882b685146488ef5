"""The last check of a choice: what was enforced while it was generated has to hold at its end.

An engine that gives up a grammar in the middle says so only in its log and goes on
without it, so each finished choice is read once more. A choice that breaks a rule
ends with an error and is never delivered as good.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from causerie.chat.generation import Generation
from causerie.chat.validation import validate, validate_json
from causerie.errors import InternalError
from causerie.protocol.events import (
    Batch,
    Event,
    Finished,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from causerie.protocol.partial import Partial
from causerie.protocol.request import OutputFormat


@dataclass(frozen=True, slots=True)
class Enforced:
    """Constraints that the grammar of a reply enforces."""

    answer: OutputFormat | None = None
    document: Mapping[str, object] | None = None
    """The rewritten schema of the answer, if it has one."""
    functions: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """The rewritten schema of the arguments of each function."""
    call_required: bool = False


@dataclass(slots=True)
class _Choice:
    """Content of a choice so far."""

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

    def fault(self, enforced: Enforced, *, whole: bool) -> str | None:
        """Return which rule the choice breaks; it may be cut anywhere unless it is ``whole``."""
        said = "".join(self.text)
        if enforced.call_required and (said.strip() or (whole and not self.calls)):
            return "A call was required, and there is text in its place."
        if self.calls or enforced.answer is None or not whole:
            return self.fault_of_calls(enforced, whole=whole)
        if enforced.document is not None:
            return validate_json(said, enforced.document)
        return validate(said, enforced.answer)

    def fault_of_calls(self, enforced: Enforced, *, whole: bool) -> str | None:
        """Return the same of its calls; the last one, if it is cut, counts as none."""
        calls = [(name, "".join(pieces)) for name, pieces in self.calls.values()]
        if calls and not whole and not _is_document(calls[-1][1]):
            calls.pop()
        return _fault_of_calls(calls, enforced)


def _is_document(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _fault_of_calls(calls: Sequence[tuple[str, str]], enforced: Enforced) -> str | None:
    for name, arguments in calls:
        schema = enforced.functions.get(name)
        if schema is None:
            return f"It calls {name[:64]!r}, which may not be called."
        fault = validate_json(arguments, schema)
        if fault is not None:
            return f"The arguments of {name!r}: {fault}"
    return None


async def verified(
    source: AsyncGenerator[Batch, None],
    enforced: Enforced,
    choices: Sequence[Generation],
    resumed: str,
    partial: Partial | None,
) -> AsyncGenerator[Batch, None]:
    """Yield the same batches; raise :class:`InternalError` where a finished choice breaks a rule.

    ``resumed`` and ``partial`` are what the reply held before these events.
    """
    found = [_resumed(resumed, partial) for _ in choices]
    async with aclosing(source):
        async for batch in source:
            for event in batch:
                if isinstance(event, Finished):
                    choice = found[event.choice]
                    if choices[event.choice].stopped:
                        fault = choice.fault_of_calls(enforced, whole=False)
                    else:
                        whole = event.reason in ("stop", "tool_calls")
                        fault = choice.fault(enforced, whole=whole)
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
