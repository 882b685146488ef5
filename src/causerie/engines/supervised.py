"""Common base of text engines behind servers: child processes of ours, or other servers."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

from causerie.engines.base import EngineFailed, EngineState, EngineStatus, Output, TextRequest
from causerie.engines.files import Files
from causerie.engines.process import C, EngineClient
from causerie.engines.supervisor import Supervisor
from causerie.engines.token_engine import TokenEngine
from causerie.engines.watchdog import Pulse
from causerie.engines.weights.errors import WeightsError

C_co = TypeVar("C_co", bound=EngineClient, covariant=True)


class Served(Protocol[C_co]):
    """A server that has loaded: a child of ours, or one that others run, which has no ``pid``."""

    @property
    def client(self) -> C_co: ...
    @property
    def pid(self) -> int | None: ...

    async def ended(self) -> str:
        """Wait for its end, or until it no longer answers; return why, in a few words."""
        ...

    async def stop(self) -> None:
        """Have no more to do with it; a child of ours has ended then."""
        ...


class SupervisedEngine(TokenEngine[C], Generic[C]):
    """One model in a supervised server, which a client of type ``C`` speaks to.

    A subclass says how the server is started or found, what is read from the model's
    ``files``, and how one generation goes.
    """

    def __init__(self, model: str, files: Files, load_seconds: float) -> None:
        super().__init__()
        self._model = model
        self._files = files
        self._load_seconds = load_seconds
        self._supervisor = Supervisor(model, self._spawn)
        self._busy = 0
        self._pulse = Pulse()

    @property
    @abstractmethod
    def slots(self) -> int:
        """Return the number of concurrent requests."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Return the estimated memory, in bytes."""

    @property
    @abstractmethod
    def context(self) -> int:
        """Return the maximum tokens of one request, prompt and output together."""

    @property
    def cache_tokens(self) -> int | None:
        """Return the tokens of a cache that requests share, if it bounds them; else ``None``."""
        return None

    @abstractmethod
    async def _child(self) -> Served[C]:
        """Return a server that has loaded; raise :class:`EngineFailed`."""

    @property
    def pid(self) -> int | None:
        """Return the process id of a child of ours, while it is ready."""
        child = self._supervisor.child
        return child.pid if child is not None else None

    @property
    def ready(self) -> bool:
        """Return whether it can generate now."""
        return self._supervisor.child is not None

    @property
    def restarts(self) -> int:
        """Return how often its server was started or reached again."""
        return self._supervisor.restarts

    async def start(self) -> None:
        """Load the model; raise :class:`EngineFailed` with the reason."""
        try:
            await self._words()
        except (WeightsError, OSError) as error:
            raise EngineFailed(str(error)) from error
        await self._supervisor.start()

    async def stop(self) -> None:
        """End the child process; an external server keeps running."""
        await self._supervisor.stop()

    def status(self) -> EngineStatus:
        """Return the current status."""
        supervisor = self._supervisor
        return EngineStatus(
            model=self._model,
            state=supervisor.state,
            slots=self.slots,
            busy=min(self._busy, self.slots),
            restarts=supervisor.restarts,
            idle_seconds=time.monotonic() - self._pulse.beat,
            memory_bytes=self.memory_bytes,
            context=self.context,
            cache_tokens=self.cache_tokens,
            pid=self.pid,
            detail=supervisor.detail,
        )

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        """Yield one completion; leaving closes the connection, which frees the slot."""
        client = self._client()
        self.enter()
        done = False
        try:
            async with self.completion(client, self.context, request) as outputs:
                yield outputs
                done = True  # left in peace
        finally:
            self.leave(done=done)

    def enter(self) -> None:
        """Count a completion, whoever reads it."""
        self._busy += 1

    def leave(self, *, done: bool) -> None:
        """Count the end of a completion; ``done``: a piece of work is complete."""
        self._busy -= 1
        if done:
            self._supervisor.proved()

    def beat(self) -> None:
        """Note that something has come from the server, whoever reads it."""
        self._pulse.beat = time.monotonic()

    async def _spawn(self) -> Served[C]:
        await asyncio.to_thread(self._files.same)
        child = await self._child()
        try:
            await asyncio.to_thread(self._files.same)  # all the time that it took to load them
        except BaseException:
            await child.stop()
            raise
        return child

    def _client(self) -> C:
        supervisor = self._supervisor
        if supervisor.child is not None:
            return supervisor.child.client
        raise EngineFailed(
            supervisor.detail or "the engine is not running",
            loading=supervisor.state is EngineState.LOADING or supervisor.restarting,
            retry_after=supervisor.retry_after(),
        )
