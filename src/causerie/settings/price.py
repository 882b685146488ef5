"""Price of a model's tokens."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Struct

from causerie.protocol.numbers import money

Money = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?\Z", extra={"words": 'an amount as text, like `"0.15"`'}
    ),
]

# So the cost of 2^31 tokens of each kind fits the database, which keeps billionths in 64 bits.
Price = Annotated[
    str,
    Meta(
        pattern=r"^([01]?[0-9]{1,6}(\.[0-9]{1,9})?|2000000(\.0{1,9})?)\Z",
        extra={"words": 'an amount of at most 2,000,000 as text, like `"0.15"`'},
    ),
]


class PriceSettings(Struct, frozen=True, kw_only=True):
    """Money per 1M tokens of each kind, in the one currency of the service."""

    prompt: Annotated[Price, Meta(description="For a million tokens of prompts.")] = "0"
    completion: Annotated[
        Price,
        Meta(description="For a million tokens of replies, reasoning too where it has no price."),
    ] = "0"
    cached: Annotated[
        Price | None,
        Meta(description="For a million prompt tokens from the cache. Unset: like `prompt`."),
    ] = None
    reasoning: Annotated[
        Price | None,
        Meta(description="For a million tokens of reasoning. Unset: like `completion`."),
    ] = None
    request: Annotated[Price, Meta(description="For one request, whatever its size.")] = "0"

    @property
    def by_token(self) -> TokenPriceSettings:
        """The same for one token of each kind."""
        return TokenPriceSettings(
            prompt=_one(self.prompt),
            completion=_one(self.completion),
            cached=None if self.cached is None else _one(self.cached),
            reasoning=None if self.reasoning is None else _one(self.reasoning),
            request=money(self.request),
        )


class TokenPriceSettings(Struct, frozen=True, kw_only=True):
    """Money for one token of each kind, and for one request; ``None`` as in
    :class:`PriceSettings`."""

    prompt: Decimal
    completion: Decimal
    cached: Decimal | None
    reasoning: Decimal | None
    request: Decimal


def _one(million: str) -> Decimal:
    return money(million) / 1_000_000
