"""Foresees the way of a request by the very parts that would carry it.

Sends nothing, takes no limit, holds no budget, tries no provider that rests: who
can take the request is asked of the catalog, the order of routing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from causerie.access.estimate import estimate
from causerie.access.keys import Caller
from causerie.catalog.catalog import Entry
from causerie.catalog.endpoint import CatalogEndpoint
from causerie.catalog.exclusion import TargetExclusion
from causerie.catalog.listing import Listing
from causerie.catalog.reasons import reasons
from causerie.catalog.tariff import Tariff
from causerie.errors import ServiceError
from causerie.operations.explanation import (
    ExplainedRefusal,
    ExplainedRoute,
    ExplainedTarget,
    LeftOut,
    PriceTexts,
    RoutingExplanation,
)
from causerie.pipeline import Pipeline, PipelineDoor, another_may
from causerie.protocol.candidate import Candidate
from causerie.protocol.request import ChatRequest
from causerie.protocol.target_stats import UNKNOWN
from causerie.routing.explain import RankedTarget
from causerie.routing.target_state import TargetStatus

_SHORTER = TargetExclusion("model", "has a shorter context, and `:extended` asks for the longest")
_SECOND = TargetExclusion(
    "provider.allow_fallbacks", "is not the first choice, and `allow_fallbacks` is false"
)
_BUSY = TargetExclusion("", "has no room to spare for free requests now")


def explanation(
    pipeline: Pipeline, door: PipelineDoor, caller: Caller, request: ChatRequest
) -> RoutingExplanation:
    """Explain the routing of a request now; never raises for errors in the request."""
    names = (request.model, *request.fallbacks)
    told = estimate(request)
    tokens = told.input + told.output
    routes: list[ExplainedRoute] = []
    refusal: ExplainedRefusal | None = None
    try:
        for name in names:
            pipeline.allowed(door, caller, name)
        for name in names:
            model = pipeline.allowed(door, caller, name)
            route, failure = _route(pipeline, model, name, request)
            routes.append(route)
            refusal = route.refusal
            if failure is not None and not another_may(failure):
                break
    except ServiceError as failure:
        refusal = ExplainedRefusal.of(failure)
    goes_to = next((route.places[0].target for route in routes if route.places), None)
    return RoutingExplanation(
        door=door.name,
        goes_to=goes_to,
        routes=tuple(routes),
        refusal=refusal if goes_to is None else None,
        tokens=tokens,
        unknown=request.unlisted.names if request.unlisted is not None else (),
    )


def _route(
    pipeline: Pipeline, model: Entry, name: str, request: ChatRequest
) -> tuple[ExplainedRoute, ServiceError | None]:
    """One model's, and the failure where nobody is asked."""
    chosen: Sequence[Candidate] = ()
    able: Sequence[Candidate] = ()
    prospects: Sequence[RankedTarget] = ()
    failed: ServiceError | None = None
    try:
        request = model.adapted(request)
        chosen = model.candidates(request)
        able = pipeline.able(model, request)
        prospects = pipeline.router.explain(able, request)
    except ServiceError as failure:
        failed = failure
    whole = pipeline.catalog.resolve(None, model.id)
    told = _Told(pipeline, model, request)
    route = ExplainedRoute(
        asked=name,
        model=model.id,
        places=tuple(told.placed(one) for one in prospects),
        left_out=tuple(told.left_out(whole, chosen, able, prospects)),
        changes=tuple(model.changes(request)),
        hedge_seconds=model.hedge_seconds,
        refusal=ExplainedRefusal.of(failed) if failed is not None else None,
    )
    return route, failed


