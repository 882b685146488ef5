"""The upstream itself: a port on loopback, a script, and what has been seen."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from faultkit.certificates import Certificates
from faultkit.connection import Connection
from faultkit.fault import Broken, Fault
from faultkit.frames import encoded
from faultkit.performance import perform
from faultkit.received import Received
from faultkit.reply import Reply
from faultkit.response import error, plain
from faultkit.tally import Tally

COMPLETIONS = ("/chat/completions", "/responses", "/messages")
Step = Reply | Broken | Fault
Script = Step | Sequence[Step] | Callable[[Received], Step]


class Upstream:
    """``requests`` are those for completions, ``lookups`` all others.

    ``mistakes`` says which requests went on with what the reply had not started
    with; they were answered 400. ``status`` is that of the list of models.
    """

    def __init__(self, script: Script, models: Sequence[str], secure: bool) -> None:
        self._steps = _steps(script)
        self._models = models
        self._answering: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._reserved: socket.socket | None = None
        self._secure = secure
        self._count = Tally()
        self._address = self._steps.fault
        self.status = 200
        self.port = 0
        self.requests: list[Received] = []
        self.lookups: list[Received] = []
        self.connections: list[Connection] = []
        self.mistakes: list[str] = []

    @property
    def base_url(self) -> str:
        """Return its base URL, or the place of the address's fault."""
        secure = self._secure or self._address in (
            Fault.TLS_SELF_SIGNED,
            Fault.TLS_WRONG_NAME,
            Fault.TLS_PLAIN_TEXT,
        )
        host = "nobody-here.invalid" if self._address is Fault.DNS_FAILURE else "127.0.0.1"
        return f"{'https' if secure else 'http'}://{host}:{self.port}/v1"

    @cached_property
    def _certificates(self) -> Certificates:
        return Certificates()

    @property
    def ca_pem(self) -> bytes:
        """The certificate of the authority that clients may trust, in PEM."""
        return self._certificates.ca_pem

    @property
    def open_connections(self) -> list[Connection]:
        """Those that nobody has closed."""
        return [connection for connection in self.connections if connection.open]

    async def received(self, count: int = 1) -> Received:
        """Wait until there have been that many requests for completions; the last of them."""
        await self._count.reach(count)
        return self.requests[count - 1]

    async def kill(self) -> None:
        """As a crash: every connection is reset, and nobody listens any more."""
        await self._stop_listening()
        for connection in self.open_connections:
            connection.reset()

    async def revive(self) -> None:
        """Listen again, at the same port."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None
        await self._listen()

    # What `upstream` calls.

    async def start(self) -> None:
        """Listen, or hold a port where nobody listens."""
        if self._address in (Fault.REFUSE, Fault.DNS_FAILURE):
            self._reserve()
        else:
            await self._listen()

    async def stop(self) -> None:
        """Close everything. Raises what went wrong in the script itself."""
        await self.kill()
        if self._reserved is not None:
            self._reserved.close()
        for task in self._answering:
            task.cancel()
        ends = await asyncio.gather(*self._answering, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    # Steps.

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connection, "127.0.0.1", self.port, ssl=self._tls(), backlog=2048
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            await asyncio.sleep(0)
            self._reserve()

    def _reserve(self) -> None:
        """A port that is taken, so that nobody else gets it, and does not listen."""
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", self.port))
        self.port = self._reserved.getsockname()[1]

    def _tls(self) -> ssl.SSLContext | None:
        if self._address is Fault.TLS_SELF_SIGNED:
            return self._certificates.stranger("127.0.0.1")
        if self._address is Fault.TLS_WRONG_NAME:
            return self._certificates.context("elsewhere.invalid")
        return self._certificates.context("127.0.0.1") if self._secure else None

    def _connection(self) -> Connection:
        return Connection(self.connections.append, self._arrived)

    def _arrived(
        self, line: Connection, method: str, path: str, headers: dict[str, str], raw: bytes
    ) -> None:
        at = asyncio.get_running_loop().time()
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {}
        request = Received(method, path, headers, raw, body, at, line)
        if method != "POST" or not path.endswith(COMPLETIONS):
            self.lookups.append(request)
            self._start(self._look_up(request, line), request)
            return
        self.requests.append(request)
        self._start(self._play(request, line), request)
        self._count.add()

    def _start(self, answer: Coroutine[Any, Any, None], request: Received) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(answer, request))
        self._answering.add(task)  # it stays: what it failed of is told at the end

    async def _answer(self, answer: Coroutine[Any, Any, None], request: Received) -> None:
        """Until it is answered or the client has left."""
        try:
            with suppress(ConnectionError):
                await answer
        finally:
            request.reached.set()

    async def _look_up(self, request: Received, line: Connection) -> None:
        if self.status != 200:
            await line.write(error(self.status, "not well"))
        elif request.path.endswith("/models"):
            data = [{"id": name, "object": "model"} for name in self._models]
            await line.write(plain(encoded({"object": "list", "data": data})))
        else:
            await line.write(error(404, "no such path"))

    async def _play(self, request: Received, line: Connection) -> None:
        step = self._steps.next(request)
        reply = step if isinstance(step, Reply) else step.reply
        try:
            if request.begun is not None:
                reply = reply.after(*request.begun)
        except ValueError as mistake:
            self.mistakes.append(str(mistake))
            await line.write(error(400, str(mistake)))
            return
        reply = reply.within(request.limit)
        await perform(
            reply if isinstance(step, Reply) else replace(step, reply=reply), request, line
        )


class _Steps:
    """The script: each request takes the next step; the last one is for all that follow."""

    def __init__(self, choose: Callable[[Received], Step] | None, steps: Sequence[Step]) -> None:
        self._choose = choose
        self._steps = list(steps)
        first = self._steps[0] if self._steps else None
        fault = first.fault if isinstance(first, Broken) else first
        self.fault = fault if isinstance(fault, Fault) and fault.in_address else None

    def next(self, request: Received) -> Reply | Broken:
        if self._choose is not None:
            step = self._choose(request)
        else:
            step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if isinstance(step, Fault):
            step = Broken(step)
        if isinstance(step, Broken) and step.fault.in_address:
            if step.fault is not self.fault:
                raise ValueError(f"{step.fault.name} lies in the address: put it first")
            return step.reply
        return step


def _steps(script: Script) -> _Steps:
    if isinstance(script, (Reply, Broken, Fault)):
        return _Steps(None, [script])
    if callable(script):
        return _Steps(script, ())
    if not script:
        raise ValueError("a script has at least one step")
    return _Steps(None, script)


@asynccontextmanager
async def upstream(
    script: Script, *, models: Sequence[str] = ("m",), secure: bool = False
) -> AsyncIterator[Upstream]:
    """An upstream on a free port. ``secure`` serves it over TLS, with a certificate for 127.0.0.1.

    Each request for a completion takes the next step of the script, or the one
    that a function of the request gives. A fault that lies in the address must
    come first, and is there for all requests.
    """
    running = Upstream(script, models, secure)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()
