"""Bounds on a request whose target accepts less than its model could."""

from __future__ import annotations

from msgspec import Struct


class TokenBounds(Struct, frozen=True):
    """In tokens; ``None`` is as much as whoever answers can. A context is of prompt and output."""

    context_length: int | None = None
    max_output_tokens: int | None = None


UNBOUNDED = TokenBounds()
