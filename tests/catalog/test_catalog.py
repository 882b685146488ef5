"""Targets that can serve a request, and a model's entry."""

from __future__ import annotations

import pytest
from casekit import each_of
from msgspec import to_builtins

from causerie.catalog.catalog import Catalog
from causerie.catalog.model import ModelCard, ModelProfile, ServedModel, TargetCapabilities
from causerie.composition.catalog import parameters
from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.console.service_view import model_row
from causerie.protocol.parameters import EFFORTS, HONOURED, USUAL_SAMPLING, SamplingDefaults
from causerie.protocol.request import ChatRequest
from causerie.protocol.targets import Candidate
from causerie.settings.provider import ProviderModelSettings

BASE = frozenset({"model", "messages"})
A, B, C = Candidate("a"), Candidate("b", 1), Candidate("c", 2, 3.0)


def asking(*names: str) -> ChatRequest:
    return ChatRequest(model="m", messages=(), params=BASE | set(names))


def model(*offers: TargetCapabilities) -> ServedModel:
    return ServedModel(ModelCard("m", "M"), offers)


def offer(candidate: Candidate, *names: str) -> TargetCapabilities:
    return TargetCapabilities(candidate, BASE | set(names))


MIXED = model(offer(A, "tools", "seed"), offer(B, "tools", "top_k"), TargetCapabilities(C))


def test_all_targets_serve_what_all_of_them_know() -> None:
    assert MIXED.candidates(asking()) == (A, B, C)
    assert MIXED.candidates(asking("tools")) == (A, B, C)


def test_a_target_that_lacks_a_parameter_is_left_out() -> None:
    assert MIXED.candidates(asking("seed")) == [A, C]
    assert MIXED.candidates(asking("top_k", "tools")) == [B, C]


def test_of_an_unprobed_target_everything_is_expected() -> None:
    assert MIXED.candidates(asking("seed", "top_k", "logit_bias")) == [C]
    assert MIXED.parameters == HONOURED


def test_what_nobody_supports_is_refused_by_name() -> None:
    probed = model(offer(A, "tools", "seed"), offer(B, "tools"))
    assert probed.parameters == BASE | {"tools", "seed"}
    with pytest.raises(InvalidRequest) as caught:
        probed.candidates(asking("logit_bias"))
    assert (caught.value.status, caught.value.code) == (400, "unsupported_parameter")
    assert caught.value.param == "logit_bias"
    assert "does not support `logit_bias`" in caught.value.message


def test_what_nobody_supports_together_says_who_lacks_what() -> None:
    apart = model(offer(A, "seed"), offer(B, "top_k"))
    assert apart.candidates(asking("seed")) == [A]
    with pytest.raises(InvalidRequest) as caught:
        apart.candidates(asking("seed", "top_k"))
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "top_k")
    assert caught.value.message == (
        "No target of the model m supports all parameters of the request: a lacks `top_k`; "
        "b lacks `seed`. Leave out `top_k`."
    )


def test_lengths_are_those_that_hold_whoever_answers() -> None:
    profiles = [
        ModelProfile(8000, 500, images=True),
        ModelProfile(None, 900, must_think=True),
        ModelProfile(4000),
    ]
    entry = model(
        *(TargetCapabilities(A, BASE, lambda found=found: found) for found in profiles)  # type: ignore[misc]  # lambda
    ).entry()
    assert (entry.context_length, entry.max_output_tokens) == (4000, 500)
    assert entry.architecture.input_modalities == ["text", "image"]
    assert entry.reasoning
    assert entry.reasoning.mandatory is False


