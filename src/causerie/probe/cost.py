"""Maximum cost of the questions, shown before they are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from causerie.probe.question import ProbeQuestion
from causerie.probe.questions.context import LONGEST_ASKED, TOO_LONG, longest_prompt
from causerie.probe.questions.thinking import ROOM
from causerie.probe.subject import Subject

LARGE = 80_000


@dataclass(frozen=True, slots=True)
class ProbeBudget:
    """Upper bounds, in requests and tokens (prompt and output together).

    ``if_taken`` comes on top where a prompt that is too long is not refused,
    ``if_thinking`` where the model cannot be kept from thinking.
    """

    requests: int
    tokens: int
    if_taken: int
    if_thinking: int

    @property
    def large(self) -> bool:
        """Return whether the cost is large enough to ask for confirmation."""
        return self.tokens + self.if_taken > LARGE

    def __str__(self) -> str:
        return (
            f"at most {self.requests} requests, one at a time, and {self.tokens:,} tokens; "
            f"{self.if_taken:,} more if a prompt that is too long is not refused, "
            f"{self.if_thinking:,} more if the model cannot be kept from thinking"
        )


def cost(
    questions: Sequence[ProbeQuestion],
    subjects: Sequence[Subject],
    *,
    dialect_preview: bool = False,
) -> ProbeBudget:
    """Return the maximum cost for these subjects; ``dialect_preview`` counts parameters twice."""
    if dialect_preview:
        questions = [*questions, *(question for question in questions if question.decides)]
    completions = sum(question.asks for question in questions if question.tokens)
    too_long = any(question.id == TOO_LONG for question in questions)
    lengths = [one.context_length or LONGEST_ASKED for one in subjects] if too_long else []
    return ProbeBudget(
        requests=sum(question.asks for question in questions) * len(subjects),
        tokens=sum(question.asks * question.tokens for question in questions) * len(subjects),
        if_taken=sum(longest_prompt(length) for length in lengths if length <= LONGEST_ASKED),
        if_thinking=completions * ROOM * len(subjects),
    )
