"""The words of limits: whose they are, how high, what a request needs, how much is left.

Numbers only. Nothing here counts, and nothing knows of requests or responses.
"""

from __future__ import annotations

import sys
from typing import Literal

from msgspec import Struct

UNLIMITED = sys.maxsize

ScopeKind = Literal["key", "user", "project", "model", "door"]
Measure = Literal["requests", "tokens", "input_tokens", "output_tokens", "concurrent"]


class Rates(Struct, frozen=True, kw_only=True):
    """Limits as they are configured; ``None`` is no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    concurrent: int | None = None


class LimitTexts(Struct, frozen=True):
    """The limits of a minute, as they are told."""

    requests: str
    tokens: str
    input: str
    output: str


class RateScope:
    """Somebody or something with limits; made once, not for every request.

    Its counts belong to ``id``: another scope of the same kind and name goes on
    with them, so limits may change while requests are under way.
    """

    __slots__ = (
        "concurrent",
        "counts_tokens",
        "id",
        "input",
        "kind",
        "limits",
        "most_input",
        "most_output",
        "name",
        "output",
        "requests",
        "splits",
        "tokens",
    )

    def __init__(self, kind: ScopeKind, name: str, rates: Rates) -> None:
        """Raises :class:`ValueError` for a limit below 1."""
        self.kind, self.name, self.id = kind, name, f"{kind}:{name}"
        self.requests = _limit(rates.requests_per_minute)
        self.tokens = _limit(rates.tokens_per_minute)
        self.input = _limit(rates.input_tokens_per_minute)
        self.output = _limit(rates.output_tokens_per_minute)
        self.concurrent = _limit(rates.concurrent)
        self.limits = LimitTexts(*map(str, (self.requests, self.tokens, self.input, self.output)))
        self.most_input = min(self.input, self.tokens)  # of one request
        self.most_output = min(self.output, self.tokens)
        self.splits = min(self.input, self.output) < UNLIMITED  # each has a limit of its own
        self.counts_tokens = self.splits or self.tokens < UNLIMITED


class Tokens(Struct, frozen=True, gc=False):
    """Tokens of a request: foreseen, or used."""

    input: int = 0
    output: int = 0


LimitStatus = tuple[str, int, int]
"""How one limit stands now: the limit, what is left of it, and the tenths of a second
until that is more, at most 600."""

LimitStatuses = tuple[LimitStatus | None, LimitStatus | None]
"""Of requests and of tokens the limit of which least is left, of all scopes of a request;
``None`` where none is set."""


class ExceededLimit(Struct, frozen=True):
    """A limit that a request does not fit into now; it would after ``wait`` seconds."""

    scope: RateScope
    measure: Measure
    limit: int
    used: int
    needed: int
    wait: float


class QuotaRefusal(Struct, frozen=True):
    """Nothing was taken: the limits that forbid it, and how the strictest stand."""

    refusals: tuple[ExceededLimit, ...]
    limit_statuses: LimitStatuses


def _limit(given: int | None) -> int:
    if given is None:
        return UNLIMITED
    if given < 1:
        raise ValueError(f"a limit is at least 1, not {given}")
    return given
