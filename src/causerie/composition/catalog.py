"""The catalog of all doors, and tariffs of all targets, from the settings and the price list."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from datetime import time as time_of_day
from decimal import Decimal
from functools import cache, lru_cache, partial

from msgspec import Struct

from causerie.catalog.catalog import WILDCARD, Catalog, WildcardModel
from causerie.catalog.endpoint import CatalogEndpoint, FiguresReader, StatsReader
from causerie.catalog.listing import Listing
from causerie.catalog.model import (
    ModelCard,
    ModelProfile,
    ProviderClaims,
    ServedModel,
    TargetCapabilities,
    TargetTariffs,
    Tariff,
    of_engine,
    of_provider,
)
from causerie.chat.embeddings import EmbeddingTarget
from causerie.chat.thinking import default_sampling
from causerie.composition.targets import OwnModel
from causerie.engines.weights.errors import BadLibrary, BadReference
from causerie.engines.weights.reference import Kind, Library, Reference
from causerie.protocol.alike import alike
from causerie.protocol.numbers import money
from causerie.protocol.targets import UNBOUNDED_TOKENS, Candidate, TokenBounds
from causerie.settings.catalog import (
    AliasSettings,
    AliasTarget,
    CatalogEndpointSettings,
)
from causerie.settings.environment import own_library, variables
from causerie.settings.prices import Prices
from causerie.settings.provider import ProviderModelSettings
from causerie.settings.tree import ModelSettings, Settings
from causerie.settings.values import ClaimSettings, PriceSettings, TokenPrices

_MILLION = 1_000_000


@lru_cache(maxsize=8192)
def tariff(price: PriceSettings) -> Tariff:
    tiers = sorted((each.above, _build_tariff(each, price)) for each in price.tiers)
    return _build_tariff(price, price, tuple(tiers))


def _build_tariff(
    token_prices: TokenPrices, price: PriceSettings, tiers: tuple[tuple[int, Tariff], ...] = ()
) -> Tariff:
    return Tariff(
        prompt=money(token_prices.prompt) / _MILLION,
        completion=money(token_prices.completion) / _MILLION,
        cached=_price_per_token(token_prices.cached),
        written=_price_per_token(token_prices.cache_write),
        reasoning=_price_per_token(token_prices.reasoning),
        request=money(price.request),
        tiers=tiers,
    )


def _price_per_token(price_per_million: str | None) -> Decimal | None:
    return None if price_per_million is None else money(price_per_million) / _MILLION


def target_tariffs(prices: Prices, alias: AliasSettings, rest: str = "") -> TargetTariffs:
    """Return an alias's tariffs by target; ``rest`` replaces the wildcard in model names."""
    found: dict[str, Tariff] = {}
    listed = False
    for target in alias.targets:
        price = prices.of(alias, target, target.model.replace(WILDCARD, rest, 1))
        listed = listed or (price is not None and bool(price.rows))
        name = target.name.replace(WILDCARD, rest, 1)
        found[name] = Tariff() if price is None else tariff(price.price)
    return TargetTariffs(by_target=found, listed=listed)


@cache
def _load_short_name_library() -> Library:
    return own_library(variables())


def is_fetchable(name: str) -> bool:
    """Return whether ``causerie pull`` takes the name: one of the library, or a repository."""
    try:
        return _load_short_name_library().has(name) or Reference.parse(name).kind is not Kind.PATH
    except (BadReference, BadLibrary):
        return False


ProfileReader = Callable[[], ModelProfile]


ListReader = Callable[[str], Sequence[str]]
"""Gives the models that the provider of a name lists now."""


def offered(
    settings: Settings,
    own: Mapping[str, OwnModel],
    stats_of: StatsReader,
    listed_by: ListReader,
    figures_of: FiguresReader,
) -> Catalog:
    """Return the catalog of all doors; ``figures_of`` returns what its lists show of targets."""
    known = _Known(
        {
            model.id: TargetCapabilities(
                Candidate(model.id),
                of_engine(model.engine, speculates=model.llamacpp.speculates),
                _make_profile_reader(model, own[model.id], shows_load=bool(settings.weights.serve)),
                frozenset({model.operation}),
            )
            for model in settings.models
        },
        {
            f"{provider.name}/{model.id}": model
            for provider in settings.providers
            for model in provider.models
        },
    )
    listings = []
    for entry in settings.catalog:
        endpoints = tuple(_build_catalog_endpoint(one, known) for one in entry.endpoints)
        day = entry.created
        created = 0 if day is None else int(datetime.combine(day, time_of_day(), UTC).timestamp())
        name = entry.name or entry.id
        card = ModelCard(entry.id, name, entry.description, created, entry.aliases)
        listings.append(Listing(card, endpoints, stats_of, figures_of, entry.ends))
    fetchable = is_fetchable if settings.weights.serve else None
    return Catalog([*_build_served_models(settings, known, listed_by), *listings], fetchable)


def parameters(probed: ProviderModelSettings | None) -> frozenset[str] | None:
    if probed is None:
        return None
    return of_provider(probed.supported_parameters, switches=probed.thinking == "switch")


