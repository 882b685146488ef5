"""The choice among the members of a pool: who can begin to answer soonest, at what cost to others.

The cost of a member is counted in tokens:

- what it has to read of this prompt, twice: the request waits for it, and later requests pay for
  it once more, because they wait for it too and it evicts what they would have found;
- what it has to read for others first, once: it is read in any case;
- 64 for each request that runs there, since they share every step.

So a beginning is read by a second member when waiting for the first one takes longer than twice
the reading. What a member holds counts up to its share of requests, and up to two shares where it
holds more of the prompt than every other member: a beginning that everybody sends spreads, and a
conversation stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

from causerie.engines.pool.prefix_index import BLOCK

_READING = 2  # how often a token that this prompt has to read counts
_RUNNING = 64  # tokens that a running request counts for
_SHARE = 1.25  # of the mean of running requests
_MOST_SHARES = 2
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
    most = _MOST_SHARES * share
    held_twice = sorted(runs.values())[-2] if len(runs) > 1 else 0

    def cost(member: M) -> tuple[int, int]:
        running = member.running
        held = runs.get(member.name, 0)
        if running >= share:
            held = held if held > held_twice and running < most else 0
        unread = tokens - held * BLOCK if held * BLOCK < tokens else 0
        return _READING * unread + member.unread + _RUNNING * running, member.chosen

    return min(able, key=cost)
