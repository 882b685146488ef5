"""All questions, in the order in which they are asked."""

from __future__ import annotations

from causerie.probe.question import Question
from causerie.probe.questions import (
    completion,
    context,
    continuing,
    drawing,
    leaving,
    length,
    listing,
    messages,
    output,
    refusals,
    streaming,
    thinking,
    tools,
    tools_forced,
)

QUESTIONS: tuple[Question, ...] = (
    *listing.QUESTIONS,
    *completion.QUESTIONS,
    *thinking.QUESTIONS,
    *messages.QUESTIONS,
    *streaming.QUESTIONS,
    *length.QUESTIONS,
    *drawing.QUESTIONS,
    *tools.QUESTIONS,
    *tools_forced.QUESTIONS,
    *output.QUESTIONS,
    *refusals.QUESTIONS,
    *continuing.QUESTIONS,
    *context.QUESTIONS,
    *leaving.QUESTIONS,
)
