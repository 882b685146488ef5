"""Routing explanation of a request that nobody has sent: its target, and the reasons."""

from __future__ import annotations

from msgspec import Struct

from causerie.catalog.exclusion import TargetExclusion
from causerie.errors import ServiceError
from causerie.routing.explain import Decided


class ExplainedRefusal(Struct, frozen=True, kw_only=True):
    """The error that a client would get."""

    status: int
    code: str
    message: str
    param: str | None = None

    @staticmethod
    def of(failure: ServiceError) -> ExplainedRefusal:
        """As it would be sent."""
        return ExplainedRefusal(
            status=failure.status, code=failure.code, message=failure.message, param=failure.param
        )


class PriceTexts(Struct, frozen=True, kw_only=True):
    """Decimal numbers as text: per 1M tokens, and for one request."""

    prompt: str
    completion: str
    request: str


class ExplainedTarget(Struct, frozen=True, kw_only=True):
    """A target that would be asked, at its place.

    ``reasons`` gave it the place, ``cautions`` are what may come in between.
    ``share`` is the part of all conversations that belong there, of those with its
    ``priority``; ``tied`` are those whose place and its own are drawn by lot. Times are in
    seconds; what nobody has measured in the last five minutes is ``null``.
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
    """A target of the model that would not be asked, and by what it is left out."""

    target: str
    reasons: tuple[TargetExclusion, ...]


class ExplainedRoute(Struct, frozen=True, kw_only=True):
    """One model's way: its targets in the order in which they would be asked.

    ``asked`` is the model as the request names it, ``model`` its id; ``changes``
    is what the name of the model adds to the request. With ``refusal`` nobody is asked.
    """

    asked: str
    model: str
    places: tuple[ExplainedTarget, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    changes: tuple[str, ...] = ()
    refusal: ExplainedRefusal | None = None


class RoutingExplanation(Struct, frozen=True, kw_only=True):
    """Routing explanation of a request at this moment.

    ``routes`` are the models in the order in which they would be asked, as far as that can
    be said before somebody answers; ``goes_to`` is the target that would be asked first.
    ``refusal`` is what the client would get where nobody is asked. ``tokens`` is what prompt
    and output are estimated at, ``unknown`` fields that nobody here
    knows; with ``strict`` a target that does not get them rejects the request.
    """

    door: str
    goes_to: str | None = None
    routes: tuple[ExplainedRoute, ...] = ()
    refusal: ExplainedRefusal | None = None
    tokens: int | None = None
    unknown: tuple[str, ...] = ()
    strict: bool = False
