"""Operations for operators: providers and routes, models for the catalog, entries of the
configuration, alerts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.issuing import Word
from causerie.hosted.accounts.records import EntryKind
from causerie.hosted.management.requests import Body
from causerie.hosted.management.routing import ApiCall, Call, WithBody, WithQuery, route
from causerie.hosted.management.views import viewed
from causerie.hosted.operations.configuring import (
    EntryKey,
    EntryView,
    EntryWish,
    Settings,
    Trial,
)
from causerie.hosted.operations.explanation import RoutingExplanation
from causerie.hosted.operations.ports import (
    ProbeView,
    ProviderView,
    RouteQuery,
    TargetView,
)
from causerie.hosted.operations.provider_models import (
    Offer,
    PickedModel,
    PriceRules,
    offers,
    provider_in_force,
    publication,
    router_door,
)
from causerie.protocol.numbers import money


class ProviderSummary(Struct, frozen=True, kw_only=True):
    """A provider, and how its targets stand now; `base_url` is empty for this service itself."""

    name: str
    base_url: str
    dialect: str
    max_concurrent: int | None
    models: tuple[str, ...]
    targets: tuple[TargetView, ...]

    @staticmethod
    def of(view: ProviderView) -> ProviderSummary:
        return viewed(ProviderSummary, view, models=tuple(model.id for model in view.models))


class ProviderList(Struct, frozen=True, kw_only=True):
    """In the configured order."""

    data: list[ProviderSummary]


class ProbeModel(Body, frozen=True):
    """Model to probe."""

    model: Word
    quick: bool = False


class UseProbe(Body, frozen=True):
    """Model whose newest result is put in force."""

    model: Word


class ExplainRoute(Body, frozen=True):
    """A request that is not sent."""

    request: dict[str, Any]
    door: Annotated[str, Meta(max_length=200)] = ""
    key: Annotated[str, Meta(max_length=64)] = ""
    session: Annotated[str, Meta(max_length=256)] = ""
    strict: bool = False


@route("GET /providers", "List providers")
async def list_providers(call: Call) -> ProviderList:
    found = await call.operations.providers(call.actor)
    return ProviderList(data=[ProviderSummary.of(view) for view in found])


@route("GET /providers/{provider}/probe", "Get the state of the last probe")
async def see_probe(call: Call, provider: str) -> ProbeView:
    view = await call.operations.provider(call.actor, provider)
    if view.probe is None:
        words = "It has not been probed since the service was started."
        raise NotFound(words, code="not_found")
    return view.probe


@route("POST /routes/explain", "Explain routing")
async def explain_route(call: WithBody[ExplainRoute]) -> RoutingExplanation:
    body = call.body
    question = RouteQuery(
        msgspec.json.encode(body.request), body.door, body.key, body.session, body.strict
    )
    return await call.operations.explain(call.actor, question)


class EntryList(Struct, frozen=True, kw_only=True):
    """Entries by kind, providers first; of each kind those of the file first."""

    data: list[EntryView]


class CreateEntry(Body, frozen=True):
    """A new entry, or what is added to one of the file."""

    kind: EntryKind
    settings: Settings
    key: EntryKey = ""
    enabled: bool = True

    def arguments(self) -> dict[str, Any]:
        wish = EntryWish(settings=self.settings, key=self.key, enabled=self.enabled)
        return {"kind": self.kind, "wish": wish}


class TestProvider(Body, frozen=True):
    """A provider to try: one that is not kept, or with `entry` or `filed` one that is, as it is."""

    settings: Settings = msgspec.field(default_factory=dict)
    key: EntryKey = ""
    model: Annotated[str, Meta(max_length=300)] = ""
    entry: Annotated[str, Meta(max_length=64)] = ""
    filed: Annotated[str, Meta(max_length=64)] = ""


@route("GET /configuration/entries", "List entries of the configuration")
async def list_entries(call: Call) -> EntryList:
    return EntryList(data=[*await call.operations.configuration.every(call.actor)])


@route("POST /providers/test", "Test a provider")
async def try_provider(call: WithBody[TestProvider]) -> Trial:
    body = call.body
    if body.filed:
        return await call.operations.configuration.test_filed(call.actor, body.filed, body.model)
    return await call.operations.configuration.test(
        call.actor, body.settings, body.key, body.model, body.entry
    )


Amount = Annotated[str, Meta(pattern=r"^([0-9]{1,6}(\.[0-9]{1,9})?)?$")]
Margin = Annotated[str, Meta(pattern=r"^([0-9]{1,3}(\.[0-9]{1,4})?)?$")]
PromptPrice = Amount
CompletionPrice = Amount


class OfferQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules by which prices follow from those that the provider publishes."""

    margin: Margin = ""
    prompt: PromptPrice = ""
    completion: CompletionPrice = ""