class _Told:
    """Words for the targets of one model."""

    def __init__(self, pipeline: Pipeline, model: Entry, request: ChatRequest) -> None:
        self._router = pipeline.router
        self._model = model
        self._request = request
        self._endpoints = {one.name: one for one in _endpoints(model)}

    def placed(self, prospect: RankedTarget) -> ExplainedTarget:
        """One that would be asked."""
        one, status = prospect.candidate, prospect.status
        target_stats = self._router.target_stats(one.name) or UNKNOWN
        endpoint = self._endpoints.get(one.name)
        first, speed = target_stats.first_token, target_stats.speed
        return ExplainedTarget(
            target=one.name,
            decided=prospect.decided,
            reasons=(*self._priority(one, endpoint), _decided(prospect)),
            cautions=tuple(self._cautions(one, status)),
            tied=prospect.tied,
            priority=one.priority,
            weight=one.weight,
            share=round(prospect.share, 4),
            state=status.state,
            in_flight=status.in_flight,
            price=prices(endpoint.tariff) if endpoint is not None else None,
            first_token_seconds=first.p50 if first is not None else None,
            tokens_per_second=speed.p50 if speed is not None else None,
        )

    def left_out(
        self,
        whole: Entry,
        chosen: Sequence[Candidate],
        able: Sequence[Candidate],
        prospects: Sequence[RankedTarget],
    ) -> Iterator[LeftOut]:
        """Those who would not be asked, of all that the model has without a suffix."""
        excluded = self._model.excluded(self._request)
        placed = {one.candidate.name for one in prospects}
        for target in dict.fromkeys(whole.targets):
            if target in placed:
                continue
            if target in excluded:
                why = tuple(excluded[target])
            elif target not in self._model.targets:
                why = (_SHORTER,)
            elif chosen and target not in _names(chosen):
                why = (_SECOND,)
            elif chosen and target not in _names(able):
                why = (_BUSY,)
            elif able:
                why = (self._resting(target),)
            else:
                continue  # what refused the request is not about targets
            yield LeftOut(target=target, reasons=why)

    def _priority(self, one: Candidate, endpoint: CatalogEndpoint | None) -> Iterator[str]:
        if endpoint is None or not isinstance(self._model, Listing):
            if len(self._model.targets) > 1:
                yield f"has priority {one.priority} and weight {one.weight:g} among the targets"
            return
        preferences = self._request.preferences
        able = [
            each
            for each in self._endpoints.values()
            if not any(each.exclusions(self._request.params, preferences))
        ]
        yield from reasons(endpoint, able, preferences, self._model.sort, self._router.target_stats)

    def _cautions(self, one: Candidate, status: TargetStatus) -> Iterator[str]:
        if status.state == "half_open":
            yield f"did not answer last time, and this request tries it{_because(status)}"
        elif status.state != "up":
            yield f"does not answer now{_because(status)}"
        elif status.failures:
            yield f"has failed {status.failures} in a row{_because(status)}"
        length = self._model.profile(one.name).context_length
        told = estimate(self._request, (one,))
        tokens = told.input + told.output
        if length is not None and tokens > length:
            yield (
                f"has a context of {length:,} tokens, and prompt and output are estimated at "
                f"{tokens:,}: it may refuse, and the next one is asked then"
            )

    def _resting(self, target: str) -> TargetExclusion:
        target_state = self._router.target_state(target)
        because = _because(target_state.status()) if target_state is not None else ""
        words = f"does not answer now{because}; of those that rest only one is tried, at last"
        return TargetExclusion("", words)


def _decided(prospect: RankedTarget) -> str:
    share = f"{prospect.share * 100:.0f} % of conversations belong there"
    match prospect.decided:
        case "alone":
            return "has its place for itself"
        case "home":
            return f"the conversation belongs there ({share}), for the sake of its prompt cache"
        case "overflow":
            return f"where the conversation belongs has its fill, and this is next ({share})"
        case "load":
            lot = "; a lot decides among those alike" if prospect.tied else ""
            return f"{prospect.status.in_flight} under way there for its weight{lot}"
        case "last":
            return "is the one that is back soonest, tried when nobody else is left"


def _because(status: TargetStatus) -> str:
    reason = f" ({status.reason})" if status.reason else ""
    return (
        f"{reason}, asked again in {status.wait_seconds:.0f} s" if status.wait_seconds else reason
    )


def _names(candidates: Sequence[Candidate]) -> frozenset[str]:
    return frozenset(one.name for one in candidates)


def _endpoints(model: Entry) -> Sequence[CatalogEndpoint]:
    return model.endpoints if isinstance(model, Listing) else ()


def prices(tariff: Tariff) -> PriceTexts:
    """For people and programs."""
    plain = {name: _plain(f"{price:f}") for name, price in tariff.by_million.items()}
    return PriceTexts(**plain)


def _plain(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
