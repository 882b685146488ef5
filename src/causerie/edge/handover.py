"""Requests that another process of the service answers, with the connection that they came on."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from causerie.access.credential import Credential
from causerie.edge.head import RequestHead
from causerie.edge.headers import Headers


class CarriedRequest(Struct, frozen=True, array_like=True):
    """A whole request, as it goes to another process; the secret of its credential stays behind."""

    method: str
    path: str
    version: str
    headers: list[tuple[str, str]]
    keep_alive: bool
    query: str
    credential: Credential | None
    body: bytes

    @classmethod
    def of(cls, head: RequestHead, body: bytes) -> CarriedRequest:
        """Return the request with this head; a head that came before does not tell its length."""
        headers = [*head.headers.items(), *(head.headers.again or ())]
        kind, path, query = head.method, head.path, head.query
        kept = head.keep_alive
        return cls(kind, path, head.version, headers, kept, query, head.credential, body)

    @property
    def head(self) -> RequestHead:
        headers = Headers()
        for name, value in self.headers:
            if name in headers:
                headers.add_again(name, value)
            else:
                headers[name] = value
        return RequestHead(
            self.method,
            self.path,
            self.version,
            headers,
            self.keep_alive,
            self.query,
            self.credential,
        )


HandOver = Callable[[socket.socket, Sequence[CarriedRequest]], None]
"""Gives a connection, with the requests that were read from it, to another process."""

_decoder = msgspec.msgpack.Decoder(tuple[CarriedRequest, ...])


def encoded(requests: Sequence[CarriedRequest]) -> bytes:
    """Return the requests as bytes, for :func:`decoded` in another process."""
    return msgspec.msgpack.encode(requests)


def decoded(data: bytes) -> Sequence[CarriedRequest]:
    """Return the requests; raise :class:`msgspec.DecodeError` for other bytes."""
    return _decoder.decode(data)


class HandedOver(Exception):
    """Another process answers the request; ``body`` is all of its body."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body