class _Known(Struct, frozen=True):
    own: Mapping[str, TargetCapabilities]
    probed: Mapping[str, ProviderModelSettings]

    def of(self, candidate: Candidate, provider: str | None, model: str) -> TargetCapabilities:
        """Return the capabilities of a provider's model, or of our own if no provider is given."""
        if provider is None:
            return replace(self.own[model], candidate=candidate)
        probed = self.probed.get(f"{provider}/{model}")
        served = None if probed is None else probed.operations
        operations = None if served is None else frozenset(served)
        profile = ModelProfile(thinks=None)
        if probed is not None:
            profile = ModelProfile(
                context_length=probed.context_length,
                must_think=probed.thinking == "always",
                thinks=None if probed.thinking is None else probed.thinking != "never",
            )
        claims = ProviderClaims() if probed is None else _build_provider_claims(probed.claims)
        return TargetCapabilities(
            candidate, parameters(probed), lambda: profile, operations, provider, claims
        )


def _build_provider_claims(claims: ClaimSettings) -> ProviderClaims:
    parameters = of_provider(claims.supported_parameters, switches=False)
    return ProviderClaims(parameters, claims.input_modalities, claims.output_modalities)


def _build_served_models(
    settings: Settings, capabilities: _Known, list_models: ListReader
) -> Iterator[ServedModel]:
    created, prices = time.time_ns() // 1_000_000_000, Prices(settings)
    for model in settings.models:
        name = model.name or model.id
        card = ModelCard(model.id, name, model.description, created, model.aliases)
        yield ServedModel(card, [capabilities.own[model.id]], TargetTariffs(tariff(model.price)))
    for alias in settings.aliases:
        card = ModelCard(alias.id, alias.name or alias.id, alias.description, created)
        answering = [
            capabilities.of(Candidate(one.name, one.priority, one.weight), one.provider, one.model)
            for one in alias.targets
        ]
        priced = partial(target_tariffs, prices, alias)
        if alias.id.endswith(WILDCARD):
            rests = partial(_list_wildcard_texts, alias.targets, list_models)
            yield WildcardModel(card, answering, priced, known=rests)
        else:
            yield ServedModel(card, answering, priced())


def _list_wildcard_texts(targets: Sequence[AliasTarget], list_models: ListReader) -> Iterator[str]:
    for target in targets:
        before, _, behind = target.model.partition("*")
        for name in list_models(target.provider) if target.provider is not None else ():
            fits = name.startswith(before) and name.endswith(behind)
            if fits and len(name) > len(before + behind):
                yield name[len(before) : len(name) - len(behind)]


def _build_catalog_endpoint(settings: CatalogEndpointSettings, known: _Known) -> CatalogEndpoint:
    context, output = settings.context_length, settings.max_output_tokens
    stated = context is not None or output is not None
    bounds = TokenBounds(context, output) if stated else UNBOUNDED_TOKENS
    candidate = Candidate(settings.name, bounds=bounds)
    found = known.of(candidate, settings.provider, settings.model)
    own, derived = found.profile, lambda: _set_lengths(found.profile(), context, output)
    supported = found.parameters
    if settings.supported_parameters is not None:
        supported = of_provider(settings.supported_parameters, switches=False)
    probed = known.probed.get(settings.name) if settings.provider is not None else None
    return alike(
        CatalogEndpoint,
        found,
        parameters=supported,
        profile=derived if stated else own,
        claims=found.claims if settings.claims is None else _build_provider_claims(settings.claims),
        tariff=tariff(settings.price),
        quantization=settings.quantization,
        private=not settings.keeps_data,
        probed=probed.probed if probed is not None else None,
    )


# A page of the catalog reads thousands of profiles, so an unchanged one is not made again.
@lru_cache(maxsize=4096)
def _set_lengths(profile: ModelProfile, context: int | None, output: int | None) -> ModelProfile:
    context = profile.context_length if context is None else context
    output = profile.max_output_tokens if output is None else output
    return replace(profile, context_length=context, max_output_tokens=output)


def _make_profile_reader(
    model: ModelSettings, own_model: OwnModel, *, shows_load: bool
) -> ProfileReader:

    def profile() -> ModelProfile:
        facts = own_model.engine.known
        in_memory = own_model.engine.loaded if shows_load else None
        if facts is None:
            return ModelProfile(
                context_length=model.context,
                max_output_tokens=model.max_output_tokens,
                thinks=None,
                loaded=in_memory,
            )
        if isinstance(own_model.chat, EmbeddingTarget):
            length = facts.context_length
            return ModelProfile(context_length=length, thinks=False, loaded=in_memory)
        switch, lacks = None, frozenset[str]()
        with suppress(ValueError):  # of a template that is none, which requests are told of
            loaded = own_model.chat.model(facts)
            switch = loaded.form.thinking
            lacks = frozenset() if loaded.shows_documents else frozenset({"documents"})
        return ModelProfile(
            context_length=facts.context_length,
            max_output_tokens=model.max_output_tokens,
            images=facts.vision,
            must_think=switch is not None and switch.mandatory,
            thinks=switch is not None,
            lacks=lacks,
            sampling=default_sampling(own_model.options.sampling, facts.sampling),
            loaded=in_memory,
        )

    return profile
