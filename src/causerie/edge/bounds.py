"""What one connection of a client may cost."""

from __future__ import annotations

import msgspec


class ConnectionLimits(msgspec.Struct, frozen=True):
    """What a connection may cost. Times are in seconds, sizes in bytes."""

    head_seconds: float
    idle_seconds: float
    stuck_seconds: float
    max_head_bytes: int
    max_connections: int
