"""Operations for operators: providers and routes, models for the catalog, entries of the
configuration, alerts.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.ports import EntryKind
from causerie.hosted.management.requests import Body, Count, NoBody, NoQuery, Word
from causerie.hosted.management.routing import ApiCall
from causerie.hosted.operations.configuring import (
    Configuring,
    EntryView,
    EntryWish,
    ListedModel,
    Settings,
    Trial,
)
from causerie.hosted.operations.explanation import RoutingExplanation
from causerie.hosted.operations.ports import (
    AlertDesk,
    AlertsView,
    AppliedResult,
    ChannelTest,
    Operations,
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
        """Without what is known of its models."""
        return ProviderSummary(
            name=view.name,
            base_url=view.base_url,
            dialect=view.dialect,
            max_concurrent=view.max_concurrent,
            models=tuple(model.id for model in view.models),
            targets=view.targets,
        )


class ProviderList(Struct, frozen=True, kw_only=True):
    """In the configured order."""

    data: list[ProviderSummary]


class ProbeModel(Body, frozen=True):
    """Model to probe."""

    model: Annotated[Word, Meta(description="Its id at the provider.")]
    quick: Annotated[
        bool,
        Meta(
            description="Ask only what usual clients need, for at most a minute. The answers are "
            "in `findings` of the probe, and are not kept."
        ),
    ] = False


class UseProbe(Body, frozen=True):
    """Model whose newest result is put in force."""

    model: Annotated[Word, Meta(description="Its id at the provider.")]


class ExplainRoute(Body, frozen=True):
    """A request that is not sent."""

    request: Annotated[dict[str, Any], Meta(description="The body of a `POST /chat/completions`.")]
    door: Annotated[str, Meta(max_length=200, description="Empty: the one behind plain `/v1`.")] = (
        ""
    )
    key: Annotated[
        str, Meta(max_length=64, description="Id of a key; empty: simulate an unrestricted key.")
    ] = ""
    session: Annotated[str, Meta(max_length=256, description="Value of `x-session-id`.")] = ""
    strict: Annotated[
        bool, Meta(description="Whether the client sends `x-unknown-params: reject`.")
    ] = False


class ProviderOperations:
    """Answers by what sees to the service."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def list(self, call: ApiCall[NoQuery, NoBody]) -> ProviderList:
        found = await self._operations.providers(call.actor)
        return ProviderList(data=[ProviderSummary.of(view) for view in found])

    async def see(self, call: ApiCall[NoQuery, NoBody]) -> ProviderView:
        return await self._operations.provider(call.actor, call.ids["provider"])

    async def probe(self, call: ApiCall[NoQuery, ProbeModel]) -> ProbeView:
        return await self._operations.probe(
            call.actor, call.ids["provider"], call.body.model, quick=call.body.quick
        )

    async def progress(self, call: ApiCall[NoQuery, NoBody]) -> ProbeView:
        view = await self._operations.provider(call.actor, call.ids["provider"])
        if view.probe is None:
            words = "It has not been probed since the service was started."
            raise NotFound(words, code="not_found")
        return view.probe

    async def cancel(self, call: ApiCall[NoQuery, NoBody]) -> ProbeView:
        return await self._operations.cancel(call.actor, call.ids["provider"])

    async def use(self, call: ApiCall[NoQuery, UseProbe]) -> AppliedResult:
        return await self._operations.use(call.actor, call.ids["provider"], call.body.model)

    async def explain(self, call: ApiCall[NoQuery, ExplainRoute]) -> RoutingExplanation:
        body = call.body
        question = RouteQuery(
            msgspec.json.encode(body.request), body.door, body.key, body.session, body.strict
        )
        return await self._operations.explain(call.actor, question)


Key = Annotated[str, Meta(max_length=4096)]


class EntryList(Struct, frozen=True, kw_only=True):
    """Entries by kind, providers first; of each kind those of the file first."""

    data: list[EntryView]


class CreateEntry(Body, frozen=True):
    """A new entry, or what is added to one of the file."""

    kind: EntryKind
    settings: Settings
    key: Annotated[Key, Meta(description="Of a provider; kept encrypted, never shown.")] = ""
    enabled: bool = True


class ChangeEntry(Body, frozen=True):
    """All that an entry is from now on."""

    settings: Settings
    key: Annotated[
        Key | None, Meta(description="`null`: the key stays; empty: there is none any more.")
    ] = None
    enabled: bool = True
    version: Annotated[
        Count | None,
        Meta(description="Of the entry that was read: one that has changed since is 409."),
    ] = None


class TestProvider(Body, frozen=True):
    """A provider to try: one that is not kept, or with `entry` or `filed` one that is, as it is."""

    settings: Settings = msgspec.field(default_factory=dict)
    key: Key = ""
    model: Annotated[
        str, Meta(max_length=300, description="Whom to ask. Empty: the first of its list.")
    ] = ""
    entry: Annotated[str, Meta(max_length=64, description="Id of an entry.")] = ""
    filed: Annotated[str, Meta(max_length=64, description="Name of a provider of the file.")] = ""


class ConfigurationOperations:
    """Answers by the configuration of the running service."""

    def __init__(self, configuration: Configuring) -> None:
        self._configuration = configuration

    async def list(self, call: ApiCall[NoQuery, NoBody]) -> EntryList:
        return EntryList(data=[*await self._configuration.every(call.actor)])

    async def create(self, call: ApiCall[NoQuery, CreateEntry]) -> EntryView:
        body = call.body
        wish = EntryWish(settings=body.settings, key=body.key, enabled=body.enabled)
        return await self._configuration.create(call.actor, body.kind, wish)

    async def see(self, call: ApiCall[NoQuery, NoBody]) -> EntryView:
        return await self._configuration.see(call.actor, call.ids["entry"])

    async def change(self, call: ApiCall[NoQuery, ChangeEntry]) -> EntryView:
        body = call.body
        wish = EntryWish(
            settings=body.settings, key=body.key, enabled=body.enabled, version=body.version
        )
        return await self._configuration.change(call.actor, call.ids["entry"], wish)

    async def enable(self, call: ApiCall[NoQuery, NoBody]) -> EntryView:
        return await self._configuration.switch(call.actor, call.ids["entry"], enabled=True)

    async def disable(self, call: ApiCall[NoQuery, NoBody]) -> EntryView:
        return await self._configuration.switch(call.actor, call.ids["entry"], enabled=False)

    async def delete(self, call: ApiCall[NoQuery, NoBody]) -> None:
        await self._configuration.delete(call.actor, call.ids["entry"])

    async def test(self, call: ApiCall[NoQuery, TestProvider]) -> Trial:
        body = call.body
        if body.filed:
            return await self._configuration.test_filed(call.actor, body.filed, body.model)
        return await self._configuration.test(
            call.actor, body.settings, body.key, body.model, body.entry
        )


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


class AlertOperations:
    """Answers by the alerts of the running service."""

    def __init__(self, desk: AlertDesk) -> None:
        self._desk = desk

    async def see(self, call: ApiCall[NoQuery, NoBody]) -> AlertsView:
        return await self._desk.see(call.actor)

    async def test(self, call: ApiCall[NoQuery, NoBody]) -> ChannelTest:
        return await self._desk.test(call.actor, call.ids["channel"])
