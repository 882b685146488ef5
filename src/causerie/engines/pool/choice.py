"""The choice among the members of a pool: who can begin to answer soonest.

The cost of a member is what it has to read before the first token, in tokens: of this prompt what
it does not hold, and of others what it has not read yet. What runs there counts too, since it
shares every step. A member that has more than its share of requests is chosen for its load only,
so that a beginning that everybody sends spreads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

from causerie.engines.pool.prefix_index import BLOCK

_RUNNING = 64  # tokens that a running request counts for
_SHARE = 1.25
_FREE_SHARE = 8  # requests that nobody needs to share


class MemberLoad:
    """Work of a member: requests under way, and tokens that it has to read for them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.running = 0
        self.unread = 0
        self.chosen = 0  # when it was chosen last: a number that grows


M = TypeVar("M", bound=MemberLoad)


def least_cost(members: Iterable[M], tokens: int, runs: Mapping[str, int]) -> M:
    """Return the member for a prompt of so many tokens; ``runs`` are the blocks that each holds."""
    able = list(members)
    total = sum([member.running for member in able]) + 1
    share = max(_FREE_SHARE, math.ceil(_SHARE * total / len(able)))

    def cost(member: M) -> tuple[int, int]:
        running = member.running
        held = runs.get(member.name, 0) * BLOCK if running < share else 0
        unread = tokens - held if held < tokens else 0
        return unread + member.unread + _RUNNING * running, member.chosen

    return min(able, key=cost)