@each_of(
    ("of_targets", "shown"),
    [
        ((None,), None),
        ((USUAL_SAMPLING,), USUAL_SAMPLING),
        ((USUAL_SAMPLING, USUAL_SAMPLING), USUAL_SAMPLING),
        ((USUAL_SAMPLING, SamplingDefaults(temperature=1.0)), None),
        ((USUAL_SAMPLING, None), None),  # a provider's own are not known
    ],
)
def test_default_parameters_are_those_of_all_targets(
    of_targets: tuple[SamplingDefaults | None, ...], shown: SamplingDefaults | None
) -> None:
    profiles = [ModelProfile(sampling=sampling) for sampling in of_targets]
    entry = model(
        *(TargetCapabilities(A, BASE, lambda found=found: found) for found in profiles)  # type: ignore[misc]  # lambda
    ).entry()
    assert entry.default_parameters == shown


def test_the_reasoning_object_is_shown_where_a_door_knows_it() -> None:
    own = model(TargetCapabilities(A, HONOURED))
    assert "reasoning" not in own.entry().supported_parameters
    assert "reasoning" in own.entry(reasoning_object=True).supported_parameters


def test_a_name_that_is_not_there() -> None:
    catalog = Catalog(
        [ServedModel(ModelCard("qwen", "Q", aliases=("q",)), [TargetCapabilities(A)])]
    )
    assert catalog.resolve(None, "q").id == "qwen"
    assert catalog.resolve(frozenset({"qwen"}), "q").id == "qwen"
    with pytest.raises(NotFound, match="Did you mean qwen"):
        catalog.resolve(None, "qwem")
    with pytest.raises(NotFound, match="GET /models"):
        catalog.resolve(frozenset(), "qwen")


class TestProbed:
    """From what a probe wrote to what requests may have."""

    def test_nothing_known(self) -> None:
        assert parameters(None) is None
        assert parameters(ProviderModelSettings(id="m")) is None

    def test_what_we_do_ourselves_is_always_there(self) -> None:
        found = parameters(ProviderModelSettings(id="m", supported_parameters=()))
        assert found is not None
        assert {"model", "messages", "stream", "stream_options", "session_id"} <= found
        assert not {"tools", "temperature", "max_tokens"} & found

    def test_both_names_of_the_output_limit(self) -> None:
        for name in ("max_tokens", "max_completion_tokens"):
            found = parameters(ProviderModelSettings(id="m", supported_parameters=(name,)))
            assert found is not None
            assert {"max_tokens", "max_completion_tokens"} <= found

    def test_a_switch_for_thinking_has_all_our_names(self) -> None:
        found = parameters(
            ProviderModelSettings(id="m", supported_parameters=(), thinking="switch")
        )
        assert found is not None
        assert {"reasoning_effort", "chat_template_kwargs", "reasoning"} <= found
        found = parameters(ProviderModelSettings(id="m", supported_parameters=(), thinking="never"))
        assert found is not None
        assert "reasoning_effort" not in found


@pytest.mark.parametrize("thinks", [True, False, None])
def test_thinking_is_claimed_where_the_model_itself_thinks(thinks: bool | None) -> None:
    offer = TargetCapabilities(Candidate("t"), HONOURED, lambda: ModelProfile(thinks=thinks))
    entry = to_builtins(ServedModel(ModelCard("m", "m"), [offer]).entry(reasoning_object=True))
    assert ("reasoning" in entry) == (thinks is not False)
    assert {"reasoning", "reasoning_effort"} <= set(entry["supported_parameters"])  # if asked to
    assert model_row(entry).thinks is thinks
    row = model_row(entry)
    assert ("thinking" in row.ability_words) == bool(row.efforts) == bool(thinks)


def test_one_that_thinks_is_enough_and_one_that_may_leaves_it_open() -> None:
    def efforts(*thinks: bool | None) -> object:
        offers = [
            TargetCapabilities(
                Candidate(f"t{n}"),
                HONOURED,
                lambda one=one: ModelProfile(thinks=one),  # type: ignore[misc]
            )
            for n, one in enumerate(thinks)
        ]
        entry = to_builtins(ServedModel(ModelCard("m", "m"), offers).entry())
        return entry.get("reasoning", {}).get("supported_efforts", "no")

    assert efforts(True, None, False) == list(EFFORTS)
    assert efforts(None, False) is None
    assert efforts(False, False) == "no"
