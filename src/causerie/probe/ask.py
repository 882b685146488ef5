"""One request of the probe, complete but for the address and the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

Credential = Literal["ours", "none", "wrong"]


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Request to a provider."""

    method: Literal["GET", "POST"]
    path: str
    """Follows the base URL, or the root of its host if ``at_root`` is set."""
    body: bytes = b""
    credential: Credential = "ours"
    at_root: bool = False
    leave_at_data: bool = False
    """Close the connection at the first data of the reply."""
    leave_after: float | None = None
    """Close the connection after so many seconds."""
    wait_seconds: float = 0.0
    reuse: bool = False
    """Equal requests are sent once, and that reply answers all of them."""

    def once(self) -> ProbeRequest:
        """Return the same; a reply to an equal one will do."""
        return replace(self, reuse=True)


def chat(fields: Mapping[str, object]) -> ProbeRequest:
    """Return a chat completion request with these fields as its body."""
    return ProbeRequest("POST", "/chat/completions", msgspec.json.encode(fields))
