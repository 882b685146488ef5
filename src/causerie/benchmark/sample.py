"""Measurements of one reply. Times are in seconds, on one monotonic clock."""

from __future__ import annotations

from msgspec import Struct


class Sample(Struct, frozen=True):
    """Measurements of one reply."""

    began: float
    ended: float
    first: float | None = None
    """Time of the first content."""
    prompt: int = 0
    """Tokens, as the provider counts them."""
    completion: int = 0
    """Tokens, as the provider counts them."""
    failure: str = ""
    """Empty if the reply came to its end."""

    def written_by(self, when: float) -> float:
        """Return the number of tokens that had arrived by this time.

        All but the first are taken to have come evenly: pieces of a stream may hold several.
        """
        if self.first is None or when < self.first:
            return 0.0
        if when >= self.ended:
            return float(self.completion)
        rest = max(self.completion - 1, 0)
        return min(self.completion, 1) + rest * (when - self.first) / (self.ended - self.first)

    @property
    def waited(self) -> float | None:
        """Return the time until the first content."""
        return None if self.first is None else self.first - self.began

    @property
    def pause(self) -> float | None:
        """Return the average time from one token to the next."""
        if self.first is None or self.completion < 2:
            return None
        return (self.ended - self.first) / (self.completion - 1)
