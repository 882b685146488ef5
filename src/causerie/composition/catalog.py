"""Models by name: models of our own, and aliases, with the capabilities of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from causerie.catalog.catalog import Catalog
from causerie.catalog.choice import StatsReader
from causerie.catalog.model import ModelCard, ModelProfile, ServedModel, TargetCapabilities
from causerie.composition.catalog_models import listings, models_of_providers, tariff
from causerie.composition.targets import OwnModel
from causerie.protocol.candidate import Candidate
from causerie.protocol.parsing.rules import HONOURED
from causerie.settings import AliasTarget, ProviderModelSettings, Settings
from causerie.settings import ModelSettings as OwnSettings

_ALWAYS = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "include_reasoning",
        "modalities",
        "session_id",
    }
)
"""Served whoever answers: we do it ourselves, or nothing can answer a chat without it."""

_ALIKE = (
    frozenset({"max_tokens", "max_completion_tokens"}),
    frozenset({"continue_final_message", "add_generation_prompt"}),
)
"""Names of one ability: whoever honours one is spoken to by that name."""

_SWITCHES = frozenset({"reasoning", "reasoning_effort", "chat_template_kwargs"})
"""Ways to switch thinking, each written as the target knows it."""

_OF_PROBABILITIES = frozenset({"logprobs", "top_logprobs"})
"""The engine weighs no token that a draft model said ahead."""


def offered(settings: Settings, own: Mapping[str, OwnModel], stats_of: StatsReader) -> Catalog:
    """The catalog of all doors; ``stats_of`` tells how targets stand now."""
    capabilities = {
        model.id: TargetCapabilities(
            Candidate(model.id), _own_parameters(model), _own_profile(model, own[model.id])
        )
        for model in settings.models
    }
    listed = listings(settings, capabilities, stats_of, parameters)
    return Catalog([*_models(settings, capabilities), *listed])


def parameters(probed: ProviderModelSettings | None) -> frozenset[str] | None:
    """Return the known parameters of a provider's model; ``None``: nothing is known."""
    if probed is None or probed.supported_parameters is None:
        return None
    known = frozenset(probed.supported_parameters)
    for alike in _ALIKE:
        if known & alike:
            known |= alike
    if probed.thinking == "switch":
        known |= _SWITCHES
    return (known | _ALWAYS) & HONOURED


def _models(
    settings: Settings, capabilities: Mapping[str, TargetCapabilities]
) -> Iterator[ServedModel]:
    created = time.time_ns() // 1_000_000_000
    for model in settings.models:
        name = model.name or model.id
        card = ModelCard(model.id, name, model.description, created, model.aliases)
        yield ServedModel(card, [capabilities[model.id]], tariff=tariff(model.price))
    probed = models_of_providers(settings)
    for alias in settings.aliases:
        card = ModelCard(alias.id, alias.name or alias.id, alias.description, created)
        answering = [_capabilities(target, capabilities, probed) for target in alias.targets]
        yield ServedModel(card, answering, alias.hedge_seconds, tariff(alias.price))


def _capabilities(
    target: AliasTarget,
    own: Mapping[str, TargetCapabilities],
    probed: Mapping[str, ProviderModelSettings],
) -> TargetCapabilities:
    candidate = Candidate(target.name, target.priority, target.weight)
    if target.provider is None:
        mine = own[target.model]
        return TargetCapabilities(candidate, mine.parameters, mine.profile)
    known = probed.get(target.name)
    profile = _remote_profile(known)
    return TargetCapabilities(candidate, parameters(known), lambda: profile)


def _remote_profile(known: ProviderModelSettings | None) -> ModelProfile:
    if known is None:
        return ModelProfile()
    return ModelProfile(
        context_length=known.context_length,
        must_think=known.thinking == "always",
        thinks=known.thinking != "never",
    )


def _own_parameters(model: OwnSettings) -> frozenset[str]:
    return HONOURED - _OF_PROBABILITIES if model.llamacpp.draft else HONOURED


def _own_profile(model: OwnSettings, own: OwnModel) -> Callable[[], ModelProfile]:
    """Return a reader of the model's current profile; more is known once it has been loaded."""

    def profile() -> ModelProfile:
        facts = own.engine.known
        if facts is None:
            return ModelProfile(
                context_length=model.context,
                max_output_tokens=model.max_output_tokens,
                thinks=False,
            )
        switch, lacks = None, frozenset[str]()
        with suppress(ValueError):  # of a template that is none, which requests are told of
            loaded = own.chat.model(facts)
            switch = loaded.form.thinking
            lacks = frozenset() if loaded.shows_documents else frozenset({"documents"})
        return ModelProfile(
            context_length=facts.context_length,
            max_output_tokens=model.max_output_tokens,
            images=facts.vision,
            must_think=switch is not None and switch.mandatory,
            thinks=switch is not None,
            lacks=lacks,
        )

    return profile
