"""The worker processes of a service: what they get of its settings, and what they report.

A worker answers completions of providers' models, and of own models whose engine is a server.
Engines, accounts, pages and health checks stay with the parent, which answers what the workers
hand over, and what they ask about engines and accounts.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
from msgspec import Struct

from causerie.composition.engine_server import EngineSession
from causerie.composition.service import RunningService
from causerie.composition.startup import CannotStart
from causerie.edge.connections import Connections
from causerie.edge.handover import CarriedRequest, decoded, encoded
from causerie.metering.counters import Counts
from causerie.settings import Problem, Settings, SettingsError
from causerie.settings.addresses import door_addresses
from causerie.settings.credentials import Credentials
from causerie.settings.tree import ServerSettings
from causerie.workers.messages import Observed, Subject
from causerie.workers.pool import WorkerPool
from causerie.workers.process import Sessions, WorkerSession
from causerie.workers.state import SharedState
from causerie.workers.target_state import SharedTargetState

# -P: nothing in the working directory is taken for a module.
_COMMAND = (sys.executable, "-P", "-m", "causerie.composition.worker_process")


class Configuration(Struct, frozen=True):
    """All that a worker serves by."""

    settings: Settings
    credentials: Credentials


def worker_count(server: ServerSettings) -> int:
    """Return the number of worker processes, 0 if the service is one process.

    Raises :class:`CannotStart` where the system has not what they need.
    """
    if server.workers == 1:
        return 0
    if not sys.platform.startswith("linux"):
        raise CannotStart("server.workers: several processes need Linux; set it to 1")
    if server.workers == "auto":
        cores = len(os.sched_getaffinity(0))
        return cores if cores > 1 else 0
    return server.workers


class WorkerIntake:
    """The workers of one service, as its parent's edge and reloads see them."""

    gives_back = True

    def __init__(self, pool: WorkerPool, state: SharedState, listener: socket.socket) -> None:
        """``listener`` is where clients connect."""
        self._pool = pool
        self._state = state
        self._listener = listener

    async def ready(self) -> None:
        """Return when all workers answer."""
        await self._pool.ready()

    # Configuration.

    def make_places(self, settings: Settings) -> None:
        """Have a place in the shared memory for all that is counted; raise ``SettingsError``."""
        make_places(self._state, settings)

    async def prepare(self, settings: Settings, credentials: Credentials) -> None:
        """Have all workers make it ready; raise :class:`SettingsError`."""
        problems = await self._pool.prepare(
            encoded_configuration(settings, credentials), self._state.places
        )
        if problems:
            raise SettingsError([Problem("", "a worker process", one) for one in problems])

    def commit(self) -> None:
        """Have all workers serve by what was prepared."""
        self._pool.commit()

    # The intake of the parent's edge.

    def hand_over(self, client: socket.socket, requests: Sequence[CarriedRequest]) -> None:
        """Give a connection to the next worker."""
        self._pool.hand_over(client, encoded(requests) if requests else b"")

    def taking(self, connections: Connections) -> AbstractAsyncContextManager[None]:
        """Accept connections while the block runs."""
        return self._pool.accepting(self._listener, _Adopting(connections))

    def leave(self) -> None:
        """Have the connections of all workers end with their next answer."""
        self._pool.leave()

    async def drained(self, hurry: asyncio.Event) -> None:
        """Wait at a stop until all workers have ended."""
        await self._pool.drained(hurry)


class _Adopting:
    """Connections that come with encoded requests."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def adopt(self, client: socket.socket, requests: bytes) -> None:
        await self._connections.adopt(client, decoded(requests) if requests else ())


def shared_state(settings: Settings) -> SharedState | None:
    """Return what the processes of the service keep together; ``None`` where there is one process.

    Raises :class:`CannotStart`, and :class:`SettingsError` where there is too much to count.
    """
    if not worker_count(settings.server):
        return None
    state = SharedState.create()
    make_places(state, settings)
    return state


@asynccontextmanager
async def workers_of(
    parent: RunningService, state: SharedState | None, listener: socket.socket
) -> AsyncIterator[WorkerIntake | None]:
    """Keep the workers running, which serve what the parent serves now; ``None`` without any."""
    if state is None:
        yield None
        return

    def observed(message: Observed) -> None:
        parent.counters.add(msgspec.msgpack.decode(message.counts, type=Counts))
        for name, of_target in message.targets.items():
            target_state = parent.target_state(name)
            if isinstance(target_state, SharedTargetState):
                target_state.learn(of_target)

    server = parent.settings.server
    pool = WorkerPool(
        worker_count(server),
        _COMMAND,
        state,
        observed=observed,
        sessions=_sessions(parent),
        drain_seconds=server.drain_seconds,
    )
    pool.begin_with(encoded_configuration(parent.settings, parent.credentials), state.places)
    parent.workers = pool
    async with pool.running():
        yield WorkerIntake(pool, state, listener)


def _sessions(parent: RunningService) -> Sessions:
    """Return what answers questions of workers."""
    accounts = parent.accounts_server()
    sessions: dict[Subject, Callable[[], WorkerSession]] = {
        "engines": lambda: EngineSession(parent.own_model)
    }
    if accounts is not None:
        sessions["accounts"] = accounts.session
    return sessions


def make_places(state: SharedState, settings: Settings) -> None:
    """Have a place in the shared memory for all that is counted.

    Raises :class:`SettingsError` if there are too many.
    """
    names = [one.id for one in settings.models] + [one.id for one in settings.aliases]
    names += [one.id for one in settings.catalog]
    scopes = [f"model:{name}" for name in names]
    scopes += [f"door:{address.door.name}" for address in door_addresses(settings)]
    targets = [one.id for one in settings.models] + [one.name for one in settings.targets]
    try:
        places = state.extended(scopes, targets, [one.name for one in settings.providers])
    except ValueError as error:
        raise SettingsError([Problem("", "server.workers", str(error))]) from error
    state.use(places)


def encoded_configuration(settings: Settings, credentials: Credentials) -> bytes:
    """Return what a worker serves by, as it travels to it."""
    return msgspec.msgpack.encode(Configuration(settings, credentials))
