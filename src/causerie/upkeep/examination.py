"""One probe of one model at an endpoint: how far it is, what it has cost, how it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from causerie.probe.asker import Asker, Bounds
from causerie.probe.cost import Cost, cost
from causerie.probe.interview import Interview, Patience
from causerie.probe.question import Question
from causerie.probe.questions import QUESTIONS
from causerie.probe.questions.listing import LIST, entry_of, listed_length
from causerie.probe.reply import Reply
from causerie.probe.subject import Subject
from causerie.transport.client import Reach
from causerie.upkeep.interviewing import carried_out, guessed, interview
from causerie.upkeep.result import Result
from causerie.upstreams.dialect import Dialect
from causerie.upstreams.dialects import GENERIC

State = Literal["asking", "done", "cancelled", "failed"]
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Examinee:
    """An endpoint, and how to get at it."""

    endpoint: str
    base_url: str
    key: str | None = field(default=None, repr=False)
    reach: Reach | None = None
    dialect: Dialect = GENERIC


def price(examinee: Examinee, model: str, context_length: int | None) -> Cost:
    """What a probe costs at most, as far as the length of the context is known."""
    subject = Subject(examinee.base_url, model, context_length=context_length)
    return cost(QUESTIONS, [subject], bent=True)


class Examination:
    """``asked`` of ``questions`` have begun; ``question`` is what is being asked now.

    ``failure`` says why there is no result, ``hint`` what
    in the configuration could be better.
    """

    questions = len(QUESTIONS)

    def __init__(
        self,
        examinee: Examinee,
        model: str,
        clock: Clock,
        bounds: Bounds,
    ) -> None:
        self._examinee = examinee
        self._clock = clock
        self._bounds = bounds
        self._interview: Interview | None = None
        self.model = model
        self.began = clock()
        self.ended: datetime | None = None
        self.state: State = "asking"
        self.asked = 0
        self.question = "which models it has"
        self.cost = price(examinee, model, None)
        self.failure = ""
        self.hint = ""
        self.result: Result | None = None

    @property
    def endpoint(self) -> str:
        """Its name."""
        return self._examinee.endpoint

    @property
    def requests(self) -> int:
        """Sent so far."""
        return self._interview.requests if self._interview is not None else 0

    @property
    def tokens(self) -> int:
        """Spent so far, as the endpoint counts them."""
        return self._interview.spent if self._interview is not None else 0

    def end(self, state: State, failure: str = "") -> None:
        """It is over."""
        self.state, self.failure, self.ended = state, failure, self._clock()

    async def run(self, keep: Callable[[Result], Awaitable[None]]) -> None:
        """Ask everything, and keep what was found; ends in a state whatever the endpoint does."""
        one = self._examinee
        async with Asker(one.base_url, one.key, one.reach, self._bounds) as asker:
            listed = await asker.put(LIST)
            if trouble := self._trouble(listed):
                self.end("failed", trouble)
                return
            subject = self._subject(listed)
            self.cost = price(one, self.model, subject.context_length)
            self._suspect(guessed(listed, self.model))
            held = interview(subject, asker, one.dialect, Patience(), self._begins)
            self._interview = held
            asked = await carried_out(held)
        self.result = Result.of(self.endpoint, asked, self._clock())
        await keep(self.result)
        self.end("done")

    def _suspect(self, dialect: Dialect | None) -> None:
        if dialect is not None and self._examinee.dialect is GENERIC:
            self.hint = f'it looks like {dialect.server}; `dialect = "{dialect.name}"` would fit'

    def _begins(self, question: Question) -> None:
        self.asked += 1
        self.question = question.words

    def _subject(self, listed: Reply) -> Subject:
        one = self._examinee
        bare = Subject(one.base_url, self.model, keyed=one.key is not None)
        return replace(bare, context_length=listed_length(entry_of(listed, self.model)))

    def _trouble(self, listed: Reply) -> str:
        """Why it makes no sense to ask any more."""
        if not listed.status:
            return f"the endpoint cannot be reached: {listed.trouble}"
        if listed.status in (401, 403):
            which = "refuses the key that is configured" if self._examinee.key else "wants a key"
            return f"the endpoint {which} (status {listed.status}); see `endpoints.key`"
        return ""
