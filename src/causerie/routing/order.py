"""In which order targets are asked.

Lower priority numbers first. Inside a group a conversation stays with the
target that has its beginning in the cache, as long as that target carries no
more than its share and a quarter. That is the one that answered it last, else
the one of rendezvous hashing (Thaler, Ravishankar 1998) with weights and
bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016).
The rest follow by what is under way there for their weight. Of the targets that
cannot be asked now only the one that is back soonest is tried, and of those that
reject all requests one behind that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

from causerie.protocol.billing_line import without_billing_line
from causerie.protocol.candidate import Candidate
from causerie.protocol.request import ChatRequest
from causerie.routing.target_state import TargetState

_SHARE = 1.25
_AFFINITY_KEY_CHARACTERS = 4096  # of a message; more would only cost time


def order(
    candidates: Sequence[Candidate],
    target_states: Mapping[str, TargetState],
    request: ChatRequest,
    chance: Callable[[], float],
    last: str = "",
) -> list[TargetState]:
    """The targets of the candidates, the one to be asked first in front.

    ``last`` is the name of the target that answered the conversation last, if that is known.
    """
    groups: dict[int, list[Candidate]] = {}
    resting: list[TargetState] = []
    for candidate in candidates:
        target_state = target_states[candidate.name]
        if target_state.breaker.admits():
            groups.setdefault(candidate.priority, []).append(candidate)
        else:
            resting.append(target_state)
    resting.sort(key=lambda target_state: target_state.breaker.wait())
    rejecting = [one for one in resting if one.breaker.state() == "rejecting"]
    down = [one for one in resting if one not in rejecting]
    ordered: list[TargetState] = []
    for _, group in sorted(groups.items()):
        ordered += _group(group, target_states, request, chance, last)
    return ordered + down[:1] + rejecting[:1]


def _group(
    group: Sequence[Candidate],
    target_states: Mapping[str, TargetState],
    request: ChatRequest,
    chance: Callable[[], float],
    last: str,
) -> list[TargetState]:
    if len(group) == 1:
        return [target_states[group[0].name]]
    by_load = sorted(
        group, key=lambda one: ((target_states[one.name].in_flight + 1) / one.weight, chance())
    )
    at_affinity_target = affinity_target(group, target_states, affinity_key(request), last)
    if at_affinity_target is not None:
        by_load.remove(at_affinity_target)
        by_load.insert(0, at_affinity_target)
    return [target_states[candidate.name] for candidate in by_load]


def affinity_target(
    group: Sequence[Candidate],
    target_states: Mapping[str, TargetState],
    conversation: str,
    last: str = "",
) -> Candidate | None:
    """Return the conversation's target, or the next one if that has its share of requests."""
    total = sum(target_states[one.name].in_flight for one in group) + 1
    weights = sum(one.weight for one in group)
    for candidate in preferred(group, conversation, last):
        share = math.ceil(_SHARE * total * candidate.weight / weights)
        if target_states[candidate.name].in_flight < share:
            return candidate
    return None


def preferred(group: Sequence[Candidate], conversation: str, last: str = "") -> list[Candidate]:
    """Return the candidates in the conversation's order of preference, by weight without load.

    The one that answered it ``last`` is the first.
    """
    key = blake2b(conversation.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    return sorted(group, key=lambda one: (one.name != last, _distance(one, key)))


def _distance(candidate: Candidate, conversation: bytes) -> float:
    """Exponentially distributed with the weight as its rate: the least wins by weight."""
    drawn = blake2b(candidate.name.encode(), key=conversation, digest_size=8).digest()
    return -math.log((int.from_bytes(drawn, "big") + 1) / 2**64) / candidate.weight


def affinity_key(request: ChatRequest) -> str:
    """Return the key of a conversation: its session, its cache key, or its opening.

    The opening is read without the line that a client changes at every turn. Requests of
    different cache scopes have different keys.
    """
    scope = request.cache_scope
    if request.session_id is not None:
        return scope + request.session_id
    if request.cache_key is not None:
        return scope + request.cache_key
    texts = [scope] if scope else []
    for message in without_billing_line(request.messages):
        texts.append(message.text[:_AFFINITY_KEY_CHARACTERS])
        if message.role == "user":
            break
    return "\0".join(texts)
