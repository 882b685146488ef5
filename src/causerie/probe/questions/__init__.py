"""All questions, in the order in which they are asked."""

from __future__ import annotations

from causerie.probe.question import ProbeQuestion
from causerie.probe.questions import (
    completion,
    context,
    continuing,
    leaving,
    length,
    listing,
    messages,
    output,
    refusals,
    sampling,
    streaming,
    thinking,
    tools,
    tools_forced,
)

QUESTIONS: tuple[ProbeQuestion, ...] = (
    *listing.QUESTIONS,
    *completion.QUESTIONS,
    *thinking.QUESTIONS,
    *messages.QUESTIONS,
    *streaming.QUESTIONS,
    *length.QUESTIONS,
    *sampling.QUESTIONS,
    *tools.QUESTIONS,
    *tools_forced.QUESTIONS,
    *output.QUESTIONS,
    *refusals.QUESTIONS,
    *continuing.QUESTIONS,
    *context.QUESTIONS,
    *leaving.QUESTIONS,
)
