"""All questions, in the order in which they are asked."""

from __future__ import annotations

from causerie.probe.question import ProbeQuestion
from causerie.probe.questions import listing, messages, output, sampling

QUESTIONS: tuple[ProbeQuestion, ...] = (
    *listing.QUESTIONS,
    *messages.COMPLETION_QUESTIONS,
    *listing.OPERATION_QUESTIONS,
    *sampling.THINKING_QUESTIONS,
    *messages.QUESTIONS,
    *messages.STREAM_QUESTIONS,
    *sampling.LENGTH_QUESTIONS,
    *sampling.QUESTIONS,
    *output.TOOL_QUESTIONS,
    *output.FORCED_TOOL_QUESTIONS,
    *output.QUESTIONS,
    *messages.REFUSAL_QUESTIONS,
    *sampling.CONTINUING_QUESTIONS,
    *listing.CONTEXT_QUESTIONS,
    *messages.LEAVING_QUESTIONS,
)

_QUICK = frozenset(
    {
        "base", "models", "completion", "usage", "thinking", "messages.roles", "stream",
        "stream.chunks", "stream.usage", "max_tokens", "stop", "n", "seed", "logprobs", "tools",
        "tools.stream", "tools.exchange", "tool_choice.required", "response_format.object",
        "response_format.schema", "errors.model", "key.none", "key.wrong",
    }
)  # fmt: skip

QUICK_QUESTIONS: tuple[ProbeQuestion, ...] = tuple(one for one in QUESTIONS if one.id in _QUICK)
"""What decides whether usual clients work; a minute is enough for a server on this machine."""
