"""Routing explanation of a request without sending it, from the parts that would route it.

It sends nothing and takes no limits or budgets; that of a provider decides, as for a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Self

from msgspec import Struct, convert

from causerie.access.keys import Caller
from causerie.access.limits import estimate
from causerie.catalog.catalog import Entry
from causerie.catalog.endpoint import CatalogEndpoint, StatsReader
from causerie.catalog.listing import Listing
from causerie.catalog.model import TargetExclusion, Tariff, plain
from causerie.errors import InvalidRequest, ServiceError
from causerie.pipeline import Pipeline, PipelineDoor, another_may, scoped
from causerie.protocol.known_fields import KNOWN, Known, refusal, sift
from causerie.protocol.money import rounded
from causerie.protocol.request import ChatRequest
from causerie.protocol.targets import UNKNOWN_STATS, Candidate, Preferences, SortBy, TargetStats
from causerie.routing.router import Decided, RankedTarget
from causerie.routing.target_state import TargetStatus


def reasons(
    one: CatalogEndpoint,
    able: Sequence[CatalogEndpoint],
    preferences: Preferences,
    sort: SortBy | None,
    stats_of: StatsReader,
) -> Iterator[str]:
    """Yield the reasons for the place of endpoint ``one`` in the order of the ``able`` ones.

    ``sort`` is the order of the model; that of the preferences goes first.
    """
    if preferences.order:
        for number, name in enumerate(preferences.order, start=1):
            if one.is_one_of(frozenset((name,))):
                yield f"is number {number} of `provider.order`"
                return
        yield "is not in `provider.order`, so it comes after those that are"
    by = preferences.sort or sort
    if by == "price":
        yield f"{_format_blended_price_clause(one)}; cheapest first"
    elif by is not None:
        yield _explain_measurement(stats_of(one.name) or UNKNOWN_STATS, by)
    elif not one.tariff.usual:
        yield "is free; free endpoints come before all others"
    else:
        yield _explain_price(one, able)
    if not preferences.order and not preferences.allow_fallbacks:
        yield "is the only one tried, because `allow_fallbacks` is false"


def _format_blended_price_clause(endpoint: CatalogEndpoint) -> str:
    if not endpoint.tariff.usual:
        return "is free"
    return f"costs {rounded(endpoint.tariff.usual)} per 1M tokens (75 % input, 25 % output)"


def _explain_price(endpoint: CatalogEndpoint, able_endpoints: Sequence[CatalogEndpoint]) -> str:
    least = min(each.tariff.usual for each in able_endpoints if each.tariff.usual)
    if endpoint.tariff.usual == least:
        return f"{_format_blended_price_clause(endpoint)}, the cheapest one that is not free"
    times = Decimal(f"{endpoint.tariff.usual / least:.3g}").normalize()
    words = f"{_format_blended_price_clause(endpoint)}, {times:f} times the cheapest"
    return f"{words}; its share falls with the square of that"


def _explain_measurement(target_stats: TargetStats, sort_by: SortBy) -> str:
    measured = target_stats.speed if sort_by == "throughput" else target_stats.first_token
    if measured is not None:
        if sort_by == "throughput":
            return f"writes {measured.p50:.0f} tokens per second; fastest first"
        usual, now = measured.p50, target_stats.expected
        if now is not None and now > usual:
            return f"has a TTFT of {now * 1000:.0f} ms now, usually {usual * 1000:.0f} ms"
        return f"has a TTFT of {usual * 1000:.0f} ms; lowest first"
    if target_stats.idle:
        return "was not measured in the last five minutes, so it gets one request to measure it"
    return "was not measured yet; a request that measures it is in flight"


class ExplainedRefusal(Struct, frozen=True, kw_only=True):
    """The error that a client would get."""

    status: int
    code: str
    message: str
    param: str | None = None

    @classmethod
    def of(cls, failure: ServiceError) -> Self:
        return convert(failure, cls, from_attributes=True)


class PriceTexts(Struct, frozen=True, kw_only=True):
    """Prices as decimal text: per 1M tokens, and for one request."""

    prompt: str
    completion: str
    request: str


class ExplainedTarget(Struct, frozen=True, kw_only=True):
    """A target that would be tried, in its order.

    ``reasons`` determine the order, ``cautions`` may prevent a reply. ``share`` is the part of the
    conversations with affinity to it, among targets of its ``priority``; ``tied`` are those with
    which it is ordered at random. Times are in seconds; without a measurement in the last five
    minutes they are ``null``.
    """

    target: str
    decided: Decided
    reasons: tuple[str, ...]
    cautions: tuple[str, ...]
    tied: tuple[str, ...]
    priority: int
    weight: float
    share: float
    state: str
    in_flight: int
    price: PriceTexts | None
    first_token_seconds: float | None
    tokens_per_second: float | None


class LeftOut(Struct, frozen=True, kw_only=True):
    """A target of the model that would not be tried, and why."""

    target: str
    reasons: tuple[TargetExclusion, ...]


class ExplainedRoute(Struct, frozen=True, kw_only=True):
    """The targets of one model in the order in which they would be tried.

    ``asked`` is the model as the request names it, ``model`` its id; ``changes`` is what the name
    adds to the request. With ``refusal`` no target is tried.
    """

    asked: str
    model: str
    places: tuple[ExplainedTarget, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    changes: tuple[str, ...] = ()
    refusal: ExplainedRefusal | None = None


class RoutingExplanation(Struct, frozen=True, kw_only=True):
    """Routing explanation of a request at this moment.

    ``routes`` are the models in the order in which they would be tried, as far as it is known
    before a reply; ``goes_to`` is the first target. ``refusal`` is the error without any target.
    ``tokens`` is the estimate of prompt and output, ``unknown`` are fields that are not known here;
    with ``strict`` a target that does not get them rejects the request.
    """

    door: str
    goes_to: str | None = None
    routes: tuple[ExplainedRoute, ...] = ()
    refusal: ExplainedRefusal | None = None
    tokens: int | None = None
    unknown: tuple[str, ...] = ()
    strict: bool = False


_SHORTER = TargetExclusion("model", "has a shorter context, and `:extended` asks for the longest")
_SECOND = TargetExclusion(
    "provider.allow_fallbacks", "is not the first choice, and `allow_fallbacks` is false"
)
_STRICT = "does not get this field, and the request wants unknown fields rejected"
_NOT_ALLOWED = TargetExclusion("", "is not allowed for the project or the person of the key")
_SPENT = TargetExclusion("", "is of a provider whose budget is spent")
_BUSY = TargetExclusion("", "has no free capacity for free requests now")


FieldsOf = Callable[[str], Known]  # the fields that a target gets, by its name


def explanation(
    pipeline: Pipeline,
    door: PipelineDoor,
    caller: Caller,
    request: ChatRequest,
    fields_of: FieldsOf = lambda _: KNOWN,
) -> RoutingExplanation:
    """Return how a request would be routed now; errors of the request are in the result."""
    request = scoped(door, caller, request)
    names = (request.model, *request.fallbacks)
    estimated = estimate(request)
    routes: list[ExplainedRoute] = []
    refused: ExplainedRefusal | None = None
    try:
        for name in names:
            pipeline.allowed(door, caller, name)
        for name in names:
            model = pipeline.allowed(door, caller, name)
            route, failure = _explain_with_error(pipeline, model, name, request, fields_of, caller)
            routes.append(route)
            refused = route.refusal
            if failure is not None and not another_may(failure):
                break
    except ServiceError as failure:
        refused = ExplainedRefusal.of(failure)
    goes_to = next((route.places[0].target for route in routes if route.places), None)
    return RoutingExplanation(
        door=door.name,
        goes_to=goes_to,
        routes=tuple(routes),
        refusal=refused if goes_to is None else None,
        tokens=estimated.input + estimated.output,
        unknown=request.unlisted.names if request.unlisted is not None else (),
        strict=request.strict,
    )


def _explain_with_error(
    pipeline: Pipeline,
    model: Entry,
    model_name: str,
    request: ChatRequest,
    get_known_fields: FieldsOf,
    caller: Caller,
) -> tuple[ExplainedRoute, ServiceError | None]:
    chosen: Sequence[Candidate] = ()
    able: Sequence[Candidate] = ()
    prospects: Sequence[RankedTarget] = ()
    strict: Mapping[str, InvalidRequest] = {}
    failed: ServiceError | None = None
    try:
        request = model.adapted(request)
        chosen = model.candidates(request)
        able = pipeline.able(model, request)
        usable = pipeline.permitted(caller, model, able)
        strict = _collect_strict_refusals(request, usable, get_known_fields)
        takers = [one for one in usable if one.name not in strict]
        if strict and not takers:
            failed = strict[usable[0].name]
        else:
            prospects = pipeline.router.explain(takers, request)
    except ServiceError as failure:
        failed = failure
    whole = pipeline.catalog.resolve(None, model.id)
    explainer = _TargetExplainer(pipeline, model, request)
    route = ExplainedRoute(
        asked=model_name,
        model=model.id,
        places=tuple(explainer.placed(one) for one in prospects),
        left_out=tuple(explainer.left_out(whole, chosen, able, prospects, strict, caller)),
        changes=(*request.changes, *model.changes(request)),
        refusal=ExplainedRefusal.of(failed) if failed is not None else None,
    )
    return route, failed


def _collect_strict_refusals(
    request: ChatRequest, candidates: Sequence[Candidate], get_known_fields: FieldsOf
) -> Mapping[str, InvalidRequest]:
    if not request.strict or request.unlisted is None:
        return {}
    body, found = request.unlisted.body, {}
    for one in candidates:
        known = get_known_fields(one.name)
        _, unlisted = sift(body, known)
        if unlisted is not None and unlisted.names and (refused := refusal(body, known)):
            found[one.name] = refused
    return found


class _TargetExplainer:
    def __init__(self, pipeline: Pipeline, model: Entry, request: ChatRequest) -> None:
        self._router = pipeline.router
        self._account_ports = pipeline.members
        self._catalog_entry = model
        self._request = request
        endpoints = model.endpoints if isinstance(model, Listing) else ()
        self._endpoint_by_name = {one.name: one for one in endpoints}

    def placed(self, prospect: RankedTarget) -> ExplainedTarget:
        one, status = prospect.candidate, prospect.status
        target_stats = self._router.target_stats(one.name) or UNKNOWN_STATS
        endpoint = self._endpoint_by_name.get(one.name)
        first, speed = target_stats.first_token, target_stats.speed
        return ExplainedTarget(
            target=one.name,
            decided=prospect.decided,
            reasons=(
                *self._explain_order(one, endpoint),
                *_iterate_degraded_state_reasons(status),
                _explain_decision(prospect),
            ),
            cautions=tuple(self._explain_cautions(one, status)),
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
        strict: Mapping[str, InvalidRequest],
        caller: Caller,
    ) -> Iterator[LeftOut]:
        access, members = caller.access, self._account_ports
        allowed = None if access is None else access.verdict(self._catalog_entry).targets
        spent = () if members is None else members.allowances.spent_providers
        resting = {one.target for one in self._catalog_entry.offers if one.provider in spent}
        excluded = self._catalog_entry.excluded(self._request)
        placed = {one.candidate.name for one in prospects}
        for target in dict.fromkeys(whole.targets):
            rules = (
                (target not in self._catalog_entry.targets, _SHORTER),
                (bool(chosen) and target not in _collect_candidate_names(chosen), _SECOND),
                (allowed is not None and target not in allowed, _NOT_ALLOWED),
                (bool(chosen) and target not in _collect_candidate_names(able), _BUSY),
                (target in resting, _SPENT),
            )
            if target in placed:
                continue
            if target in excluded:
                why = tuple(excluded[target])
            elif found := [exclusion for holds, exclusion in rules if holds]:
                why = (found[0],)
            elif target in strict:
                why = (TargetExclusion(strict[target].param or "", _STRICT),)
            elif able:
                why = (self._build_breaker_exclusion(target),)
            else:
                continue  # what refused the request is not about targets
            yield LeftOut(target=target, reasons=why)

    def _explain_order(self, target: Candidate, endpoint: CatalogEndpoint | None) -> Iterator[str]:
        if endpoint is None or not isinstance(self._catalog_entry, Listing):
            if len(self._catalog_entry.targets) > 1:
                place = f"priority {target.priority} and weight {target.weight:g}"
                yield f"has {place} among those that serve it"
            return
        request, endpoints = self._request, self._endpoint_by_name.values()
        able = [each for each in endpoints if not any(each.exclusions(request))]
        sort, stats_of = self._catalog_entry.sort, self._router.target_stats
        yield from reasons(endpoint, able, request.preferences, sort, stats_of)

    def _explain_cautions(self, candidate: Candidate, status: TargetStatus) -> Iterator[str]:
        if status.state == "half_open":
            yield f"failed last time, and this request tests it{_format_state_reason(status)}"
        elif status.state == "rejecting":
            yield f"rejects all requests{_format_state_reason(status)}"
        elif status.state not in ("up", "degraded"):
            yield f"is down{_format_state_reason(status)}"
        elif status.failures:
            yield f"has failed {status.failures} in a row{_format_state_reason(status)}"
        length = self._catalog_entry.profile(candidate.name).context_length
        estimated = estimate(self._request, (candidate,))
        tokens = estimated.input + estimated.output
        if length is not None and tokens > length:
            yield (
                f"has a context of {length:,} tokens, and prompt and output are estimated at "
                f"{tokens:,}: it may reject the request, and the next one is tried then"
            )

    def _build_breaker_exclusion(self, target_name: str) -> TargetExclusion:
        target_state = self._router.target_state(target_name)
        because = _format_state_reason(target_state.status()) if target_state is not None else ""
        rejects = target_state is not None and target_state.breaker.state() == "rejecting"
        what = "rejects all requests" if rejects else "is down"
        words = f"{what}{because}; of those in this state only the one back soonest is tried, last"
        return TargetExclusion("", words)


def _iterate_degraded_state_reasons(status: TargetStatus) -> Iterator[str]:
    if status.recent_failures is not None:
        failed, asked = status.recent_failures
        yield (
            f"is degraded: {failed} of its {asked} requests of the last five minutes failed, so it "
            "has a tenth of its weight and keeps no conversation"
        )


def _explain_decision(ranked_target: RankedTarget) -> str:
    share = f"{ranked_target.share * 100:.0f} % of conversations have affinity to it"
    match ranked_target.decided:
        case "alone":
            return "is the only one with its priority"
        case "home":
            return f"the conversation has affinity to it ({share}), for its prompt cache"
        case "overflow":
            return f"the one with the affinity is full, and this is next ({share})"
        case "load":
            lot = "; ties are broken at random" if ranked_target.tied else ""
            return f"{ranked_target.status.in_flight} requests running there, by weight{lot}"
        case "last":
            return "takes no requests now; tried when no other is left"


def _format_state_reason(status: TargetStatus) -> str:
    reason = f" ({status.reason.replace('_', ' ')})" if status.reason else ""
    wait = f", next attempt in {status.wait_seconds:.0f} s" if status.wait_seconds else ""
    return reason + wait


def _collect_candidate_names(candidates: Sequence[Candidate]) -> frozenset[str]:
    return frozenset(one.name for one in candidates)


def prices(tariff: Tariff) -> PriceTexts:
    return PriceTexts(**{name: plain(price) for name, price in tariff.by_million.items()})
