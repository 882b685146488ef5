"""Why an exchange with another server failed, in kinds that callers tell apart."""

from __future__ import annotations

from typing import Literal

Kind = Literal[
    "dns",
    "refused",
    "private",
    "tls",
    "proxy",
    "connect_timeout",
    "timeout",
    "reset",
    "closed",
    "protocol",
    "too_large",
    "compressed",
]


class TransportFailed(Exception):
    """No response, or only a part of one. The text names host and port, never a path or a header.

    ``sent`` says whether the other side may have got the request.
    """

    def __init__(self, kind: Kind, words: str, *, sent: bool) -> None:
        super().__init__(words)
        self.kind: Kind = kind
        self.sent = sent


class Stale(TransportFailed):
    """A connection that had been kept was closed by the server meanwhile; another may be asked."""
