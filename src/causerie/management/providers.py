"""Operations on providers and routes, for operators."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from causerie.errors import NotFound
from causerie.management.bodies import Body, NoBody, Word
from causerie.management.queries import NoQuery
from causerie.management.route import ApiCall
from causerie.operations.explanation import RoutingExplanation
from causerie.operations.ports import Operations, RouteQuery
from causerie.operations.views import AppliedResult, ProbeView, ProviderView, TargetView


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
