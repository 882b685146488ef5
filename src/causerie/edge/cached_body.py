"""Bodies that clients may cache: sent compressed where that is accepted, once per change."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from causerie.edge.exchange import Exchange


@dataclass(slots=True)
class CachedBody:
    """A body with its ``etag``, a weak digest that does not depend on the coding."""

    body: bytes
    content_type: str = "application/json"
    gzip_level: int = 1
    etag: str = field(init=False)
    _small: bytes = b""

    def __post_init__(self) -> None:
        self.etag = f'W/"{hashlib.blake2b(self.body, digest_size=12).hexdigest()}"'

    @property
    def small(self) -> bytes:
        """The body as gzip, made when it is first asked for."""
        if not self._small:
            self._small = gzip.compress(self.body, self.gzip_level, mtime=0)
        return self._small

    @property
    def size(self) -> int:
        """Bytes that keeping it takes."""
        return len(self.body) + len(self._small)

    def send(self, exchange: Exchange, headers: Mapping[str, str], status: int = 200) -> None:
        """Answer with the body, or instead of 200 with 304 if the client has it already."""
        headers = {"vary": "accept-encoding", **headers, "etag": self.etag}
        body = self.body
        if exchange.headers.take_gzip:
            body, headers["content-encoding"] = self.small, "gzip"
        known = exchange.headers.get("if-none-match", "") if status == 200 else ""
        if known and (known.strip() == "*" or self.etag.removeprefix("W/") in known):
            exchange.start(304, self.content_type, headers, len(body))  # the length of a 200
            exchange.end()
        else:
            exchange.respond(status, body, content_type=self.content_type, headers=headers)
