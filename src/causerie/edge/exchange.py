"""One request and its response, over ASGI."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from causerie.edge import ids
from causerie.errors import ServiceError

_encoder = msgspec.json.Encoder()


class ClientGone(Exception):
    """The client left, or stopped reading; nobody is there to be answered."""


class Exchange:
    """What a handler has in hand: the request's parts, and ways to answer.

    Every response carries the request's id. ``status`` is what was sent, or
    ``None``; once it is set, the response cannot be changed any more.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = Headers(scope=scope)
        self.token = ids.token()
        self.request_id = ids.taken_over(self.headers.get("x-request-id")) or f"req-{self.token}"
        self.door = ""
        self.status: int | None = None
        self.ended = False
        self._receive = receive
        self._send = send

    def name_completion(self) -> str:
        """The id of the completion, which is the request's id too if the caller sent none."""
        completion = f"chatcmpl-{self.token}"
        if self.request_id == f"req-{self.token}":
            self.request_id = completion
        return completion

    async def receive(self) -> Message:
        """The next message from the client; raises :class:`ClientGone`."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message

    async def gone(self) -> None:
        """Return when the client has left."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        """Send the head of the response."""
        self.status = status
        lines = {"content-type": content_type, "x-request-id": self.request_id}
        lines |= {name.lower(): value for name, value in headers.items()}
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (name.encode("latin-1"), value.encode("latin-1", "replace"))
                    for name, value in lines.items()
                ],
            }
        )

    async def write(self, piece: bytes, *, last: bool = False) -> None:
        """Send a piece of the response's body."""
        self.ended = self.ended or last
        await self._send({"type": "http.response.body", "body": piece, "more_body": not last})

    async def respond(
        self,
        status: int,
        body: bytes,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a whole response."""
        length = {"content-length": str(len(body))}
        await self.start(status, content_type, length | dict(headers or {}))
        await self.write(body, last=True)

    async def json(self, value: object, headers: Mapping[str, str] | None = None) -> None:
        """Send ``value`` with status 200."""
        await self.respond(200, _encoder.encode(value), headers=headers)

    async def refuse(self, failure: ServiceError) -> None:
        """Send a failure."""
        body = _encoder.encode(failure.body())
        await self.respond(failure.status, body, headers=failure.headers)
