"""Endpoints of an entry for a request: exclusions, and their order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest
from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from routingkit import REPLY, Clock, Scripted, middle

from causerie.catalog.catalog import Catalog
from causerie.catalog.endpoint import CatalogEndpoint, able, ranked, weighted
from causerie.catalog.listing import Listing
from causerie.catalog.model import ModelCard, ModelProfile, ServedModel, TargetCapabilities, Tariff
from causerie.errors import InvalidRequest, NotFound, UpstreamFailed
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest, Message, NativeRequest
from causerie.protocol.targets import (
    Candidate,
    Figures,
    MostPrice,
    Percentiles,
    Preferences,
    TargetStats,
)
from causerie.routing.circuit_breaker import THRESHOLD, CircuitBreaker
from causerie.routing.target_selector import order
from causerie.routing.target_state import TargetState
from causerie.shapes.chat_completions.reader import parse

BASE = frozenset({"model", "messages"})
ROUTER = ParsingRules(reasoning_object=True, router=True)


def endpoint(
    name: str,
    price: float = 1,
    *params: str,
    context: int = 1000,
    quantization: Any = None,
    private: bool = False,
    unknown: bool = False,
) -> CatalogEndpoint:
    money = Decimal(str(price)) / 10**6
    known = None if unknown else BASE | {"max_tokens", *params}
    profile = ModelProfile(context_length=context)
    return CatalogEndpoint(
        Candidate(f"{name}/m"),
        known,
        lambda: profile,
        provider=name,
        tariff=Tariff(money, money),
        quantization=quantization,
        private=private,
    )


def asking(**fields: Any) -> ChatRequest:
    body = {"model": "a/m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return parse(json.dumps(body).encode(), ROUTER)


def nobody(name: str) -> TargetStats | None:
    return None


def listing(
    *endpoints: CatalogEndpoint, standings: Mapping[str, TargetStats] | None = None
) -> Listing:
    return Listing(ModelCard("a/m", "M"), endpoints, (standings or {}).get, no_figures)


def no_figures(target: str) -> Figures:
    return Figures()


def names(candidates: Sequence[Candidate]) -> list[str]:
    """Endpoints in the order in which they would be asked."""
    ordered = sorted(candidates, key=lambda one: (one.priority, -one.weight))
    return [one.name.partition("/")[0] for one in ordered]


MARKET = (
    endpoint("one", 1, "seed", quantization="fp8"),
    endpoint("two", 2, "seed", "tools", private=True),
    endpoint("four", 4, "tools", context=4000),
    endpoint("new", 3, unknown=True),
)


def test_cheap_ones_are_asked_more_by_the_inverse_square() -> None:
    found = {one.name: one for one in listing(*MARKET).candidates(asking())}
    assert {one.priority for one in found.values()} == {0}
    assert found["one/m"].weight == 1
    assert found["two/m"].weight == pytest.approx(1 / 4)
    assert found["four/m"].weight == pytest.approx(1 / 16)


def test_conversations_spread_by_those_weights() -> None:
    candidates = weighted(MARKET[:3])
    target_states = {one.name: target_state(one.name) for one in candidates}
    talks = [ChatRequest(model="m", messages=(Message("user", str(n)),)) for n in range(2000)]
    first = Counter(order(candidates, target_states, talk, middle)[0].name for talk in talks)
    assert first["one/m"] / 2000 == pytest.approx(16 / 21, abs=0.05)
    assert first["two/m"] / 2000 == pytest.approx(4 / 21, abs=0.05)


def target_state(name: str) -> TargetState:
    return TargetState(name, Scripted(REPLY), None, CircuitBreaker(Clock(), middle))


def test_a_cache_key_keeps_conversations_together() -> None:
    candidates = weighted([endpoint("a"), endpoint("b"), endpoint("c"), endpoint("d")])
    target_states = {one.name: target_state(one.name) for one in candidates}
    talks = [asking(prompt_cache_key="k", messages=[user(str(n))]) for n in range(20)]
    assert len({order(candidates, target_states, talk, middle)[0].name for talk in talks}) == 1
    talks = [asking(messages=[user(str(n))]) for n in range(20)]
    assert len({order(candidates, target_states, talk, middle)[0].name for talk in talks}) > 1


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_what_costs_nothing_comes_first() -> None:
    found = listing(endpoint("dear", 5), endpoint("gratis", 0), endpoint("cheap", 1)).candidates(
        asking()
    )
    assert names(found) == ["gratis", "cheap", "dear"]
    assert [one.priority for one in found if one.name == "gratis/m"] == [0]


@each_of(
    ("provider", "expected"),
    [
        ({"only": ["two", "four"]}, ["two", "four"]),
        ({"only": ["four/m"]}, ["four"]),
        ({"ignore": ["one"]}, ["two", "new", "four"]),
        ({"order": ["four", "two"]}, ["four", "two", "one", "new"]),
        ({"order": ["four", "gone"], "allow_fallbacks": False}, ["four"]),
        ({"allow_fallbacks": False}, ["one"]),
        ({"require_parameters": True}, ["one", "two", "four"]),
        ({"sort": "price"}, ["one", "two", "new", "four"]),
        ({"sort": {"by": "price"}, "ignore": ["two"]}, ["one", "new", "four"]),
        ({"max_price": {"prompt": 2}}, ["one", "two"]),
        ({"max_price": {"completion": "1.5", "request": 0}}, ["one"]),
        ({"quantizations": ["fp8"]}, ["one"]),
        ({"quantizations": ["unknown"]}, ["two", "new", "four"]),
        ({"data_collection": "deny"}, ["two"]),
        ({"data_collection": "allow", "zdr": True}, ["two"]),
        ({}, ["one", "two", "new", "four"]),
        ({"only": [], "ignore": [], "order": []}, ["one", "two", "new", "four"]),
        ({"quantizations": []}, ["one", "two", "new", "four"]),
    ],
)
def test_preferences(provider: Mapping[str, Any], expected: list[str]) -> None:
    found = listing(*MARKET).candidates(asking(max_tokens=5, provider=provider))
    assert names(found) == expected


def measured(speed: float | None, first: float | None, *, idle: bool = True) -> TargetStats:
    return TargetStats(
        idle=idle,
        speed=None if speed is None else Percentiles(speed, speed, speed, speed),
        first_token=None if first is None else Percentiles(first, first, first, first),
    )


def test_the_fastest_is_the_one_that_was_measured_to_be() -> None:
    seen = {
        "one/m": measured(10, 0.1),
        "two/m": measured(50, 0.5),
        "four/m": measured(30, 0.3),
        "new/m": measured(None, None, idle=False),
    }
    entry = listing(*MARKET, standings=seen)
    assert names(entry.candidates(asking(provider={"sort": "throughput"}))) == [
        "two", "four", "one", "new",
    ]  # fmt: skip
    assert names(entry.candidates(asking(provider={"sort": "latency"}))) == [
        "one", "four", "two", "new",
    ]  # fmt: skip
    assert names(entry.twisted("nitro").candidates(asking()))[0] == "two"
    seen["one/m"] = structs.replace(seen["one/m"], expected=0.4)  # it has just become slow
    assert names(entry.candidates(asking(provider={"sort": "latency"}))) == [
        "four", "one", "two", "new",
    ]  # fmt: skip
    seen["new/m"] = measured(None, None, idle=True)
    assert names(entry.twisted("nitro").candidates(asking()))[0] == "new"  # to be measured


def test_without_fallbacks_the_only_one_is_up() -> None:
    entry = listing(*MARKET, standings={"one/m": TargetStats(up=False)})
    assert names(entry.candidates(asking(provider={"allow_fallbacks": False}))) == ["two"]


def test_only_those_are_asked_that_support_everything() -> None:
    entry = listing(*MARKET)
    assert names(entry.candidates(asking(seed=1))) == ["one", "two", "new"]
    with pytest.raises(InvalidRequest) as caught:
        entry.candidates(asking(seed=1, top_k=3, provider={"require_parameters": True}))
    failure = caught.value
    assert (failure.code, failure.param) == ("unsupported_parameter", "top_k")
    assert failure.metadata["excluded"] == {
        "one/m": "does not support `top_k`",
        "two/m": "does not support `top_k`",
        "four/m": "does not support `seed`, `top_k`",
        "new/m": "is not known to support `seed`, `top_k`",
    }


def test_what_preferences_exclude_is_told_for_each() -> None:
    with pytest.raises(InvalidRequest) as caught:
        listing(*MARKET[:3]).candidates(
            asking(tools=[TOOL], provider={"only": ["one", "four"], "max_price": {"prompt": 2}})
        )
    failure = caught.value
    assert failure.metadata["excluded"] == {
        "one/m": "does not support `tools`",
        "two/m": "is not in `provider.only`",
        "four/m": "costs $4.00 (prompt)",
    }
    assert (failure.code, failure.param) == ("unsupported_parameter", "tools")
    with pytest.raises(InvalidRequest) as caught:
        listing(*MARKET).candidates(asking(provider={"only": ["gone"]}))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "provider.only")


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
prices = st.decimals(0, 100, places=2)


@given(
    offers=st.lists(st.tuples(prices, st.booleans(), st.booleans()), min_size=1, max_size=12),
    most=prices | st.none(),
)
def test_the_cheapest_that_is_up_able_and_within_the_price_is_asked_first(
    offers: list[tuple[Decimal, bool, bool]], most: Decimal | None
) -> None:
    endpoints = [
        endpoint(f"e{n}", float(price), *(["seed"] if knows else []))
        for n, (price, knows, _) in enumerate(offers)
    ]
    preferences = Preferences(sort="price", max_price=MostPrice(prompt=most))
    wanted = BASE | {"seed"}
    target_states = {one.name: target_state(one.name) for one in endpoints}
    for (_, _, up), one in zip(offers, endpoints, strict=True):
        for _ in range(0 if up else THRESHOLD):
            target_states[one.name].failed(UpstreamFailed("It broke."))
    fitting = [
        (price, f"e{n}/m")
        for n, (price, knows, _) in enumerate(offers)
        if knows and (most is None or price <= most)
    ]
    healthy = [one for one in fitting if target_states[one[1]].breaker.state() == "up"]
    if not fitting:
        with pytest.raises(InvalidRequest):
            able("a/m", endpoints, wanted, preferences)
        return
    candidates = ranked(
        able("a/m", endpoints, wanted, preferences), preferences, None, lambda name: None
    )
    asked = order(candidates, target_states, ChatRequest(model="m", messages=()), middle)
    assert {one.name for one in candidates} == {name for _, name in fitting}
    cost = {name: price for price, name in fitting}
    if healthy:
        assert cost[asked[0].name] == min(healthy)[0]
        there = [cost[one.name] for one in asked if one.breaker.state() == "up"]
        assert there == sorted(there)


def test_suffixes_choose_and_ids_of_their_own_win() -> None:
    base = listing(*MARKET)
    free = Listing(ModelCard("a/m:free", "M"), (endpoint("gratis", 0),), nobody, no_figures)
    own = ServedModel(ModelCard("plain", "Plain"), [TargetCapabilities(Candidate("plain"))])
    catalog = Catalog([base, free, own])
    assert catalog.resolve(None, "a/m:free") is free
    floor = catalog.resolve(None, "a/m:floor")
    assert floor.id == "a/m"
    assert [one.priority for one in floor.candidates(asking())] == [0, 1, 3, 2]
    assert names(catalog.resolve(None, "a/m:extended").candidates(asking())) == ["four"]
    for name in ("plain:nitro", "a/m:fast", "b/m:nitro", "a/m:nitro:nitro"):
        with pytest.raises(NotFound):
            catalog.resolve(None, name)
    with pytest.raises(NotFound):
        catalog.resolve(frozenset({"plain"}), "a/m:nitro")


def test_thinking_as_a_suffix() -> None:
    thinker = endpoint("thinker", 9, "reasoning")
    entry = listing(endpoint("plain", 1), thinker).twisted("thinking")
    request = structs.replace(asking(), native=NativeRequest("messages", {"model": "m"}))
    told = entry.adapted(request)
    assert told.thinking.enabled is True
    assert told.native is None, "a body that passed would not say so"
    assert names(entry.candidates(told)) == ["thinker"]
    assert list(entry.changes(request)) == ["model:thinking->reasoning.enabled"]
    same = asking(reasoning={"effort": "low"})
    assert entry.adapted(same) is same
    assert list(entry.changes(same)) == []
    with pytest.raises(InvalidRequest) as caught:
        entry.adapted(asking(reasoning={"enabled": False}))
    assert caught.value.param == "model"


@each_of(
    ("fields", "param"),
    [
        ({"provider": {"sort": "size"}}, "provider.sort"),
        ({"provider": {"order": ["a", 1]}}, "provider.order[1]"),
        ({"provider": {"only": "a"}}, "provider.only"),
        ({"provider": {"allow_fallbacks": 1}}, "provider.allow_fallbacks"),
        ({"provider": {"max_price": {"prompt": "x"}}}, "provider.max_price.prompt"),
        ({"provider": {"max_price": {"prompt": -1}}}, "provider.max_price.prompt"),
        ({"provider": {"max_price": {"prompt": True}}}, "provider.max_price.prompt"),
        ({"provider": []}, "provider"),
        ({"provider": {"data_collection": "maybe"}}, "provider.data_collection"),
        ({"transforms": ["middle-out"]}, "transforms"),
        ({"plugins": [{"id": "web"}]}, "plugins"),
        ({"route": "sort"}, "route"),
        ({"models": ["a", 2]}, "models[1]"),
        ({"models": "a"}, "models"),
        ({"usage": {"include": 1}}, "usage.include"),
    ],
)
def test_wrong_preferences_are_named(fields: Mapping[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        asking(**fields)
    assert caught.value.param == param


def test_unknown_preferences_are_dropped_and_named() -> None:
    ranked = {"by": "price", "partition": "none"}
    changes = asking(provider={"speed": 1, "sort": ranked, "max_price": {"image": 1}}).changes
    assert sorted(changes) == [
        "provider.max_price.image dropped",
        "provider.sort.partition dropped",
        "provider.speed dropped",
    ]


def test_what_is_said_to_the_router_stays_with_it() -> None:
    request = asking(
        models=["a/m", "b/n", "b/n"],
        provider={"sort": "price"},
        transforms=[],
        route="fallback",
        usage={"include": True},
        other=1,
    )
    assert (request.model, request.fallbacks) == ("a/m", ("b/n",))
    assert set(request.document) == {"model", "messages"}
    assert request.unlisted is not None
    assert request.unlisted.names == ("other",)
    assert request.include_usage
    alone = parse(b'{"models":["x","y"],"messages":[{"role":"user","content":"Hi"}]}', ROUTER)
    assert (alone.model, alone.fallbacks) == ("x", ("y",))


def test_other_doors_do_not_know_these_fields() -> None:
    body = {"model": "m", "messages": [user("Hi")], "provider": {"speed": 1}, "models": ["x"]}
    request = parse(json.dumps(body).encode(), ParsingRules(reasoning_object=True))
    assert request.unlisted is not None
    assert request.unlisted.names == ("provider", "models")
    assert set(request.document) == {"model", "messages"}
    assert request.fallbacks == ()
