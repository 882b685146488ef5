"""Probes of models at providers: one at a time for each provider, how far it is and what it has
cost; the results that are kept, and the parameters that they show to be supported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Literal, Protocol, Self

import msgspec
import structlog
from msgspec import Struct, structs

from causerie.errors import InvalidRequest, StoreUnavailable
from causerie.http.client import Reach
from causerie.probe.asker import ProbeBounds, ProbeClient
from causerie.probe.interview import Interview, Patience, ProbeBudget, ProbedModel, cost
from causerie.probe.provider_interview import (
    Answer,
    CompletedInterview,
    Found,
    guess_dialect,
    interview,
    run_interview,
)
from causerie.probe.question import ProbeQuestion, ProbeReply, Subject, Thinking
from causerie.probe.questions import QUESTIONS, QUICK_QUESTIONS
from causerie.probe.questions.listing import LIST, entry_of, listed_length
from causerie.protocol import parameters
from causerie.protocol.declaration import declared
from causerie.protocol.parameters import HONOURED
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import GENERIC

# Result of a probe of a model of a provider, as it is kept and shown.

_WORST: tuple[Answer, ...] = ("no", "unclear", "partly", "yes")


class Result(Struct, frozen=True, kw_only=True):
    """One probe of one model. ``complete``: every question could be asked.

    ``tokens`` are those that the provider has counted itself; ``used``: it was put in force.
    """

    provider: str
    model: str
    at: datetime
    complete: bool
    requests: int
    tokens: int
    probed: date
    context_length: int | None
    supported_parameters: tuple[str, ...]
    thinking: Thinking | None
    continues: bool | None
    evidence: str
    overclaimed: tuple[str, ...]
    findings: tuple[Found, ...]
    used: bool = False

    @staticmethod
    def of(provider: str, asked: CompletedInterview, at: datetime) -> Result:
        found = asked.entry
        return Result(
            provider=provider,
            model=found.id,
            at=at,
            complete=asked.complete,
            requests=asked.requests,
            tokens=asked.tokens,
            probed=found.probed,
            context_length=found.context_length,
            supported_parameters=found.supported_parameters,
            thinking=found.thinking,
            continues=found.continues,
            evidence=found.evidence,
            overclaimed=found.overclaimed,
            findings=tuple(map(Found.of, asked.findings)),
        )

    def entry(self) -> ProbedModel:
        return ProbedModel(
            id=self.model,
            context_length=self.context_length,
            supported_parameters=self.supported_parameters,
            thinking=self.thinking,
            continues=self.continues,
            probed=self.probed,
            evidence=self.evidence,
            overclaimed=self.overclaimed,
        )

    def answers(self) -> Mapping[str, Found]:
        """Of each parameter the question that came out worst, which decides it."""
        worst: dict[str, Found] = {}
        for name, found in self._decided():
            before = worst.get(name)
            if before is None or _WORST.index(found.answer) < _WORST.index(before.answer):
                worst[name] = found
        return worst

    def _decided(self) -> Iterator[tuple[str, Found]]:
        for found in self.findings:
            for name in found.decides:
                yield name, found


# Results of probes: of each model at each provider the newest, and the one in force.
#
# What cannot be read counts as none: everything in it can be measured again.

_log = structlog.get_logger(__name__)


class Kept(Struct, frozen=True):
    """Kept results of one model."""

    newest: Result | None = None
    used: Result | None = None


NOTHING = Kept()
_decoder = msgspec.json.Decoder(Kept)


class ResultStore(Protocol):
    """Keeps results as JSON. Everything raises ``StoreUnavailable``."""

    async def of(self, provider: str) -> Mapping[str, str]:
        """Return what is kept of a provider, by model."""

    async def put(self, provider: str, model: str, kept: str) -> None:
        """Keep this of a model in place of what was kept."""


class Results:
    """The results that all processes of a service have in common."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store

    async def of(self, provider: str) -> Mapping[str, Kept]:
        """Return the kept results of a provider, by model."""
        kept = await self._store.of(provider)
        return {model: _read(text) for model, text in kept.items()}

    async def keep(self, result: Result) -> None:
        before = (await self.of(result.provider)).get(result.model, NOTHING)
        await self._put(Kept(newest=result, used=before.used), result)

    async def use(self, result: Result) -> None:
        used = structs.replace(result, used=True)
        await self._put(Kept(newest=used, used=used), result)

    async def _put(self, kept: Kept, of: Result) -> None:
        await self._store.put(of.provider, of.model, msgspec.json.encode(kept).decode())


def _read(text: str) -> Kept:
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError as failure:
        _log.warning("result of a probe cannot be read", error=str(failure))
        return NOTHING


# One probe of one model at a provider: how far it is, what it has cost, how it ends.

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
            self._suspect(guess_dialect(listed, self.model))
            patience = _QUICK if self.quick else Patience()
            held = interview(subject, asker, one.dialect, patience, self._begins)
            self._interview = held
            asked = await run_interview(held, self._questions)
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


