"""A target that may answer a request for a model: its name, and its rank among the others."""

from __future__ import annotations

from msgspec import Struct


class TokenBounds(Struct, frozen=True):
    """In tokens; ``None`` is as much as whoever answers can. A context is of prompt and output."""

    context_length: int | None = None
    max_output_tokens: int | None = None


UNBOUNDED = TokenBounds()


class Candidate(Struct, frozen=True):
    """``priority`` 0 is asked first; inside a group more ``weight`` means more requests.

    ``bounds`` are of what it is asked here, whatever the target could do.
    """

    name: str
    priority: int = 0
    weight: float = 1.0
    bounds: TokenBounds = UNBOUNDED
