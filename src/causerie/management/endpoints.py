"""Operations on endpoints and routes, for operators."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from causerie.errors import NotFound
from causerie.management.bodies import Body, NoBody, Word
from causerie.management.queries import NoQuery
from causerie.management.route import Call
from causerie.upkeep.forecast import Forecast
from causerie.upkeep.ports import Question, Upkeep
from causerie.upkeep.views import EndpointView, ProbeView, TargetView, Used


class EndpointSummary(Struct, frozen=True, kw_only=True):
    """An endpoint, and how its targets stand now; `base_url` is empty for this service itself."""

    name: str
    base_url: str
    dialect: str
    max_concurrent: int | None
    models: tuple[str, ...]
    targets: tuple[TargetView, ...]

    @staticmethod
    def of(view: EndpointView) -> EndpointSummary:
        """Without what is known of its models."""
        return EndpointSummary(
            name=view.name,
            base_url=view.base_url,
            dialect=view.dialect,
            max_concurrent=view.max_concurrent,
            models=tuple(model.id for model in view.models),
            targets=view.targets,
        )


class EndpointList(Struct, frozen=True, kw_only=True):
    """In the configured order."""

    data: list[EndpointSummary]


class ProbeModel(Body, frozen=True):
    """Which model is asked."""

    model: Annotated[Word, Meta(description="Its id at the endpoint.")]


class UseProbe(Body, frozen=True):
    """Whose newest result is put in force."""

    model: Annotated[Word, Meta(description="Its id at the endpoint.")]


class ExplainRoute(Body, frozen=True):
    """A request that is not sent."""

    request: Annotated[dict[str, Any], Meta(description="The body of a `POST /chat/completions`.")]
    door: Annotated[str, Meta(max_length=200, description="Empty: the one behind plain `/v1`.")] = (
        ""
    )
    key: Annotated[
        str, Meta(max_length=64, description="Id of a key; empty: one that may everything.")
    ] = ""
    session: Annotated[str, Meta(max_length=256, description="What `x-session-id` would say.")] = ""


class EndpointDesk:
    """Answers by what sees to the service."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep

    async def list(self, call: Call[NoQuery, NoBody]) -> EndpointList:
        """``GET /endpoints``."""
        found = await self._upkeep.endpoints(call.actor)
        return EndpointList(data=[EndpointSummary.of(view) for view in found])

    async def see(self, call: Call[NoQuery, NoBody]) -> EndpointView:
        """``GET /endpoints/{endpoint}``."""
        return await self._upkeep.endpoint(call.actor, call.ids["endpoint"])

    async def probe(self, call: Call[NoQuery, ProbeModel]) -> ProbeView:
        """``POST /endpoints/{endpoint}/probe``."""
        return await self._upkeep.probe(call.actor, call.ids["endpoint"], call.body.model)

    async def progress(self, call: Call[NoQuery, NoBody]) -> ProbeView:
        """``GET /endpoints/{endpoint}/probe``."""
        view = await self._upkeep.endpoint(call.actor, call.ids["endpoint"])
        if view.probe is None:
            words = "It has not been probed since the service was started."
            raise NotFound(words, code="not_found")
        return view.probe

    async def cancel(self, call: Call[NoQuery, NoBody]) -> ProbeView:
        """``POST /endpoints/{endpoint}/probe/cancel``."""
        return await self._upkeep.cancel(call.actor, call.ids["endpoint"])

    async def use(self, call: Call[NoQuery, UseProbe]) -> Used:
        """``POST /endpoints/{endpoint}/probe/use``."""
        return await self._upkeep.use(call.actor, call.ids["endpoint"], call.body.model)

    async def explain(self, call: Call[NoQuery, ExplainRoute]) -> Forecast:
        """``POST /routes/explain``."""
        body = call.body
        question = Question(msgspec.json.encode(body.request), body.door, body.key, body.session)
        return await self._upkeep.explain(call.actor, question)
