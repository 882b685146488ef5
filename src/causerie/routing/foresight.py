"""Who would be asked if a request came now, and what gave each its place.

The order itself is :func:`~causerie.routing.order.order`'s, as requests get it;
nothing is asked, and no target stands otherwise afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from causerie.protocol.candidate import Candidate
from causerie.protocol.request import ChatRequest
from causerie.routing.order import home, opening, order, preferred
from causerie.routing.seat import Seat, SeatStatus

Decided = Literal["alone", "home", "overflow", "load", "last"]
"""By what a place was given.

``alone``: nobody else has this priority; ``home``: the conversation belongs there;
``overflow``: where it belongs has its fill, this is the next; ``load``: by what is
under way for the weight; ``last``: it rests, and is tried when nobody else answers.
"""


class Prospect(Struct, frozen=True):
    """A target at its place.

    ``share`` is the part of all conversations that belong there while nobody has
    its fill, of those with its priority; ``tied`` are those whose place and its
    own are drawn by lot.
    """

    candidate: Candidate
    status: SeatStatus
    decided: Decided
    share: float
    tied: tuple[str, ...] = ()


def foreseen(
    candidates: Sequence[Candidate], seats: Mapping[str, Seat], request: ChatRequest
) -> Sequence[Prospect]:
    """Those who would be asked, the first in front; whoever is not among them would not be."""
    by_name = {one.name: one for one in candidates}
    groups: dict[int, list[Candidate]] = {}
    for one in candidates:
        if seats[one.name].breaker.admits():
            groups.setdefault(one.priority, []).append(one)
    return [
        _prospect(
            by_name[seat.name], seat, groups.get(by_name[seat.name].priority, ()), seats, request
        )
        for seat in order(candidates, seats, request, _undecided)
    ]


def _undecided() -> float:
    """No lot is drawn: what is tied stays as configured."""
    return 0.0


def _prospect(
    one: Candidate,
    seat: Seat,
    group: Sequence[Candidate],
    seats: Mapping[str, Seat],
    request: ChatRequest,
) -> Prospect:
    if one not in group:
        return Prospect(one, seat.status(), "last", 0.0)
    if len(group) == 1:
        return Prospect(one, seat.status(), "alone", 1.0)
    share = one.weight / sum(each.weight for each in group)
    conversation = opening(request)
    at_home = home(group, seats, conversation)
    if at_home == one:
        first = preferred(group, conversation)[0] == one
        return Prospect(one, seat.status(), "home" if first else "overflow", share)
    tied = tuple(
        each.name
        for each in group
        if each not in (one, at_home) and _load(each, seats) == _load(one, seats)
    )
    return Prospect(one, seat.status(), "load", share, tied)


def _load(one: Candidate, seats: Mapping[str, Seat]) -> float:
    return (seats[one.name].in_flight + 1) / one.weight
