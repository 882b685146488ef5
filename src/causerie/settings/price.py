"""What the use of a model costs."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Struct

Money = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?\Z",
        extra={"words": 'an amount as text, like `"0.15"`'},
    ),
]


class Price(Struct, frozen=True, kw_only=True):
    """Money for a million tokens of each kind, in the one currency of the service."""

    prompt: Annotated[Money, Meta(description="For a million tokens of prompts.")] = "0"
    completion: Annotated[
        Money, Meta(description="For a million tokens of replies, reasoning too.")
    ] = "0"
    cached: Annotated[
        Money | None,
        Meta(description="For a million prompt tokens from the cache. Unset: like `prompt`."),
    ] = None
    request: Annotated[Money, Meta(description="For one request, whatever its size.")] = "0"

    @property
    def by_token(self) -> tuple[Decimal, Decimal, Decimal | None, Decimal]:
        """Money for one prompt, completion and cached token, and for a request."""
        million = Decimal(1_000_000)
        cached = None if self.cached is None else Decimal(self.cached) / million
        prompt, completion = Decimal(self.prompt) / million, Decimal(self.completion) / million
        return prompt, completion, cached, Decimal(self.request)
