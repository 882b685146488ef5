"""Routing explanations: a real request then goes to the explained target."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from casekit import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from routingkit import REPLY, Clock, Scripted, middle

from causerie.access.keys import Caller, FreeScopes, StaticKeys
from causerie.access.limits import MemoryCounters, Rates
from causerie.catalog.catalog import Catalog
from causerie.catalog.endpoint import CatalogEndpoint
from causerie.catalog.listing import Listing
from causerie.catalog.model import ModelCard, ModelProfile, ServedModel, TargetCapabilities, Tariff
from causerie.errors import ServiceError, UpstreamFailed
from causerie.hosted.operations.explanation import (
    ExplainedRefusal,
    ExplainedRoute,
    RoutingExplanation,
    explanation,
)
from causerie.http.answers import PlainAnswer
from causerie.http.doors import MountedDoor
from causerie.metering.meter import Meter, Record
from causerie.pipeline import Pipeline, Scopes
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest
from causerie.protocol.response import CompletionIdentity
from causerie.protocol.targets import Candidate, Figures, TokenBounds
from causerie.routing.circuit_breaker import THRESHOLD
from causerie.routing.router import Router
from causerie.shapes.chat_completions.reader import parse, with_reply

DOOR = MountedDoor("router", "/router/v1", kind="router", reasoning_object=True)
CALLER = Caller(key="", name="", door="router")
BASE = frozenset({"model", "messages", "session_id"})
ROUTER = ParsingRules(reasoning_object=True, router=True)
NAMES = ("north", "south", "east", "west")


@dataclass(frozen=True)
class Stand:
    """A provider of a made-up market."""

    name: str
    price: int = 1
    params: tuple[str, ...] = ("tools", "seed")
    known: bool = True
    context: int = 1000
    private: bool = False
    quantization: str | None = None
    failures: int = 0
    in_flight: int = 0
    speed: float | None = None
    first: float | None = None
    busy: bool = False
    most: int | None = None

    def endpoint(self) -> CatalogEndpoint:
        params = BASE | frozenset(self.params) | {"max_tokens"} if self.known else None
        profile = ModelProfile(context_length=self.context)
        money = Decimal(self.price) / 10**6
        return CatalogEndpoint(
            Candidate(f"{self.name}/m", bounds=TokenBounds(None, self.most)),
            params,
            lambda: profile,
            provider=self.name,
            tariff=Tariff(money, money),
            quantization=self.quantization,
            private=self.private,
        )


def no_figures(target: str) -> Figures:
    return Figures()


@dataclass
class Records:
    kept: list[Record] = field(default_factory=list)

    def write(self, record: Record) -> None:
        self.kept.append(record)


@dataclass
class Market:
    """A pipeline over a market, whose targets all answer."""

    pipeline: Pipeline
    records: list[Record]
    targets: Mapping[str, Scripted]

    def explain(self, request: ChatRequest, caller: Caller = CALLER) -> RoutingExplanation:
        return explanation(self.pipeline, DOOR, caller, request)

    async def ask(self, request: ChatRequest) -> Record:
        """A real request; raises what its client would get."""

        identity = CompletionIdentity("c", 1, "r")
        await self.pipeline.answer(
            DOOR, CALLER, request, identity, PlainAnswer(with_reply(request))
        )
        return self.records[-1]


def market(stands: Sequence[Stand], *, alias: Sequence[Candidate] = ()) -> Market:
    clock = Clock()
    targets = {f"{one.name}/m": Scripted(REPLY[2:4] + REPLY[-1:]) for one in stands}
    router = Router(targets, clock=clock, chance=middle)
    for one in stands:
        target_state = router.target_state(f"{one.name}/m")
        assert target_state is not None
        for _ in range(one.failures):
            target_state.breaker.failed("upstream_timeout")
        target_state.in_flight = one.in_flight
        if one.speed is not None:
            target_state.latency_stats.speed.add(one.speed, clock.now)
        if one.first is not None:
            target_state.latency_stats.first_token.add(one.first, clock.now)
    endpoints = tuple(one.endpoint() for one in stands)
    entries: list[Listing | ServedModel] = [
        Listing(ModelCard("a/m", "M"), endpoints, router.target_stats, no_figures),
        Listing(ModelCard("a/m:free", "M"), endpoints, router.target_stats, no_figures),
        Listing(ModelCard("a/other", "O"), endpoints[:1], router.target_stats, no_figures),
    ]
    if alias:
        offers = [TargetCapabilities(one, BASE | {"seed"}) for one in alias]
        entries.append(ServedModel(ModelCard("alias", "A"), offers))
    busy = {f"{one.name}/m" for one in stands if one.busy}
    records = Records()
    pipeline = Pipeline(
        keys=StaticKeys(),
        catalog=Catalog(entries),
        limits=MemoryCounters(),
        scopes=Scopes({}, {}, FreeScopes(Rates(), busy.__contains__)),
        router=router,
        meter=Meter([records]),
    )
    return Market(pipeline, records.kept, targets)


def asking(**fields: Any) -> ChatRequest:
    body = {"model": "a/m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return parse(json.dumps(body).encode(), ROUTER)


def route(told: RoutingExplanation) -> ExplainedRoute:
    [only] = told.routes
    return only


def why(told: RoutingExplanation, name: str) -> str:
    """Everything that is said of a provider that is left out."""
    for each in told.routes[0].left_out:
        if each.target == f"{name}/m":
            return "; ".join(f"{one.field}: {one.words}" for one in each.reasons)
    raise LookupError(name)


def order_of(told: RoutingExplanation) -> list[str]:
    return [each.target.partition("/")[0] for each in told.routes[0].places]


STANDS = st.builds(
    Stand,
    name=st.just(""),
    price=st.integers(0, 4),
    params=st.lists(st.sampled_from(("tools", "seed", "logprobs")), unique=True).map(tuple),
    known=st.booleans(),
    context=st.sampled_from((10, 1000, 4000)),
    private=st.booleans(),
    quantization=st.sampled_from((None, "fp8")),
    failures=st.sampled_from((0, 0, 0, 1, THRESHOLD)),
    in_flight=st.integers(0, 3),
    speed=st.none() | st.integers(1, 100).map(float),
    first=st.none() | st.integers(1, 100).map(float),
    busy=st.booleans(),
)
MARKETS = st.lists(STANDS, min_size=1, max_size=4).map(
    lambda found: [
        Stand(**{**vars(one), "name": name}) for name, one in zip(NAMES, found, strict=False)
    ]
)
NAMED = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
PROVIDER = st.fixed_dictionaries(
    {},
    optional={
        "order": NAMED,
        "only": NAMED.filter(bool),
        "ignore": NAMED,
        "allow_fallbacks": st.booleans(),
        "require_parameters": st.booleans(),
        "sort": st.sampled_from(("price", "throughput", "latency")),
        "max_price": st.fixed_dictionaries({"prompt": st.integers(0, 4)}),
        "data_collection": st.sampled_from(("allow", "deny")),
        "quantizations": st.just(["fp8"]),
    },
)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
REQUESTS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(
            ("a/m", "a/m:free", "a/m:nitro", "a/m:floor", "a/m:thinking", "a/m:extended", "a/none")
        )
    },
    optional={
        "models": st.lists(st.sampled_from(("a/other", "a/m:free", "a/m")), max_size=2),
        "tools": st.just([TOOL]),
        "seed": st.just(7),
        "logprobs": st.just(True),
        "max_tokens": st.sampled_from((5, 5000)),
        "session_id": st.text("abc", min_size=1, max_size=5),
        "provider": PROVIDER,
    },
)


@settings(max_examples=examples(400), deadline=None)
@given(MARKETS, REQUESTS)
async def test_the_first_foreseen_is_the_one_that_a_real_request_goes_to(
    stands: Sequence[Stand], fields: Mapping[str, Any]
) -> None:
    made, request = market(stands), asking(**fields)
    told = made.explain(request)
    assert told == made.explain(request)
    assert not any(target.asked for target in made.targets.values())
    refused: ServiceError | None = None
    try:
        record = await made.ask(request)
    except ServiceError as failure:
        refused = failure
    if refused is not None:
        assert told.goes_to is None
        assert told.refusal == ExplainedRefusal.of(refused)
    else:
        assert told.goes_to == record.served_by
        assert record.attempts == 1
        [answered] = [each for each in told.routes if each.places][:1]
        assert answered.model == record.model


@settings(max_examples=examples(200), deadline=None)
@given(
    MARKETS,
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from((0.5, 1.0, 3.0))), min_size=4, max_size=4
    ),
    st.text("abc", min_size=1, max_size=5),
)
async def test_so_it_is_with_the_priorities_and_weights_of_an_alias(
    stands: Sequence[Stand], places: Sequence[tuple[int, float]], session: str
) -> None:
    pairs = zip(stands, places, strict=False)
    made = market(stands, alias=[Candidate(f"{one.name}/m", *place) for one, place in pairs])
    request = asking(model="alias", session_id=session)
    told = made.explain(request)
    assert told.goes_to == (await made.ask(request)).served_by


@settings(max_examples=examples(200), deadline=None)
@given(MARKETS, REQUESTS)
async def test_every_provider_is_placed_or_left_out_with_a_reason(
    stands: Sequence[Stand], fields: Mapping[str, Any]
) -> None:
    made = market(stands)
    for each in made.explain(asking(**fields)).routes:
        placed = [one.target for one in each.places]
        left = [one.target for one in each.left_out]
        assert len({*placed, *left}) == len(placed) + len(left)
        assert all(one.reasons for one in each.places)
        assert all(one.reasons for one in each.left_out)
        if each.places:
            whole = made.pipeline.catalog.resolve(None, each.model)
            assert {*placed, *left} == set(whole.targets)


def test_a_provider_whose_budget_is_spent_is_left_out() -> None:
    made = market([Stand("north"), Stand("south", price=2)])
    spent: dict[str, None] = {}
    members = SimpleNamespace(allowances=SimpleNamespace(spent_providers=spent))
    made.pipeline = replace(made.pipeline, members=members)
    assert order_of(made.explain(asking(model="a/m"))) == ["north", "south"]
    spent["north"] = None
    told = made.explain(asking(model="a/m"))
    assert order_of(told) == ["south"]
    assert "whose budget is spent" in why(told, "north")
    spent["south"] = None
    told = made.explain(asking(model="a/m"))
    assert told.goes_to is None
    assert told.refusal is not None
    assert told.refusal.code == "insufficient_budget"
    assert "whose budget is spent" in why(told, "south")


@given(MARKETS, REQUESTS)
@settings(max_examples=examples(100), deadline=None)
async def test_the_places_are_asked_in_their_order(
    stands: Sequence[Stand], fields: Mapping[str, Any]
) -> None:
    """If the first ones fail; those with equal rank, decided at random, may change places."""
    made, request = market(stands), asking(**{**fields, "model": "a/m"})
    told = made.explain(request)
    if told.goes_to is None:
        return
    places = told.routes[0].places
    for place in places[:-1]:
        made.targets[place.target].script = [UpstreamFailed("Gone.")]
    record = await made.ask(request)
    asked = [line.partition(":")[0] for line in record.tried] or [record.served_by]
    tied = {frozenset((one.target, *one.tied)) for one in places}
    for foreseen, real in zip(places, asked, strict=False):
        alike = next(group for group in tied if foreseen.target in group)
        assert real == foreseen.target or real in alike


async def test_what_leaves_an_provider_out_is_said() -> None:
    made = market(
        [
            Stand("north", price=9, quantization="fp8", private=True),
            Stand("south", params=("seed",), private=True, quantization="fp8"),
            Stand("east", known=False),
            Stand("west", private=True, quantization="fp8"),
        ]
    )
    provider = {
        "max_price": {"prompt": 5},
        "require_parameters": True,
        "data_collection": "deny",
        "quantizations": ["fp8"],
        "ignore": ["east"],
    }
    told = made.explain(asking(tools=[TOOL], provider=provider))
    assert told.goes_to == "west/m"
    assert why(told, "north") == "provider.max_price.prompt: costs $9.00 (prompt)"
    assert why(told, "south") == "tools: does not support `tools`"
    assert "tools: is not known to support `tools`" in why(told, "east")
    assert "provider.ignore: is in `provider.ignore`" in why(told, "east")
    assert "provider.data_collection: may keep what it is sent" in why(told, "east")
    assert "provider.quantizations: has the quantization unknown" in why(told, "east")


async def test_the_reason_of_a_place_is_said() -> None:
    made = market([Stand("north", 2), Stand("south", 1), Stand("east", 0), Stand("west", 4)])
    first, *others = route(made.explain(asking())).places
    assert (first.target, first.decided, first.priority) == ("east/m", "alone", 0)
    assert first.reasons[0] == "is free; free endpoints come before all others"
    assert {one.priority for one in others} == {1}
    assert others[0].decided == "home"
    assert sum(one.share for one in others) == pytest.approx(1, abs=0.01)
    words = {one.target: one.reasons[0] for one in others}
    assert (
        words["south/m"]
        == "costs $1.00 per 1M tokens (75 % input, 25 % output), the cheapest one that is not free"
    )
    assert "4 times the cheapest" in words["west/m"]
    ordered = made.explain(asking(provider={"order": ["west", "north"]}))
    assert order_of(ordered)[:2] == ["west", "north"]
    assert route(ordered).places[1].reasons[0] == "is number 2 of `provider.order`"
    alone = made.explain(asking(provider={"allow_fallbacks": False}))
    assert order_of(alone) == ["east"]
    assert "allow_fallbacks" in why(alone, "north")


async def test_measured_speed_decides_where_it_is_asked_for() -> None:
    made = market(
        [
            Stand("north", speed=10, first=0.1, in_flight=1),
            Stand("south", speed=90, first=0.9, in_flight=1),
            Stand("east", in_flight=1),
        ]
    )
    fast = made.explain(asking(model="a/m:nitro"))
    assert order_of(fast) == ["south", "north", "east"]
    assert "writes 90 tokens per second" in route(fast).places[0].reasons[0]
    assert "was not measured yet" in route(fast).places[2].reasons[0]
    quick = made.explain(asking(provider={"sort": "latency"}))
    assert order_of(quick) == ["north", "south", "east"]
    assert "has a TTFT of 100 ms" in route(quick).places[0].reasons[0]


async def test_providers_that_rest_are_tried_at_last() -> None:
    made = market([Stand("north", failures=THRESHOLD), Stand("south", failures=THRESHOLD)])
    told = made.explain(asking())
    assert route(told).places[0].decided == "last"
    assert "upstream timeout" in route(told).places[0].cautions[0]
    assert "of those in this state only the one back soonest is tried" in why(
        told, "south" if told.goes_to == "north/m" else "north"
    )
    target_state = made.pipeline.router.target_state("north/m")
    assert target_state is not None
    assert target_state.breaker.state() == "down"


async def test_a_trial_is_not_used_up() -> None:
    """A provider that one request may try now is still to be tried after it was foreseen."""
    made = market([Stand("north", failures=THRESHOLD)])
    target_state = made.pipeline.router.target_state("north/m")
    assert target_state is not None
    target_state.breaker.back()
    assert made.explain(asking()).goes_to == "north/m"
    assert target_state.breaker.state() == "half_open"
    assert target_state.breaker.begin()


async def test_a_conversation_beyond_its_share_goes_to_the_next_place() -> None:
    calm = market([Stand("north"), Stand("south")]).explain(asking(session_id="a"))
    [home] = [one for one in route(calm).places if one.decided == "home"]
    loaded = [
        Stand(name, in_flight=9 if home.target == f"{name}/m" else 0) for name in ("north", "south")
    ]
    told = market(loaded).explain(asking(session_id="a"))
    assert told.goes_to != home.target
    assert route(told).places[0].decided == "overflow"


async def test_an_alias_with_priorities_and_weights() -> None:
    made = market(
        [Stand("north"), Stand("south"), Stand("east")],
        alias=(Candidate("north/m", 1), Candidate("south/m", 0, 3), Candidate("east/m", 0)),
    )
    told = made.explain(asking(model="alias"))
    places = route(told).places
    assert {one.target for one in places[:2]} == {"south/m", "east/m"}
    assert {one.target: one.share for one in places}["south/m"] == 0.75
    assert places[2].reasons == (
        "has priority 1 and weight 1 among those that serve it",
        "is the only one with its priority",
    )
    lacking = made.explain(asking(model="alias", tools=[TOOL]))
    assert lacking.goes_to is None
    assert lacking.refusal is not None
    assert lacking.refusal.code == "unsupported_parameter"
    assert why(lacking, "north") == "tools: does not support `tools`"


async def test_free_requests_leave_busy_providers_alone() -> None:
    made = market([Stand("north", busy=True), Stand("south")])
    told = made.explain(asking(model="a/m:free"))
    assert told.goes_to == "south/m"
    assert "no free capacity" in why(told, "north")
    full = market([Stand("north", busy=True)]).explain(asking(model="a/m:free"))
    assert full.refusal is not None
    assert full.refusal.status == 429


async def test_a_context_that_may_be_too_short_is_a_caution() -> None:
    made = market([Stand("north", context=10), Stand("south", context=9000)])
    told = made.explain(asking(max_tokens=100))
    cautions = {one.target: one.cautions for one in route(told).places}
    assert "context of 10 tokens" in cautions["north/m"][0]
    assert cautions["south/m"] == ()
    longest = made.explain(asking(model="a/m:extended"))
    assert "`:extended`" in why(longest, "north")


async def test_a_context_that_a_lowered_limit_leaves_room_in_is_none() -> None:
    made = market([Stand("north", context=90, most=20), Stand("south", context=90)])
    told = made.explain(asking(max_tokens=100))
    cautions = {one.target: one.cautions for one in route(told).places}
    assert cautions["north/m"] == ()
    assert "context of 90 tokens" in cautions["south/m"][0]


async def test_a_key_that_may_not_use_the_model() -> None:
    caller = Caller(key="ck_a", name="a", door="router", models=frozenset({"a/other"}))
    told = market([Stand("north")]).explain(asking(), caller)
    assert told.refusal is not None
    assert told.refusal.code == "model_not_allowed"
