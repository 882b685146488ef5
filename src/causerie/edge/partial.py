"""The edge of a process that answers completions of some models, and hands over all the rest."""

from __future__ import annotations

from causerie.access.keys import Caller
from causerie.edge.application import Edge, RouteMatch
from causerie.edge.body import read_body
from causerie.edge.doors import MountedDoor
from causerie.edge.exchange import Exchange
from causerie.edge.handover import HandedOver
from causerie.edge.openai import OpenAI, RequestLimits
from causerie.errors import ServiceError
from causerie.pipeline import Pipeline
from causerie.protocol.request import ChatRequest
from causerie.protocol.variants import is_free


class PartialOpenAI(OpenAI):
    """Answers completions of models that are in its catalog, but for their free variants.

    Names of wildcards go to the other process, which knows the exact names that come first, and so
    do requests of projects that log contents, which are kept there.
    """

    def _accept(self, caller: Caller, request: ChatRequest, body: bytes) -> None:
        names = (request.model, *request.fallbacks)
        has = self.pipeline.catalog.has
        if caller.recorded or any(is_free(name) or not has(name) for name in names):
            raise HandedOver(body)


class PartialEdge(Edge):
    """Answers completions at doors, for the models that are in its catalog.

    Everything else goes to the process that has pages and engines: also requests that
    it will refuse, in its own words.
    """

    def _handlers(self, pipeline: Pipeline, limits: RequestLimits) -> OpenAI:
        return PartialOpenAI(pipeline, self.drain, limits)

    def _find(self, exchange: Exchange) -> RouteMatch:
        elsewhere = RouteMatch(self._hand_over, MountedDoor("", ""), "")
        try:
            match = super()._find(exchange)
        except ServiceError:
            return elsewhere
        return match if match.handler == self._openai.complete else elsewhere

    async def _hand_over(self, exchange: Exchange, door: MountedDoor, parameter: str) -> None:
        raise HandedOver(await read_body(exchange, self._limits.body))
