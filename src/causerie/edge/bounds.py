"""Bounds on one connection of a client."""

from __future__ import annotations

import msgspec


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Bounds on one connection. Times are in seconds, sizes in bytes."""

    head_seconds: float
    idle_seconds: float
    stuck_seconds: float
    max_head_bytes: int
    max_connections: int
