"""One endpoint of the market: its price, its speed, what it cannot do, and when it is not well.

All that it does is decided by its script, the time and the number of the
request, so that it can be said afterwards what any other one would have done.
Knows no HTTP.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Ill = Literal["refuses", "full", "silent", "drops", "breaks", "slow"]
PROMPT_TOKENS = 400
REPLY_TOKENS = 24
ABILITIES = ("tools", "response_format", "seed")


@dataclass(frozen=True, slots=True)
class Spell:
    """Not being well, from one second of the market to another."""

    begin: float
    end: float
    ill: Ill


@dataclass(frozen=True, slots=True)
class Fate:
    """Outcome of a request: ``ill`` is the kind of failure, if any; times are in seconds."""

    ill: Ill | None
    first_seconds: float
    gap_seconds: float

    @property
    def answers(self) -> bool:
        """Return true if the reply is whole."""
        return self.ill in (None, "slow")


@dataclass(frozen=True, slots=True)
class Seller:
    """Prices are in dollars per 1M tokens, ``faulty`` is a share of the requests."""

    name: str
    prompt_price: float
    reply_price: float
    first_seconds: float
    tokens_a_second: float
    faulty: float
    lacks: frozenset[str]
    spells: tuple[Spell, ...]

    def fate(self, at: float, number: int) -> Fate:
        """Return the outcome of request ``number``, ``at`` seconds after the market has opened."""
        chance = random.Random(f"{self.name} {number}")
        first = self.first_seconds * chance.lognormvariate(0, 0.25)
        ill: Ill | None = "refuses" if chance.random() < self.faulty else None
        ill = next((spell.ill for spell in self.spells if spell.begin <= at < spell.end), ill)
        if ill == "slow":
            first *= 8
        return Fate(ill, first, 1 / self.tokens_a_second)

    def can(self, wanted: frozenset[str]) -> bool:
        """Return true if it supports these parameters."""
        return not wanted & self.lacks

    def cost(self, prompt: int = PROMPT_TOKENS, reply: int = REPLY_TOKENS) -> float:
        """Return the price of a request there, in dollars."""
        return (prompt * self.prompt_price + reply * self.reply_price) / 1e6


def sellers(count: int, seconds: float, seed: int) -> Sequence[Seller]:
    """A market that is open for so long; the cheap ones are slower, and the best have bad times."""
    chance = random.Random(seed)
    out = []
    for place in range(count):
        cheapness = place / max(count - 1, 1)  # 0 is the cheapest
        price = 0.2 * 12**cheapness * chance.uniform(0.9, 1.1)
        first = 0.32 * 0.2**cheapness * chance.uniform(0.6, 1.6)
        out.append(
            Seller(
                name=f"s{place:02}",
                prompt_price=round(price, 3),
                reply_price=round(price * chance.uniform(2, 4), 3),
                first_seconds=first,
                tokens_a_second=round(chance.uniform(200, 600)),
                faulty=chance.choice((0, 0, 0, 0.01, 0.05)),
                lacks=frozenset(chance.sample(ABILITIES, chance.choice((0, 0, 1, 2)))),
                spells=_spells(count, seconds).get(place, ()),
            )
        )
    return out


def _spells(count: int, seconds: float) -> Mapping[int, tuple[Spell, ...]]:
    """Return the failures of sellers that are likely to be chosen: the cheapest and the fastest
    few.
    """
    parts: Mapping[int, tuple[tuple[float, float, Ill], ...]] = {
        0: ((0.3, 0.55, "refuses"),),
        1: ((0.6, 0.8, "drops"),),
        2: ((0.1, 0.25, "full"), (0.7, 0.9, "slow")),
        3: ((0.4, 0.5, "breaks"),),
        count - 4: ((0.2, 0.35, "silent"),),
        count - 3: ((0.5, 0.75, "slow"),),
        count - 2: ((0.55, 0.7, "refuses"),),
        count - 1: ((0.25, 0.6, "slow"), (0.8, 0.9, "breaks")),
    }
    return {
        place: tuple(Spell(begin * seconds, end * seconds, ill) for begin, end, ill in turns)
        for place, turns in parts.items()
    }