class PublishedModel(Body, frozen=True):
    """A model of the provider's list that is to be published, and its id in the catalog."""

    id: Word
    catalog_id: Annotated[str, Meta(max_length=140)] = ""


class PublishModels(Body, frozen=True):
    """Models to publish as the provider lists them now, and those to drop."""

    models: Annotated[tuple[PublishedModel, ...], Meta(max_length=500)] = ()
    gone: Annotated[tuple[Word, ...], Meta(max_length=500)] = ()
    margin: Margin = ""
    prompt: PromptPrice = ""
    completion: CompletionPrice = ""
    open_door: bool = False


class OfferList(Struct, frozen=True, kw_only=True):
    """Models in the order of the provider's list; those that are gone come last."""

    data: list[Offer]


class PublishedList(Struct, frozen=True, kw_only=True):
    """Entries of the catalog that have an endpoint of the provider."""

    data: list[EntryView]


@route("GET /providers/{provider}/offers", "Compare a provider's list with the catalog")
async def list_offers(call: WithQuery[OfferQuery], provider: str) -> OfferList:
    _, _, found = await _offers(call, provider, _rules(call.query))
    return OfferList(data=[*found])


@route("POST /providers/{provider}/offers", "Publish models of a provider in the catalog")
async def publish_models(call: WithBody[PublishModels], provider: str) -> PublishedList:
    body, rules = call.body, _rules(call.body)
    source, entries, listed = await _offers(call, provider, rules)
    found = {each.id: each for each in listed}
    picked = []
    for each in body.models:
        offer = found.get(each.id)
        if offer is None or offer.listed is None:
            raise InvalidRequest(f"The provider lists no model {each.id}.", param="models")
        picked.append(PickedModel(offer.listed, each.catalog_id or offer.catalog_id))
    steps = [*publication(source, entries, picked, body.gone, rules)]
    door = router_door(entries) if body.open_door else None
    if steps or door:
        await call.operations.configuration.apply(call.actor, [*([door] if door else []), *steps])
    published = []
    for entry in await call.operations.configuration.every(call.actor):
        endpoints = entry.settings.get("endpoints", ()) if entry.kind == "catalog_model" else ()
        if any(one.get("provider") == provider for one in endpoints):
            published.append(entry)
    return PublishedList(data=published)


async def _offers(
    call: ApiCall[Any, Any], name: str, rules: PriceRules
) -> tuple[EntryView, Sequence[EntryView], Sequence[Offer]]:
    entries = await call.operations.configuration.every(call.actor)
    provider = provider_in_force(entries, name)
    trial = await call.operations.configuration.listed(call.actor, provider.name)
    if not trial.listing.ok:
        words = f"The list of {provider.name} could not be read: {trial.listing.problem}"
        raise InvalidRequest(words, code="not_listed", status=409)
    return provider, entries, offers(provider, trial.models, entries, rules)


def _rules(asked: OfferQuery | PublishModels) -> PriceRules:
    margin = money(asked.margin) if asked.margin else None
    return PriceRules(margin, asked.prompt or None, asked.completion or None)
