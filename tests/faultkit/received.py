"""A request as the upstream got it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class Line(Protocol):
    """The connection that a request came on."""

    @property
    def open(self) -> bool:
        """Return true while it is open."""
        ...

    async def left(self) -> float:
        """Wait until the client closes it; the loop's time of that."""
        ...


@dataclass(frozen=True, slots=True)
class Received:
    """``headers`` are by lower-case name; ``body`` is what its JSON says, ``at`` the loop's time.

    ``reached`` is set when its script has been played as far as it goes: to
    the end, or to the point where nothing more comes.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Any
    at: float
    line: Line
    reached: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def streamed(self) -> bool:
        """Return true if a stream was requested."""
        return bool(self.body.get("stream"))

    @property
    def limit(self) -> int | None:
        """The output limit, if any."""
        for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
            if self.body.get(name) is not None:
                return int(self.body[name])
        return None

    @property
    def begun(self) -> tuple[str, str] | None:
        """Reasoning and text of a last message that is the assistant's: the reply goes on there."""
        messages = self.body.get("messages") or [{}]
        last = messages[-1]
        if last.get("role") != "assistant":
            return None
        reasoning = last.get("reasoning_content") or last.get("reasoning") or ""
        return reasoning, last.get("content") or ""
