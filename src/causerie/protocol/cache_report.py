"""Report on the prefix cache: the tokens of a prompt that were reused, and why not more."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class CacheMiss(Struct, frozen=True):
    """Reason why less was reused than the last request of the conversation had computed.

    ``reusable`` is what that request had computed, in tokens. ``message`` is the index of the
    message that differed, where one did; ``detail`` says more of the place.
    """

    reason: str
    reusable: int
    message: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        where = "" if self.message is None else f" at messages[{self.message}]"
        return self.reason + where + (f" ({self.detail})" if self.detail else "")


class CacheReport(Struct, frozen=True):
    """Tokens of the prompt, those of them that were reused, and the miss, if there was one."""

    prompt: int
    reused: int
    miss: CacheMiss | None = None

    def __str__(self) -> str:
        """Return the value of the header ``x-cache``."""
        found = f"reused={self.reused}, prompt={self.prompt}"
        if self.miss is None:
            return found
        return f'{found}, reusable={self.miss.reusable}, miss="{self.miss}"'


CacheReporter = Callable[[str], CacheReport | None]
"""Reports on a request of the caller with this name, whose conversations alone it looks at."""
