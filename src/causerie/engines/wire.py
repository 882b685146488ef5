"""HTTP with the server of an engine in a child process, whose failures are the engine's."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from causerie.engines.base import EngineFailed
from causerie.transport.client import HttpClient, Reach
from causerie.transport.errors import TransportFailed
from causerie.transport.response import HttpResponse

_CONNECT_SECONDS = 5.0
_MAX_CONNECTIONS = 65_536
_MAX_BODY_BYTES = 256 * 1024 * 1024
_encode = msgspec.json.Encoder().encode


class Wire:
    """Connections to one server that knows ``key``; ``close`` ends them.

    ``place`` is its port on the loopback address, or the path of its Unix socket.
    Idle connections are closed after ``idle_seconds``, with 0 after every answer.
    """

    def __init__(self, place: int | str, key: str, *, idle_seconds: float) -> None:
        reach = Reach(
            idle_seconds=idle_seconds,
            connect_seconds=_CONNECT_SECONDS,
            max_connections=_MAX_CONNECTIONS,
        )
        if isinstance(place, str):
            self._http = HttpClient("http://engine", replace(reach, socket=place))
        else:
            self._http = HttpClient(f"http://127.0.0.1:{place}", reach)
        self._headers = [("authorization", f"Bearer {key}"), ("content-type", "application/json")]

    async def close(self) -> None:
        """End all connections."""
        await self._http.close()

    async def send(self, method: str, path: str, body: object) -> HttpResponse:
        """The head of the answer to a request with a body of JSON, or none where it is ``None``.

        Raises :class:`EngineFailed`.
        """
        data = _encode(body) if body is not None else b""
        try:
            return await self._http.send(method, path, self._headers, data)
        except TransportFailed as failure:
            if not failure.sent:
                raise EngineFailed(f"the engine is gone: {failure}", loading=True) from failure
            raise EngineFailed(f"the engine did not answer: {failure}") from failure


async def whole(response: HttpResponse) -> bytes:
    """All of an answer; raises :class:`EngineFailed`."""
    try:
        return await response.read(_MAX_BODY_BYTES)
    except TransportFailed as failure:
        raise EngineFailed(f"the engine broke off its answer: {failure}") from failure
