"""The router's catalog: each entry with its endpoints, as far as settings and probes know them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, time

from causerie.catalog.choice import StatsReader
from causerie.catalog.endpoint import CatalogEndpoint
from causerie.catalog.listing import Listing, today
from causerie.catalog.model import ModelCard, ModelProfile, TargetCapabilities
from causerie.catalog.tariff import Tariff
from causerie.protocol.bounds import UNBOUNDED, TokenBounds
from causerie.protocol.candidate import Candidate
from causerie.settings import ProviderModelSettings, Settings
from causerie.settings.catalog import CatalogEndpointSettings as Offered
from causerie.settings.catalog import CatalogModelSettings
from causerie.settings.price import PriceSettings

OWN_PROVIDER = "causerie"
"""The name of this service among the providers of a model."""

Supported = Callable[[ProviderModelSettings | None], frozenset[str] | None]
"""What is known of the parameters that a provider's model supports."""


def listings(
    settings: Settings,
    own: Mapping[str, TargetCapabilities],
    stats_of: StatsReader,
    supported: Supported,
) -> Iterator[Listing]:
    """Every entry; ``own`` are the capabilities of models of our own, by their ids."""
    probed = models_of_providers(settings)
    for entry in settings.catalog:
        endpoints = tuple(_endpoint(one, own, probed, supported) for one in entry.endpoints)
        yield Listing(
            _card(entry), endpoints, stats_of, ends=entry.ends, hedge_seconds=entry.hedge_seconds
        )


def models_of_providers(settings: Settings) -> Mapping[str, ProviderModelSettings]:
    """Models that the providers are known to have, by the names of their targets."""
    return {
        f"{provider.name}/{model.id}": model
        for provider in settings.providers
        for model in provider.models
    }


def _card(entry: CatalogModelSettings) -> ModelCard:
    created = int(datetime.combine(entry.created or today(), time(), UTC).timestamp())
    return ModelCard(entry.id, entry.name or entry.id, entry.description, created, entry.aliases)


def _endpoint(
    endpoint: Offered,
    own: Mapping[str, TargetCapabilities],
    probed: Mapping[str, ProviderModelSettings],
    supported: Supported,
) -> CatalogEndpoint:
    known = probed.get(endpoint.name)
    if endpoint.provider is None:
        mine = own[endpoint.model]
        parameters, profile = mine.parameters, mine.profile
    else:
        parameters, profile = supported(known), _fixed(known)
    if endpoint.supported_parameters is not None:
        said = ProviderModelSettings(
            id=endpoint.model, supported_parameters=endpoint.supported_parameters
        )
        parameters = supported(said)
    return CatalogEndpoint(
        TargetCapabilities(
            Candidate(endpoint.name, bounds=_bounds(endpoint)), parameters, _said(endpoint, profile)
        ),
        provider=endpoint.provider or OWN_PROVIDER,
        tariff=tariff(endpoint.price),
        quantization=endpoint.quantization,
        private=not endpoint.keeps_data,
        probed=known.probed if known is not None else None,
    )


def _bounds(endpoint: Offered) -> TokenBounds:
    context, output = endpoint.context_length, endpoint.max_output_tokens
    return UNBOUNDED if context is None and output is None else TokenBounds(context, output)


def tariff(price: PriceSettings) -> Tariff:
    """A price of the settings by the token."""
    one = price.by_token
    return Tariff(one.prompt, one.completion, one.cached, one.request, one.reasoning)


def _fixed(known: ProviderModelSettings | None) -> Callable[[], ModelProfile]:
    if known is None:
        return ModelProfile
    profile = ModelProfile(
        context_length=known.context_length,
        must_think=known.thinking == "always",
        thinks=known.thinking != "never",
    )
    return lambda: profile


def _said(endpoint: Offered, profile: Callable[[], ModelProfile]) -> Callable[[], ModelProfile]:
    """With the lengths that the settings state, which are the more exact ones."""
    context, output = endpoint.context_length, endpoint.max_output_tokens
    if context is None and output is None:
        return profile

    def stated() -> ModelProfile:
        found = profile()
        return replace(
            found,
            context_length=context if context is not None else found.context_length,
            max_output_tokens=output if output is not None else found.max_output_tokens,
        )

    return stated
