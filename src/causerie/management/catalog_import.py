"""Models of providers for the catalog, for operators: compared with it, and published."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from causerie.errors import InvalidRequest
from causerie.management.bodies import Body, NoBody, Word
from causerie.management.queries import NoQuery
from causerie.management.route import ApiCall
from causerie.operations.catalog_import import (
    Offer,
    PickedModel,
    PriceRules,
    offers,
    publication,
    router_door,
)
from causerie.operations.configuring import Configuring, EntryView
from causerie.operations.provider_models import provider_in_force
from causerie.operations.trial import ListedModel
from causerie.protocol.numbers import money

Amount = Annotated[str, Meta(pattern=r"^([0-9]{1,6}(\.[0-9]{1,9})?)?$")]
Margin = Annotated[
    str,
    Meta(
        pattern=r"^([0-9]{1,3}(\.[0-9]{1,4})?)?$",
        description="Percent on top of what the provider charges. Empty: none for new endpoints, "
        "and others keep the one that they have.",
    ),
]
PromptPrice = Annotated[
    Amount, Meta(description="Per 1M tokens of models whose price is not published.")
]
CompletionPrice = Annotated[Amount, Meta(description="The same for output.")]


class OfferQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules by which prices follow from those that the provider publishes."""

    margin: Margin = ""
    prompt: PromptPrice = ""
    completion: CompletionPrice = ""


class PublishedModel(Body, frozen=True):
    """A model of the provider's list."""

    id: Annotated[Word, Meta(description="Its id at the provider.")]
    catalog_id: Annotated[str, Meta(max_length=140, description="Empty: as `GET` proposes.")] = ""


class PublishModels(Body, frozen=True):
    """Models to publish as the provider lists them now, and those to drop."""

    models: Annotated[tuple[PublishedModel, ...], Meta(max_length=500)] = ()
    gone: Annotated[
        tuple[Word, ...], Meta(max_length=500, description="Ids whose endpoints leave the catalog.")
    ] = ()
    margin: Margin = ""
    prompt: PromptPrice = ""
    completion: CompletionPrice = ""
    open_door: Annotated[
        bool, Meta(description="Create a door of kind `router` if none is configured.")
    ] = False


class OfferList(Struct, frozen=True, kw_only=True):
    """Models in the order of the provider's list; those that are gone come last."""

    data: list[Offer]


class PublishedList(Struct, frozen=True, kw_only=True):
    """Entries of the catalog that have an endpoint of the provider."""

    data: list[EntryView]


class CatalogImportOperations:
    """Answers by the configuration of the running service."""

    def __init__(self, configuration: Configuring) -> None:
        self._configuration = configuration

    async def offers(self, call: ApiCall[OfferQuery, NoBody]) -> OfferList:
        entries = await self._configuration.every(call.actor)
        provider = provider_in_force(entries, call.ids["provider"])
        listed = await self._listed(call, provider.name)
        return OfferList(data=[*offers(provider, listed, entries, _rules(call.query))])

    async def publish(self, call: ApiCall[NoQuery, PublishModels]) -> PublishedList:
        body, rules = call.body, _rules(call.body)
        entries = await self._configuration.every(call.actor)
        provider = provider_in_force(entries, call.ids["provider"])
        listed = await self._listed(call, provider.name)
        found = {each.id: each for each in offers(provider, listed, entries, rules)}
        picked = [_picked(each, found.get(each.id)) for each in body.models]
        steps = [*publication(provider, entries, picked, body.gone, rules)]
        door = router_door(entries) if body.open_door else None
        if steps or door:
            await self._configuration.apply(call.actor, [*([door] if door else []), *steps])
        return PublishedList(
            data=[
                each
                for each in await self._configuration.every(call.actor)
                if each.kind == "catalog_model" and _has(each, provider.name)
            ]
        )

    async def _listed(
        self, call: ApiCall[OfferQuery, NoBody] | ApiCall[NoQuery, PublishModels], name: str
    ) -> tuple[ListedModel, ...]:
        trial = await self._configuration.listed(call.actor, name)
        if not trial.listing.ok:
            words = f"The list of {name} could not be read: {trial.listing.problem}"
            raise InvalidRequest(words, code="not_listed", status=409)
        return trial.models


def _rules(asked: OfferQuery | PublishModels) -> PriceRules:
    margin = money(asked.margin) if asked.margin else None
    return PriceRules(margin, asked.prompt or None, asked.completion or None)


def _picked(model: PublishedModel, offer: Offer | None) -> PickedModel:
    if offer is None or offer.listed is None:
        raise InvalidRequest(f"The provider lists no model {model.id}.", param="models")
    return PickedModel(offer.listed, model.catalog_id or offer.catalog_id)


def _has(entry: EntryView, provider: str) -> bool:
    return any(each.get("provider") == provider for each in entry.settings.get("endpoints", ()))
