"""A request that no target has had takes nothing of limits, whatever refuses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from casekit import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from limitkit import CountedIn, key, model, open_service_view
from msgspec import structs
from routingkit import ASK, BROKEN, FULL, REPLY, Scripted

from causerie.access.keys import AccountPorts, Caller, Credential, StaticKeys
from causerie.access.limits import RateLimiter, RateScope, SpentProviders, Tokens
from causerie.catalog.catalog import Catalog
from causerie.catalog.model import ModelCard, ServedModel, TargetCapabilities
from causerie.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    OverBudget,
    Overloaded,
    ServiceError,
    StoreUnavailable,
    UpstreamFailed,
)
from causerie.http.answers import PlainAnswer
from causerie.http.doors import MountedDoor
from causerie.metering.meter import Meter, Record
from causerie.pipeline import Pipeline, Scopes
from causerie.protocol.events import Event, TextDelta
from causerie.protocol.parameters import HONOURED
from causerie.protocol.response import CompletionIdentity
from causerie.protocol.targets import Candidate
from causerie.routing.router import Router
from causerie.shapes.chat_completions.reader import with_reply

DOOR = MountedDoor("hosted", "/hosted/v1", kind="hosted", accounts=True)
MINE = key(requests_per_minute=1000, tokens_per_minute=10_000_000, concurrent=1)
OTHERS = model(requests_per_minute=1000, concurrent=1)
NAMES = ("first", "second")


@dataclass(frozen=True)
class Step:
    """What becomes of one request at a model, and whether a target has it by then."""

    script: Sequence[Event | ServiceError] = REPLY
    budget: ServiceError | None = None
    journal: ServiceError | None = None
    counts: bool = False


STEPS: Mapping[str, Callable[[], Step]] = {
    "budget spent": lambda: Step(budget=OverBudget("Spent.")),
    "budget not known": lambda: Step(budget=StoreUnavailable()),
    "no record can be kept": lambda: Step(journal=StoreUnavailable()),
    "queue full": lambda: Step([Overloaded("Full.")]),
    "engine loads": lambda: Step([Overloaded("Loads.", code="engine_loading")]),
    "parameter": lambda: Step([InvalidRequest("No.", code="unsupported_parameter")]),
    "value": lambda: Step([InvalidRequest("No.")]),
    "context": lambda: Step(
        [ContextLengthExceeded(prompt_tokens=9, max_tokens=1, context_length=8)]
    ),
    "nobody there": lambda: Step([BROKEN]),
    "full there": lambda: Step([FULL], counts=True),
    "refused there": lambda: Step(
        [UpstreamFailed("No.", metadata={"upstream_status": 401})], counts=True
    ),
    "value there": lambda: Step(
        [InvalidRequest("No.", metadata={"upstream_status": 400})], counts=True
    ),
    "lost before an answer": lambda: Step([TextDelta(""), BROKEN], counts=True),
    "broken off": lambda: Step([*REPLY[:3], BROKEN], counts=True),
    "answered": lambda: Step(counts=True),
}


class Accounts:
    """Allowances, keys and the ledger; each does what the step says."""

    step: Step

    async def authenticate(self, door: str, credential: Credential | None) -> Caller:
        return Caller(key="ck_a", name="", door=door)

    def scopes(self, caller: Caller, model: str) -> Sequence[RateScope]:
        return (MINE,)

    spent_providers: SpentProviders = {}  # noqa: RUF012 - never changed

    async def reserve(
        self, caller: Caller, model: str, need: Callable[[], Tokens], named: str, tag: str = ""
    ) -> object:
        if self.step.budget is not None:
            raise self.step.budget
        return object()

    def release(self, held: object) -> None:
        pass

    def begin_request(self, record: Record, prompt: int) -> None:
        if self.step.journal is not None:
            raise self.step.journal

    async def enter(self, record: Record) -> None:
        pass


class Desk:
    """A pipeline whose models have one target each."""

    def __init__(self, limits: RateLimiter) -> None:
        self.accounts, self.limits = Accounts(), limits
        self.targets = {name: Scripted(()) for name in NAMES}
        self.caller = Caller(key="ck_a", name="", door="hosted")

    async def ask(self, step: Step, *, fallback: bool) -> None:
        self.accounts.step = step
        for target in self.targets.values():
            target.script = step.script
        models = [
            ServedModel(
                ModelCard(name, name, created=1),
                [TargetCapabilities(Candidate(name), HONOURED)],
            )
            for name in NAMES
        ]
        pipeline = Pipeline(
            StaticKeys(),
            Catalog(models),
            self.limits,
            Scopes(dict.fromkeys(NAMES, OTHERS), {}),
            Router(self.targets),
            Meter([], self.accounts),
            AccountPorts(self.accounts, self.accounts, None),
        )
        request = structs.replace(ASK, model=NAMES[0], fallbacks=NAMES[1:] if fallback else ())
        with suppress(ServiceError):
            identity = CompletionIdentity("c", 1, "r")
            await pipeline.answer(
                DOOR, self.caller, request, identity, PlainAnswer(with_reply(request))
            )


@settings(max_examples=examples(15))
@given(
    asked=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.booleans()), min_size=1, max_size=9)
)
def test_only_what_a_target_had_counts(limits_in: CountedIn, asked: list[tuple[str, bool]]) -> None:
    """A request counts once at most, also where another model is asked after a failure."""

    async def play() -> None:
        async with open_service_view(limits_in) as view:
            desk = Desk(view.limits)
            counted = 0
            for name, fallback in asked:
                step = STEPS[name]()
                counted += step.counts
                await desk.ask(step, fallback=fallback)
                with await view.admit(MINE, OTHERS) as lease:  # a place is free again
                    requests, _ = lease.limit_statuses()
                    lease.undo()
                    assert requests is not None
                    assert requests[1] == 999 - counted, name

    asyncio.run(play())
