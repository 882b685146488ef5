"""Routing explanation: the targets of a request at this moment, and the reasons for their rank.

The order itself is :func:`~causerie.routing.order.order`'s, as requests get it; nothing is sent,
and no target's state changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from causerie.protocol.candidate import Candidate
from causerie.protocol.request import ChatRequest
from causerie.routing.order import affinity_key, affinity_target, order, preferred
from causerie.routing.target_state import TargetState, TargetStatus

Decided = Literal["alone", "home", "overflow", "load", "last"]
"""By what a place was given.

``alone``: nobody else has this priority; ``affinity_target``: the conversation belongs there;
``overflow``: where it belongs has its fill, this is the next; ``load``: by what is
under way for the weight; ``last``: it rests, and is tried when nobody else answers.
"""


class RankedTarget(Struct, frozen=True):
    """A target at its place.

    ``share`` is the part of all conversations that belong there while nobody has
    its fill, of those with its priority; ``tied`` are those whose place and its
    own are drawn by lot.
    """

    candidate: Candidate
    status: TargetStatus
    decided: Decided
    share: float
    tied: tuple[str, ...] = ()


def explain(
    candidates: Sequence[Candidate],
    target_states: Mapping[str, TargetState],
    request: ChatRequest,
    last: str = "",
) -> Sequence[RankedTarget]:
    """Those who would be asked, the first in front; whoever is not among them would not be.

    ``last`` is the name of the target that answered the conversation last, if that is known.
    """
    by_name = {one.name: one for one in candidates}
    groups: dict[int, list[Candidate]] = {}
    for one in candidates:
        if target_states[one.name].breaker.admits():
            groups.setdefault(one.priority, []).append(one)
    return [
        _prospect(
            by_name[target_state.name],
            target_state,
            groups.get(by_name[target_state.name].priority, ()),
            target_states,
            request,
            last,
        )
        for target_state in order(candidates, target_states, request, _undecided, last)
    ]


def _undecided() -> float:
    """No lot is drawn: what is tied stays as configured."""
    return 0.0


def _prospect(
    one: Candidate,
    target_state: TargetState,
    group: Sequence[Candidate],
    target_states: Mapping[str, TargetState],
    request: ChatRequest,
    last: str,
) -> RankedTarget:
    if one not in group:
        return RankedTarget(one, target_state.status(), "last", 0.0)
    if len(group) == 1:
        return RankedTarget(one, target_state.status(), "alone", 1.0)
    share = one.weight / sum(each.weight for each in group)
    conversation = affinity_key(request)
    at_affinity_target = affinity_target(group, target_states, conversation, last)
    if at_affinity_target == one:
        first = preferred(group, conversation, last)[0] == one
        return RankedTarget(one, target_state.status(), "home" if first else "overflow", share)
    tied = tuple(
        each.name
        for each in group
        if each not in (one, at_affinity_target)
        and _load(each, target_states) == _load(one, target_states)
    )
    return RankedTarget(one, target_state.status(), "load", share, tied)


def _load(one: Candidate, target_states: Mapping[str, TargetState]) -> float:
    return (target_states[one.name].in_flight + 1) / one.weight
