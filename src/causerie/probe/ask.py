"""One request of the probe, complete but for the address and the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

Credential = Literal["ours", "none", "wrong"]


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Request to a provider.

    ``path`` follows the base URL, or the root of its host if ``at_root`` is set.
    The client closes the connection at the first data of the reply
    (``leave_at_data``) or after ``leave_after`` seconds. Equal requests with
    ``reuse`` are sent once, and that reply answers all of them.
    """

    method: Literal["GET", "POST"]
    path: str
    body: bytes = b""
    credential: Credential = "ours"
    at_root: bool = False
    leave_at_data: bool = False
    leave_after: float | None = None
    wait_seconds: float = 0.0
    reuse: bool = False

    def once(self) -> ProbeRequest:
        """Return the same; a reply to an equal one will do."""
        return replace(self, reuse=True)


def chat(fields: Mapping[str, object]) -> ProbeRequest:
    """Return a chat completion request with these fields as its body."""
    return ProbeRequest("POST", "/chat/completions", msgspec.json.encode(fields))
