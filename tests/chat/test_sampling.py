"""The sampling of a request: what it says, else the model's settings, else a recommendation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chatkit import Unchecked
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from causerie.chat.chat import TextChat, TextChatOptions
from causerie.chat.thinking import default_sampling, request_sampling
from causerie.engines.base import ModelFacts, RecommendedSampling
from causerie.engines.registry import FakeEngine, FakeScript
from causerie.protocol.parameters import (
    MODEL_SAMPLING,
    NEUTRAL_SAMPLING,
    USUAL_SAMPLING,
    ModelSampling,
    SamplingDefaults,
    SamplingParams,
)
from causerie.protocol.request import ChatRequest, JsonObject, Message, Thinking, Tool, ToolChoice

UNSET = SamplingDefaults()
THINKING = SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20)
PLAIN = SamplingDefaults(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05)
QWEN = RecommendedSampling(THINKING, PLAIN)
SWITCH = "{{ messages[0].content }}{% if enable_thinking is false %}<think>\n\n</think>{% endif %}"


def resolved(
    wanted: SamplingParams = SamplingParams(),  # noqa: B008 - frozen
    configured: ModelSampling = UNSET,
    recommended: RecommendedSampling | None = QWEN,
    *,
    thinks: bool = True,
) -> tuple[float | None, ...]:
    found = request_sampling(wanted, configured, recommended, thinks=thinks)
    return tuple(getattr(found, each.name) for each in MODEL_SAMPLING)


def test_where_nothing_is_known() -> None:
    assert resolved(recommended=None) == (0.8, 40, 0.95, 0.05, 1.0)


def test_a_recommendation_counts_as_a_whole() -> None:
    """No default of another server is mixed into it."""
    assert resolved() == (0.6, 20, 0.95, 0.0, 1.0)
    assert resolved(thinks=False) == (0.7, 20, 0.8, 0.0, 1.05)


def test_settings_go_before_it_one_by_one() -> None:
    assert resolved(configured=SamplingDefaults(top_p=0.5)) == (0.6, 20, 0.5, 0.0, 1.0)
    assert resolved(configured="neutral") == (1.0, 0, 1.0, 0.0, 1.0)
    assert resolved(SamplingParams(top_k=5), "neutral") == (1.0, 5, 1.0, 0.0, 1.0)


def test_what_a_request_sets_wins_also_1_and_0() -> None:
    set_off = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0)
    for recommended in (QWEN, None):
        assert resolved(set_off, PLAIN, recommended) == (1.0, 0, 1.0, 0.0, 1.0)
    assert resolved(SamplingParams(temperature=1.0)) == (1.0, 20, 0.95, 0.0, 1.0)
    assert resolved(SamplingParams(top_k=0)) == (0.6, 0, 0.95, 0.0, 1.0)


def test_greedy_is_greedy() -> None:
    greedy = SamplingParams(temperature=0.0)
    assert resolved(greedy, thinks=False) == (0.0, 0, 1.0, 0.0, 1.0)
    penalty = SamplingDefaults(repetition_penalty=1.2)
    assert resolved(greedy, penalty, thinks=False) == (0.0, 0, 1.0, 0.0, 1.2)
    asked = SamplingParams(temperature=0.0, repetition_penalty=1.3)
    assert resolved(asked, penalty) == (0.0, 0, 1.0, 0.0, 1.3)


_ANY = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2),
        "top_k": st.integers(-1, 99),
        "top_p": st.floats(0.01, 1),
        "min_p": st.floats(0, 1),
        "repetition_penalty": st.floats(0.1, 10),
        "seed": st.integers(0, 9),
        "presence_penalty": st.floats(-2, 2),
    },
)


@given(_ANY, st.sampled_from(["neutral", UNSET, PLAIN]), st.sampled_from([QWEN, None]))
def test_every_value_of_a_request_is_kept(
    said: dict[str, float], configured: ModelSampling, recommended: RecommendedSampling | None
) -> None:
    wanted = SamplingParams(**said)  # type: ignore[arg-type]  # of any field
    found = structs.asdict(request_sampling(wanted, configured, recommended, thinks=True))
    assert {name: found[name] for name in said} == said
    assert None not in [found[each.name] for each in MODEL_SAMPLING]


def test_defaults_are_those_of_a_request_that_says_nothing() -> None:
    assert default_sampling(UNSET, QWEN) == SamplingDefaults(0.6, 20, 0.95, 0.0, 1.0)
    assert default_sampling("neutral", QWEN) == NEUTRAL_SAMPLING
    assert default_sampling(SamplingDefaults(temperature=0.0), QWEN).temperature == 0.0


class Recommending(FakeEngine):
    """A model of which something is recommended."""

    async def facts(self) -> ModelFacts:
        return replace(await super().facts(), sampling=QWEN)


async def drawn(
    request: ChatRequest,
    options: TextChatOptions = TextChatOptions(),  # noqa: B008 - frozen
) -> SamplingParams:
    """The sampling that the engine is asked for."""
    engine = Recommending("m", FakeScript(["x"]))
    async with TextChat(engine, Unchecked(), options).generate(request) as answer:
        await anext(aiter(answer.events))
    return engine.requests[0].sampling


def asked(**changes: object) -> ChatRequest:
    return ChatRequest("m", (Message("user", "Hi"),), **changes)  # type: ignore[arg-type]  # of any field


TOOL = Tool("f", parameters={"type": "object", "properties": {}})


@pytest.mark.parametrize(
    "request_",
    [
        asked(),
        asked(output=JsonObject()),
        asked(tools=(TOOL,)),
        asked(tools=(TOOL,), tool_choice=ToolChoice("required")),
    ],
    ids=["plain", "schema", "tools", "forced"],
)
async def test_the_engine_gets_them_also_under_a_constraint(request_: ChatRequest) -> None:
    assert await drawn(request_) == SamplingParams(0.6, 20, 0.95, 0.0, 1.0)


async def test_thinking_that_is_off_has_its_own() -> None:
    thinking = TextChatOptions(format="qwen-3", template=SWITCH)
    off = asked(thinking=Thinking(enabled=False))
    assert (await drawn(off, thinking)).top_p == 0.8
    on = asked(thinking=Thinking(enabled=True))
    assert (await drawn(on, thinking)).top_p == (await drawn(asked(), thinking)).top_p == 0.95


async def test_the_settings_of_the_model_apply() -> None:
    assert await drawn(asked(), TextChatOptions(sampling="neutral")) == SamplingParams(
        1.0, 0, 1.0, 0.0, 1.0
    )
    half = TextChatOptions(sampling=SamplingDefaults(temperature=0.5))
    request = asked(sampling=SamplingParams(seed=3, top_k=0))
    assert await drawn(request, half) == SamplingParams(0.5, 0, 0.95, 0.0, 1.0, seed=3)


def test_usual_values_are_those_of_local_servers() -> None:
    assert SamplingDefaults(0.8, 40, 0.95, 0.05) == USUAL_SAMPLING
