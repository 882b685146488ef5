"""The place of a worker process below its supervisor: its sockets, and whom to report to."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from causerie.composition.control import ControlFailed, asked
from causerie.composition.startup import StartAnnouncer
from causerie.engines.weights import Progress, Silent
from causerie.errors import Overloaded
from causerie.http.server import Bound
from causerie.http.tasks import owned
from causerie.settings.environment import worker
from causerie.settings.tree import Settings

_BEAT_SECONDS = 1.0
_ASK_SECONDS = 10.0


class WorkerPlace(msgspec.Struct, frozen=True):
    number: int
    """From 1."""
    count: int
    restarts: int
    """Workers of the service that have been replaced so far."""
    channel: int
    """Descriptor of the socket pair's end."""
    sockets: Sequence[int]
    """Descriptors of the service's socket, and of its metrics' if they have their own address."""
    supervisor: str
    """Control socket of the supervisor."""

    @property
    def control_socket(self) -> str:
        return worker_socket(Path(self.supervisor), self.number).name

    def bound(self) -> Bound:
        return Bound(*map(_inherited_socket, self.sockets))

    def share(self, most: int | None) -> int | None:
        """Return this worker's share of a number that all workers may reach together."""
        if most is None:
            return None
        share, rest = divmod(most, self.count)
        return share + (self.number <= rest)


class WorkerReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a worker to its supervisor; one that says nothing is a beat."""

    first_link: str | None = None
    ready: bool = False


class Exposition(msgspec.Struct, frozen=True):
    text: str


def own_place() -> WorkerPlace | None:
    text = worker()
    return None if text is None else msgspec.json.decode(text, type=WorkerPlace)


def worker_socket(supervisor: Path, number: int) -> Path:
    """Return the control socket of a worker; its name must not be longer than the supervisor's."""
    return supervisor.with_suffix(f".w{number}")


def _inherited_socket(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)  # not for the processes that a worker starts
    return socket.socket(fileno=descriptor)


async def metrics_of_all(place: WorkerPlace) -> bytes:
    wanted = partial(asked, Path(place.supervisor), "metrics", Exposition, _ASK_SECONDS)
    try:
        return (await asyncio.to_thread(wanted)).text.encode()
    except ControlFailed as failure:
        words = "The supervisor of the worker processes does not answer."
        raise Overloaded(words) from failure


@asynccontextmanager
async def following_supervisor(
    place: WorkerPlace, stop: Callable[[], None]
) -> AsyncIterator[Callable[[WorkerReport], None]]:
    """Yield the function that sends a report; ``stop`` is called when the supervisor ends."""
    reader, writer = await asyncio.open_unix_connection(sock=_inherited_socket(place.channel))

    def report(line: WorkerReport) -> None:
        writer.write(msgspec.json.encode(line) + b"\n")

    async def beat() -> None:
        while True:
            report(WorkerReport())
            await asyncio.sleep(_BEAT_SECONDS)

    async def follow() -> None:
        with suppress(OSError):
            await reader.read()
        stop()

    try:
        async with owned(beat()), owned(follow()):
            yield report
    finally:
        writer.close()


class WorkerAnnouncer(StartAnnouncer):
    """Reports the start of a worker to its supervisor, which tells the person at the terminal."""

    def __init__(self, settings: Settings, report: Callable[[WorkerReport], None]) -> None:
        self.settings = settings
        self._report = report

    @property
    def download(self) -> Progress:
        return Silent()

    def first_link(self, token: str) -> None:
        self._report(WorkerReport(first_link=token))

    def ready(self, host: str, port: int) -> None:
        self._report(WorkerReport(ready=True))
