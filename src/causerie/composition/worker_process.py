"""A worker process: answers completions on connections that its parent deals.

Started with the descriptors of its channel and of the shared memory, and its number. It ends with
its channel, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import structlog
import uvloop

from causerie.composition.engine_client import EnginesClient
from causerie.composition.service import Prepared, RunningService, listen, service
from causerie.composition.startup import give_back_large_blocks, spare_the_collector
from causerie.composition.worker_engines import WorkerEngines
from causerie.composition.worker_part import part_for_workers
from causerie.composition.workers import Configuration
from causerie.edge import server
from causerie.edge.connections import Connections
from causerie.edge.handover import CarriedRequest, decoded, encoded
from causerie.edge.ownership import owned
from causerie.logging.setup import configure
from causerie.logging.stderr import heedless
from causerie.settings import Settings, SettingsError
from causerie.settings.addresses import has_accounts
from causerie.workers import messages
from causerie.workers.channel import Channel
from causerie.workers.questions import Questions
from causerie.workers.state import SharedState
from causerie.workers.target_state import SharedTargetState

if TYPE_CHECKING:
    from causerie.accounts.rpc_client import AccountsClient

log = structlog.get_logger(__name__)

_REPORT_SECONDS = 0.5


class Worker:
    """One worker, as the messages of its parent drive it. Implements the intake of its edge."""

    gives_back = False

    def __init__(self, end: socket.socket, state: SharedState) -> None:
        self._state = state
        self._configurations: asyncio.Queue[messages.Prepare] = asyncio.Queue()
        self._dealt: asyncio.Queue[tuple[socket.socket, bytes]] = asyncio.Queue()
        self._prepared: dict[int, Prepared] = {}
        self._running: RunningService | None = None
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        self._starting: asyncio.Task[None] | None = None  # until it serves
        self._connections: Connections | None = None  # while it takes any
        self._channel = Channel(end, self._received, self._lost)
        self._questions = Questions(self._channel.send)
        self._engines = WorkerEngines(EnginesClient(self._questions.line("engines")))

    async def run(self) -> None:
        """Serve until the parent stops it, or has gone."""
        self._starting = asyncio.current_task()
        first = await self._configurations.get()
        configuration = _read(first)
        settings, credentials = configuration.settings, configuration.credentials
        configure(settings.logging.level, settings.logging.format)
        self._state.use(first.places)
        accounts = _accounts(settings, self._questions)
        async with self._engines.running():
            self._engines.replace(part_for_workers(settings), credentials)
            made = service(settings, self._engines, credentials, self._state, accounts)
            async with made as running:
                await self._serve(running, first)

    async def _serve(self, running: RunningService, first: messages.Prepare) -> None:
        async with owned(self._report(running)), owned(self._prepare(running)):
            self._running, self._starting = running, None
            spare_the_collector()
            give_back_large_blocks()
            self._channel.send(messages.PrepareOutcome(first.number))
            options = replace(
                listen(running.settings.server), shutdown_delay_seconds=0.0
            )  # the parent's
            await server.answer(running.edge, options, self, self._stop, self._hurry)
            self._send_report(running)

    # The intake of the edge.

    def hand_over(self, client: socket.socket, requests: Sequence[CarriedRequest]) -> None:
        """Give a connection back to the parent."""
        self._channel.send(messages.Carried(encoded(requests)), client)

    @asynccontextmanager
    async def taking(self, connections: Connections) -> AsyncIterator[None]:
        """Take what the parent deals while the block runs."""
        self._connections = connections
        async with owned(self._adopt(connections)):
            yield

    async def ready(self) -> None:
        """The parent is ready."""

    def leave(self) -> None:
        """The parent tells the others."""

    async def drained(self, hurry: asyncio.Event) -> None:
        """The parent stops the others."""

    async def _adopt(self, connections: Connections) -> None:
        while True:
            client, requests = await self._dealt.get()
            await connections.adopt(client, decoded(requests) if requests else ())

    # Messages.

    def _received(self, message: messages.Message, connection: socket.socket | None) -> None:
        match message:
            case messages.Carried() if connection is not None:
                self._dealt.put_nowait((connection, message.requests))
            case messages.ParentAnswer():
                self._questions.answered(message)
            case messages.Beat():
                self._channel.send(message)
            case messages.Prepare():
                self._configurations.put_nowait(message)
            case messages.Commit():
                self._commit(message.number)
            case messages.Leave():
                if self._connections is not None:
                    self._connections.leave()
            case messages.Stop():
                self._end(hurry=message.hurry)

    def _end(self, *, hurry: bool) -> None:
        """Let what runs finish, or with ``hurry`` end it."""
        if hurry:
            self._hurry.set()
        self._stop.set()

    def _lost(self) -> None:
        """The parent has gone, and with it all that counts."""
        self._questions.end()
        self._end(hurry=True)
        if self._starting is not None:
            self._starting.cancel()

    async def _prepare(self, running: RunningService) -> None:
        """Make ready what the parent sends, one configuration after the other."""
        while True:
            wanted = await self._configurations.get()
            configuration = _read(wanted)
            self._state.use(wanted.places)
            problems: tuple[str, ...] = ()
            try:
                self._prepared = {
                    wanted.number: await asyncio.to_thread(
                        running.prepare, configuration.settings, configuration.credentials
                    )
                }
            except SettingsError as error:
                problems = tuple(map(str, error.problems))
            except Exception as error:  # the parent waits for an answer, whatever it is
                log.exception("configuration not prepared")
                problems = (f"it could not be prepared: {type(error).__name__}",)
            self._channel.send(messages.PrepareOutcome(wanted.number, problems))

    def _commit(self, number: int) -> None:
        prepared = self._prepared.pop(number, None)
        if prepared is not None and self._running is not None:
            self._engines.replace(prepared.settings, prepared.credentials)
            self._running.replace(prepared)

    async def _report(self, running: RunningService) -> None:
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            self._send_report(running)

    def _send_report(self, running: RunningService) -> None:
        counts = running.counters.taken()
        targets = {}
        for target_state in running.target_states():
            if isinstance(target_state, SharedTargetState):
                observed = target_state.observed()
                if observed is not None:
                    targets[target_state.name] = observed
        if counts.places or counts.refused or targets:
            self._channel.send(messages.Observed(msgspec.msgpack.encode(counts), targets))


def _accounts(settings: Settings, questions: Questions) -> AccountsClient | None:
    if not has_accounts(settings):
        return None
    from causerie.accounts.rpc_client import AccountsClient  # noqa: PLC0415 - memory, for accounts

    return AccountsClient(questions.line("accounts"))


def _read(message: messages.Prepare) -> Configuration:
    return msgspec.msgpack.decode(message.configuration, type=Configuration)


async def _run(channel: int, memory: int, member: int) -> None:
    end = socket.socket(fileno=channel)
    await Worker(end, SharedState.opened(memory, member)).run()


def main(channel: int, memory: int, member: int) -> None:
    """Run the worker with this number until it is to end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent says when to stop, and when to reload
    with (
        heedless(),
        suppress(asyncio.CancelledError),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_run(channel, memory, member))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
