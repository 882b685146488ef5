"""HTTP with the server of an engine, whose failures are the engine's."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from causerie.engines.base import EngineFailed
from causerie.transport.client import HttpClient, Reach
from causerie.transport.errors import TransportFailed
from causerie.transport.response import HttpResponse

_MAX_CONNECTIONS = 65_536
_MAX_BODY_BYTES = 256 * 1024 * 1024
_encode = msgspec.json.Encoder().encode


def near(place: int | str) -> tuple[str, Reach]:
    """Address and way of a child: a port on the loopback address, or the path of a Unix socket."""
    if isinstance(place, str):
        return "http://engine", Reach(socket=place)
    return f"http://127.0.0.1:{place}", Reach()


class EngineTransport:
    """Connections to the server at ``address``, which wants to see ``key``; ``close`` ends them.

    Idle connections are closed after ``idle_seconds``, with 0 after every answer.
    """

    def __init__(self, address: str, reach: Reach, key: str | None, *, idle_seconds: float) -> None:
        reach = replace(reach, idle_seconds=idle_seconds, max_connections=_MAX_CONNECTIONS)
        self._http = HttpClient(address, reach)
        self._headers = [("content-type", "application/json")]
        if key is not None:
            self._headers.append(("authorization", f"Bearer {key}"))

    @property
    def connected(self) -> bool:
        """Return whether a connection is open."""
        return self._http.open_connections > 0

    async def close(self) -> None:
        """End all connections."""
        await self._http.close()

    async def send(self, method: str, path: str, body: object) -> HttpResponse:
        """Return the head of the answer to a request; its JSON body is left out if ``None``.

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
    """Return all of an answer; raise :class:`EngineFailed`."""
    try:
        return await response.read(_MAX_BODY_BYTES)
    except TransportFailed as failure:
        raise EngineFailed(f"the engine broke off its answer: {failure}") from failure
