"""One probe of one model at a provider: how far it is, what it has cost, how it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from causerie.operations.interviewing import carried_out, guessed, interview
from causerie.operations.result import Result
from causerie.probe.asker import ProbeBounds, ProbeClient
from causerie.probe.cost import ProbeBudget, cost
from causerie.probe.interview import Interview, Patience
from causerie.probe.question import ProbeQuestion
from causerie.probe.questions import QUESTIONS, QUICK_QUESTIONS
from causerie.probe.questions.listing import LIST, entry_of, listed_length
from causerie.probe.reply import ProbeReply
from causerie.probe.subject import Subject
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import GENERIC
from causerie.transport.client import Reach

State = Literal["asking", "done", "cancelled", "failed"]
Clock = Callable[[], datetime]
_QUICK = Patience(total_seconds=60.0)


@dataclass(frozen=True, slots=True)
class Examinee:
    """A provider, and how to get at it."""

    provider: str
    base_url: str
    key: str | None = field(default=None, repr=False)
    reach: Reach | None = None
    dialect: Dialect = GENERIC


def price(
    examinee: Examinee,
    model: str,
    context_length: int | None,
    questions: Sequence[ProbeQuestion] = QUESTIONS,
) -> ProbeBudget:
    """Return the most that a probe can cost, as far as the length of the context is known."""
    subject = Subject(examinee.base_url, model, context_length=context_length)
    return cost(questions, [subject], dialect_preview=True)


class Examination:
    """``asked`` of ``questions`` have started; ``question`` is what is being asked now.

    ``failure`` says why there is no result, ``hint`` what
    in the configuration could be better. A ``quick`` one asks what usual clients need, for at
    most a minute; its result is not kept, for it does not decide every capability.
    """

    def __init__(
        self,
        examinee: Examinee,
        model: str,
        clock: Clock,
        bounds: ProbeBounds,
        *,
        quick: bool = False,
    ) -> None:
        self._examinee = examinee
        self._clock = clock
        self._bounds = bounds
        self._interview: Interview | None = None
        self._questions = QUICK_QUESTIONS if quick else QUESTIONS
        self.quick = quick
        self.model = model
        self.began = clock()
        self.ended: datetime | None = None
        self.state: State = "asking"
        self.asked = 0
        self.question = "which models it has"
        self.cost = price(examinee, model, None, self._questions)
        self.failure = ""
        self.hint = ""
        self.result: Result | None = None

    @property
    def provider(self) -> str:
        return self._examinee.provider

    @property
    def questions(self) -> int:
        return len(self._questions)

    @property
    def requests(self) -> int:
        """Sent so far."""
        return self._interview.requests if self._interview is not None else 0

    @property
    def tokens(self) -> int:
        """Spent so far, as the provider counts them."""
        return self._interview.spent if self._interview is not None else 0

    def end(self, state: State, failure: str = "") -> None:
        self.state, self.failure, self.ended = state, failure, self._clock()

    async def run(self, keep: Callable[[Result], Awaitable[None]]) -> None:
        """Ask everything, and keep what was found; ends in a state whatever the provider does."""
        one = self._examinee
        async with ProbeClient(one.base_url, one.key, one.reach, self._bounds) as asker:
            listed = await asker.put(LIST)
            if trouble := self._trouble(listed):
                self.end("failed", trouble)
                return
            subject = self._subject(listed)
            self.cost = price(one, self.model, subject.context_length, self._questions)
            self._suspect(guessed(listed, self.model))
            patience = _QUICK if self.quick else Patience()
            held = interview(subject, asker, one.dialect, patience, self._begins)
            self._interview = held
            asked = await carried_out(held, self._questions)
        self.result = Result.of(self.provider, asked, self._clock())
        if not self.quick:
            await keep(self.result)
        self.end("done")

    def _suspect(self, dialect: Dialect | None) -> None:
        if dialect is not None and self._examinee.dialect is GENERIC:
            self.hint = f'it looks like {dialect.server}; `dialect = "{dialect.name}"` would fit'

    def _begins(self, question: ProbeQuestion) -> None:
        self.asked += 1
        self.question = question.words

    def _subject(self, listed: ProbeReply) -> Subject:
        one = self._examinee
        bare = Subject(one.base_url, self.model, keyed=one.key is not None)
        return replace(bare, context_length=listed_length(entry_of(listed, self.model)))

    def _trouble(self, listed: ProbeReply) -> str:
        """Why it makes no sense to ask any more."""
        if not listed.status:
            return f"the provider cannot be reached: {listed.trouble}"
        if listed.status in (401, 403):
            which = "refuses the key that is configured" if self._examinee.key else "wants a key"
            return f"the provider {which} (status {listed.status}); see `providers.key`"
        return ""
