"""A target that may answer a request for a model: its name, and its rank among the others."""

from __future__ import annotations

from msgspec import Struct

from causerie.protocol.bounds import UNBOUNDED, TokenBounds


class Candidate(Struct, frozen=True):
    """``priority`` 0 is asked first; inside a group more ``weight`` means more requests.

    ``bounds`` are of what it is asked here, whatever the target could do.
    """

    name: str
    priority: int = 0
    weight: float = 1.0
    bounds: TokenBounds = UNBOUNDED
