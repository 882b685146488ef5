"""The router's catalog: each entry with its offers, as far as settings and probes know them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, time

from causerie.catalog.choice import Standings
from causerie.catalog.listing import Listing, today
from causerie.catalog.model import Card, Offer, Profile
from causerie.catalog.supply import Supply
from causerie.catalog.tariff import Tariff
from causerie.protocol.bounds import UNBOUNDED, Bounds
from causerie.protocol.candidate import Candidate
from causerie.settings import EndpointModel, Settings
from causerie.settings.catalog import Entry
from causerie.settings.catalog import Offer as Offered
from causerie.settings.price import Price

OWN_PROVIDER = "causerie"
"""The name of this service among the endpoints of a model."""

Supported = Callable[[EndpointModel | None], frozenset[str] | None]
"""What is known of the parameters that an endpoint's model supports."""


def listings(
    settings: Settings, own: Mapping[str, Offer], standings: Standings, supported: Supported
) -> Iterator[Listing]:
    """Every entry; ``own`` are the offers of models of our own, by their ids."""
    probed = models_of_endpoints(settings)
    for entry in settings.catalog:
        supplies = tuple(_supply(one, own, probed, supported) for one in entry.offers)
        yield Listing(
            _card(entry), supplies, standings, ends=entry.ends, hedge_seconds=entry.hedge_seconds
        )


def models_of_endpoints(settings: Settings) -> Mapping[str, EndpointModel]:
    """Models that the endpoints are known to have, by the names of their targets."""
    return {
        f"{endpoint.name}/{model.id}": model
        for endpoint in settings.endpoints
        for model in endpoint.models
    }


def _card(entry: Entry) -> Card:
    created = int(datetime.combine(entry.created or today(), time(), UTC).timestamp())
    return Card(entry.id, entry.name or entry.id, entry.description, created, entry.aliases)


def _supply(
    offer: Offered,
    own: Mapping[str, Offer],
    probed: Mapping[str, EndpointModel],
    supported: Supported,
) -> Supply:
    known = probed.get(offer.name)
    if offer.endpoint is None:
        mine = own[offer.model]
        parameters, profile = mine.parameters, mine.profile
    else:
        parameters, profile = supported(known), _fixed(known)
    if offer.supported_parameters is not None:
        said = EndpointModel(id=offer.model, supported_parameters=offer.supported_parameters)
        parameters = supported(said)
    return Supply(
        Offer(Candidate(offer.name, bounds=_bounds(offer)), parameters, _said(offer, profile)),
        provider=offer.endpoint or OWN_PROVIDER,
        tariff=tariff(offer.price),
        quantization=offer.quantization,
        private=not offer.keeps_data,
        probed=known.probed if known is not None else None,
    )


def _bounds(offer: Offered) -> Bounds:
    context, output = offer.context_length, offer.max_output_tokens
    return UNBOUNDED if context is None and output is None else Bounds(context, output)


def tariff(price: Price) -> Tariff:
    """A price of the settings by the token."""
    one = price.by_token
    return Tariff(one.prompt, one.completion, one.cached, one.request, one.reasoning)


def _fixed(known: EndpointModel | None) -> Callable[[], Profile]:
    if known is None:
        return Profile
    profile = Profile(
        context_length=known.context_length,
        must_think=known.thinking == "always",
        thinks=known.thinking != "never",
    )
    return lambda: profile


def _said(offer: Offered, profile: Callable[[], Profile]) -> Callable[[], Profile]:
    """With the lengths that the settings state, which are the more exact ones."""
    context, output = offer.context_length, offer.max_output_tokens
    if context is None and output is None:
        return profile

    def stated() -> Profile:
        found = profile()
        return replace(
            found,
            context_length=context if context is not None else found.context_length,
            max_output_tokens=output if output is not None else found.max_output_tokens,
        )

    return stated