# The probes under way, one at a time for each provider. They end with the block that owns them.

log = structlog.get_logger(__name__)
_BOUNDS = ProbeBounds()


def _now() -> datetime:
    return datetime.now(UTC)


class Examinations:
    """Use as an async context manager; leaving cancels what is under way."""

    def __init__(
        self, results: Results, clock: Clock = _now, bounds: ProbeBounds = _BOUNDS
    ) -> None:
        self.results = results
        self._clock = clock
        self._bounds = bounds
        self._last: dict[str, Examination] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def last(self, provider: str) -> Examination | None:
        """The one under way at a provider, else the last one since the service began."""
        return self._last.get(provider)

    async def ended(self, provider: str) -> Examination | None:
        """The last one at a provider, once it has ended."""
        task = self._tasks.get(provider)
        if task is not None:
            await asyncio.wait([task])
        return self.last(provider)

    def begin(self, examinee: Examinee, model: str, *, quick: bool = False) -> Examination:
        """Begin to probe; raises :class:`InvalidRequest` (409) while a probe is under way there."""
        name = examinee.provider
        if name in self._tasks:
            raise InvalidRequest(
                f"{name} is being probed already ({self._last[name].model}); wait for its end or "
                "cancel it.",
                code="probe_running",
                status=409,
            )
        made = Examination(examinee, model, self._clock, self._bounds, quick=quick)
        self._last[name] = made
        task = asyncio.get_running_loop().create_task(made.run(self._keep))
        self._tasks[name] = task
        task.add_done_callback(lambda ended: self._ended(made, ended))
        return made

    async def cancel(self, provider: str) -> None:
        """End the probe under way at a provider, if there is one."""
        task = self._tasks.get(provider)
        if task is not None:
            task.cancel()
            await self.ended(provider)

    def _ended(self, made: Examination, task: asyncio.Task[None]) -> None:
        del self._tasks[made.provider]
        if task.cancelled():
            made.end("cancelled")
        elif (failure := task.exception()) is not None:
            log.error("probe failed", provider=made.provider, exc_info=failure)
            made.end("failed", f"it broke off: {failure}")

    async def use(self, result: Result) -> None:
        await self._stored(self.results.use(result))

    async def _keep(self, result: Result) -> None:
        await self._stored(self.results.keep(result))

    async def _stored(self, kept: Awaitable[None]) -> None:
        try:
            await kept
        except StoreUnavailable as failure:
            log.warning("result of a probe is not kept", error=str(failure))


# Parameters that a model of a provider supports, and the evidence.
#
# The service goes by its configuration, so this is the state of the configuration. The result of a
# probe explains it, if that result is the one in force.

Mark = Literal["yes", "partly", "no", "unclear", "unknown"]
_PLAIN = frozenset({"model", "messages"})
_OTHER = "Other"
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = tuple(
    (title, tuple(each.name for each in declared(group)))
    for title, group in parameters.GROUPS
    if title != _OTHER
)
"""Parameters by what they are for, the most telling first; all others come after them."""


class ConfiguredSupport(Struct, frozen=True):
    """Configured support of a model's parameters."""

    supported: frozenset[str] | None = None
    effective: frozenset[str] | None = None
    """Parameters that requests are checked against; ``None``: everything is let through."""


class Cell(Struct, frozen=True):
    """One parameter of one model."""

    parameter: str
    mark: Mark
    words: str = ""


def groups() -> Sequence[tuple[str, Sequence[str]]]:
    """All parameters that can be supported, by what they are for."""
    named = _PLAIN.union(*(names for _, names in GROUPS))
    return [*GROUPS, (_OTHER, sorted(HONOURED - named))]


def row(known: ConfiguredSupport, result: Result | None) -> Sequence[Cell]:
    """Every parameter of a model; ``result`` is that of the probe in force, if it is kept."""
    found = result.answers() if result is not None else {}
    cells = []
    for _, names in groups():
        for name in names:
            if known.effective is None:
                cells.append(Cell(name, "unknown", "nobody has measured it; it is let through"))
                continue
            seen = found.get(name)
            supported = name in known.effective
            if seen is not None and (seen.answer in ("yes", "partly")) == supported:
                words = seen.how or seen.question
                cells.append(Cell(name, seen.answer, words))
            elif supported:
                own = known.supported is not None and name not in known.supported
                words = "served here, or under another of its names" if own else "measured"
                cells.append(Cell(name, "yes", words))
            else:
                cells.append(Cell(name, "no", "not among the measured parameters"))
    return cells


def own_row() -> Sequence[Cell]:
    """Of a model that this service runs itself."""
    words = "enforced here; every question of the probe is asked in our tests"
    return [Cell(name, "yes", words) for _, names in groups() for name in names]
