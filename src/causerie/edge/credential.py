"""The key that a request came with."""

from __future__ import annotations

from causerie.edge.exchange import Exchange


def credential(exchange: Exchange) -> str | None:
    """The bearer token of the request, ``None`` where there is none."""
    scheme, _, token = exchange.headers.get("authorization", "").partition(" ")
    if scheme != "Bearer" and scheme.lower() != "bearer":
        return None
    return token.strip() or None
