"""Probes of models at providers, their stored results, and the parameters models support."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Protocol, Self

import msgspec
import structlog
from msgspec import Struct

from causerie.errors import InvalidRequest, StoreUnavailable
from causerie.http.client import Reach
from causerie.probe.interview import (
    CompletedInterview,
    Found,
    Interview,
    Patience,
    ProbeBounds,
    ProbeBudget,
    ProbeClient,
    cost,
    guess_dialect,
)
from causerie.probe.question import Grade, ProbeQuestion, ProbeReply, Subject
from causerie.probe.questions import QUESTIONS, QUICK_QUESTIONS
from causerie.probe.questions.listing import LIST, entry_of, listed_length
from causerie.protocol import parameters
from causerie.protocol.alike import alike
from causerie.protocol.declaration import declared
from causerie.protocol.parameters import HONOURED
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import GENERIC

_WORST: tuple[Grade, ...] = ("no", "unclear", "partly", "yes")


class Result(CompletedInterview, frozen=True, kw_only=True):
    """Result of a probe of one model. ``used``: it was put in force."""

    provider: str
    at: datetime
    used: bool = False

    def answers(self) -> Mapping[str, Found]:
        """Return the worst finding for each parameter, which decides whether it is supported."""
        worst: dict[str, Found] = {}
        for found in sorted(self.findings, key=lambda each: _WORST.index(each.answer)):
            for name in found.decides:
                worst.setdefault(name, found)
        return worst


_log = structlog.get_logger(__name__)


class Kept(Struct, frozen=True):
    """Stored results of one model: the newest one, and the last one put in force."""

    newest: Result | None = None
    used: Result | None = None


NOTHING = Kept()


class ResultStore(Protocol):
    """Stores results as JSON, by provider and model; methods raise ``StoreUnavailable``."""

    async def of(self, provider: str) -> Mapping[str, str]: ...
    async def put(self, provider: str, model: str, kept: str) -> None: ...


class Results(Struct):
    """Results of probes in the store that all processes of a service share.

    Unreadable ones count as none. They are not stored while the store is unavailable.
    """

    _store: ResultStore

    async def of(self, provider: str) -> Mapping[str, Kept]:
        """Return the stored results of a provider by model; raise :class:`StoreUnavailable`."""
        kept = await self._store.of(provider)
        return {model: _decode_kept_results(text) for model, text in kept.items()}

    async def keep(self, result: Result) -> None:
        """Store a new result, or record that a result was put in force."""
        try:
            used: Result | None = result
            if not result.used:
                used = (await self.of(result.provider)).get(result.model, NOTHING).used
            kept = msgspec.json.encode(Kept(newest=result, used=used)).decode()
            await self._store.put(result.provider, result.model, kept)
        except StoreUnavailable as failure:
            _log.warning("result of a probe is not kept", error=str(failure))


def _decode_kept_results(json_text: str) -> Kept:
    try:
        return msgspec.json.decode(json_text, type=Kept)
    except msgspec.DecodeError as failure:
        _log.warning("result of a probe cannot be read", error=str(failure))
        return NOTHING


State = Literal["asking", "done", "cancelled", "failed"]
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Examinee:
    """A provider to probe."""

    provider: str
    base_url: str
    key: str | None = field(default=None, repr=False)
    reach: Reach | None = None
    dialect: Dialect = GENERIC


def price(
    context_length: int | None, questions: Sequence[ProbeQuestion] = QUESTIONS
) -> ProbeBudget:
    """Return the most requests and tokens a probe can take, by context length if it is known."""
    return cost(questions, [Subject("", "", context_length=context_length)], dialect_preview=True)


@dataclass(eq=False)
class Examination:
    """One probe of one model: its progress, its cost so far and its result.

    ``asked`` of ``questions`` have started, the last with ``question``. ``failure`` is why there is
    no result, ``hint`` an improvement of the configuration. A ``quick`` probe asks what usual
    clients need, for a minute at most; its result is not stored, because it does not decide every
    capability.
    """

    _examinee: Examinee
    model: str
    _clock: Clock
    _bounds: ProbeBounds
    quick: bool
    ended: datetime | None = None
    state: State = "asking"
    asked: int = 0
    question: str = "which models it has"
    failure: str = ""
    hint: str = ""
    result: Result | None = None
    _interview: Interview | None = None

    def __post_init__(self) -> None:
        self._probe_questions = QUICK_QUESTIONS if self.quick else QUESTIONS
        self.questions = len(self._probe_questions)
        self.provider, self.began = self._examinee.provider, self._clock()
        self.cost = price(None, self._probe_questions)

    @property
    def requests(self) -> int:
        return self._interview.requests if self._interview is not None else 0

    @property
    def tokens(self) -> int:
        """Return the tokens used so far, as the provider counts them."""
        return self._interview.spent if self._interview is not None else 0

    def end(self, state: State, failure: str = "") -> None:
        self.state, self.failure, self.ended = state, failure, self._clock()

    async def run(self, keep: Callable[[Result], Awaitable[None]]) -> None:
        """Ask all questions and ``keep`` the result; errors of the provider end in a state."""
        one = self._examinee
        async with ProbeClient(one.base_url, one.key, one.reach, self._bounds) as asker:
            listed = await asker.put(LIST)
            if trouble := self._explain_access_failure_or_empty(listed):
                self.end("failed", trouble)
                return
            subject = Subject(
                *(one.base_url, self.model),
                keyed=one.key is not None,
                context_length=listed_length(entry_of(listed, self.model)),
            )
            self.cost = price(subject.context_length, self._probe_questions)
            dialect = guess_dialect(listed, self.model)
            if dialect is not None and one.dialect is GENERIC:
                self.hint = (
                    f'it looks like {dialect.server}; `dialect = "{dialect.name}"` would fit'
                )
            patience = Patience(total_seconds=60.0) if self.quick else Patience()
            self._interview = Interview(
                subject, asker, patience, self._set_question_in_progress, dialect=one.dialect
            )
            asked = await self._interview.run(self._probe_questions)
        self.result = alike(Result, asked, provider=self.provider, at=self._clock())
        if not self.quick:
            await keep(self.result)
        self.end("done")

    def _set_question_in_progress(self, question: ProbeQuestion) -> None:
        self.asked += 1
        self.question = question.words

    def _explain_access_failure_or_empty(self, listing_reply: ProbeReply) -> str:
        if not listing_reply.status:
            return f"the provider cannot be reached: {listing_reply.trouble}"
        if listing_reply.status in (401, 403):
            which = "refuses the key that is configured" if self._examinee.key else "wants a key"
            return f"the provider {which} (status {listing_reply.status}); see `providers.key`"
        return ""


class Examinations(Struct):
    """The running probes, one at a time for each provider; leaving the block cancels them."""

    results: Results
    _clock: Clock = lambda: datetime.now(UTC)
    _bounds: ProbeBounds = ProbeBounds()
    _examinations_by_provider: dict[str, Examination] = {}
    _tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def last(self, provider: str) -> Examination | None:
        """Return the running probe at a provider, else the last one of this process."""
        return self._examinations_by_provider.get(provider)

    async def ended(self, provider: str) -> Examination | None:
        """Wait for the end of the probe at a provider, and return the last one."""
        task = self._tasks.get(provider)
        if task is not None:
            await asyncio.wait([task])
        return self.last(provider)

    def begin(self, examinee: Examinee, model: str, *, quick: bool = False) -> Examination:
        """Start a probe; raise :class:`InvalidRequest` (409) if one is running there."""
        name = examinee.provider
        if name in self._tasks:
            raise InvalidRequest(
                f"{name} is being probed already "
                f"({self._examinations_by_provider[name].model}); wait for its end or "
                "cancel it.",
                code="probe_running",
                status=409,
            )
        made = Examination(examinee, model, self._clock, self._bounds, quick)
        self._examinations_by_provider[name] = made
        task = asyncio.get_running_loop().create_task(made.run(self.results.keep))
        self._tasks[name] = task
        task.add_done_callback(lambda ended: self._record_examination_end(made, ended))
        return made

    async def cancel(self, provider: str) -> None:
        """Cancel the running probe at a provider, if there is one."""
        task = self._tasks.get(provider)
        if task is not None:
            task.cancel()
            await self.ended(provider)

    def _record_examination_end(self, examination: Examination, task: asyncio.Task[None]) -> None:
        del self._tasks[examination.provider]
        if task.cancelled():
            examination.end("cancelled")
        elif (failure := task.exception()) is not None:
            _log.error("probe failed", provider=examination.provider, exc_info=failure)
            examination.end("failed", f"it broke off: {failure}")


Mark = Literal["yes", "partly", "no", "unclear", "unknown"]
_OTHER = "Other"
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = tuple(
    (title, tuple(each.name for each in declared(group)))
    for title, group in parameters.GROUPS
    if title != _OTHER
)
"""Parameters by purpose."""


class Cell(Struct, frozen=True):
    """Support of one parameter by one model."""

    parameter: str
    mark: Mark
    words: str = ""


def groups() -> Sequence[tuple[str, Sequence[str]]]:
    """Return all parameters that can be supported, grouped by purpose."""
    named = {"model", "messages"}.union(*(names for _, names in GROUPS))
    return [*GROUPS, (_OTHER, sorted(HONOURED - named))]


def row(
    configured: Collection[str] | None, checked: Collection[str] | None, result: Result | None
) -> Sequence[Cell]:
    """Return the support of every parameter; ``result`` is that of the probe in force, if any.

    Requests are checked against ``checked``, which follows from what is ``configured``; ``None``:
    requests are not checked.
    """
    answers = result.answers() if result is not None else {}

    def cell(name: str) -> Cell:
        if checked is None:
            return Cell(name, "unknown", "nobody has measured it; it is let through")
        found, supported = answers.get(name), name in checked
        if found is not None and (found.answer in ("yes", "partly")) == supported:
            return Cell(name, found.answer, found.how or found.question)
        if not supported:
            return Cell(name, "no", "not among the measured parameters")
        own = configured is not None and name not in configured
        words = "served here, or under another of its names" if own else "measured"
        return Cell(name, "yes", words)

    return [cell(name) for _, names in groups() for name in names]


def own_row() -> Sequence[Cell]:
    """Return the support of every parameter by a model that this service runs."""
    words = "enforced here; every question of the probe is asked in our tests"
    return [Cell(name, "yes", words) for _, names in groups() for name in names]
