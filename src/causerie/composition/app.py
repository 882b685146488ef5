"""The composition root: makes the engines, builds the service, runs it until a stop.

The one place that names concrete engines and hands settings to those who need them. Nothing here
decides anything about a request.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from causerie.composition.alerting import Alerting
from causerie.composition.control import (
    WorkerPlace,
    WorkerReport,
    answering,
    is_chatting,
    worker_socket,
)
from causerie.composition.doors import mount_chat_page, mount_docs
from causerie.composition.engine_makers import EngineMakers, preloaded, weights_cache
from causerie.composition.entries import checked_with, warn_of_unknown
from causerie.composition.reloading import Reloading
from causerie.composition.service import RunningService, service
from causerie.composition.startup import (
    CannotStart,
    StartAnnouncer,
    bound_sockets,
    hangups,
    reloaded,
    run,
)
from causerie.engines.base import EngineState
from causerie.engines.fleet import Fleet
from causerie.engines.llamacpp.options import available_memory, free_now
from causerie.engines.weights import Progress, Silent
from causerie.http.connection import Listen
from causerie.http.server import Bound
from causerie.http.tasks import owned
from causerie.protocol.alike import alike
from causerie.settings.credentials import Credentials, read_credentials
from causerie.settings.doors import has_accounts
from causerie.settings.entries import ReadWith
from causerie.settings.environment import runtime_folder, variables
from causerie.settings.load import Loaded
from causerie.settings.rules import notes
from causerie.settings.tree import Settings

if TYPE_CHECKING:
    from causerie.hosted.accounts.records import StoredEntry


log = structlog.get_logger(__name__)

_BEAT_SECONDS = 1.0
_LOOK_SECONDS = 1.0  # between two looks for models that commands have fetched or deleted
_UNUSED_SECONDS = 10.0  # between the start and the first model, and after the last one
_IN_USE = frozenset({EngineState.LOADING, EngineState.READY})


async def run_worker(loaded: Loaded, read: ReadWith, place: WorkerPlace) -> None:
    """Serve as one of several workers until a signal comes, or the supervisor has ended."""
    stop = partial(os.kill, os.getpid(), signal.SIGTERM)
    async with following_supervisor(place, stop) as report:
        await run_service(loaded, read, WorkerAnnouncer(loaded.settings, report), place)


@asynccontextmanager
async def following_supervisor(
    place: WorkerPlace, stop: Callable[[], None]
) -> AsyncIterator[Callable[[WorkerReport], None]]:
    """Yield the function that sends a report; ``stop`` is called when the supervisor ends."""
    reader, writer = await asyncio.open_unix_connection(sock=_open_inherited_socket(place.channel))

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
        self._send_report = report

    @property
    def download(self) -> Progress:
        return Silent()

    def first_link(self, token: str) -> None:
        self._send_report(WorkerReport(first_link=token))

    def ready(self, host: str, port: int) -> None:
        self._send_report(WorkerReport(ready=True))


def _open_inherited_socket(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)  # not for the processes that a worker starts
    return socket.socket(fileno=descriptor)


async def run_service(
    loaded: Loaded, read: ReadWith, watcher: StartAnnouncer, place: WorkerPlace | None = None
) -> None:
    """Serve until a signal; ``read`` reads the settings again, with entries of the database.

    Raises :class:`CannotStart`, :class:`SettingsError` or :class:`WeightsError`.
    """
    with hangups() as hangup:
        loaded, credentials, stored = await _read_credentials_and_merge_entries(loaded, read)
        settings = watcher.settings = loaded.settings
        for note in notes(settings):
            log.warning("settings", note=note)
        listening = alike(Listen, settings.server)
        makers = EngineMakers(settings, credentials, watcher)
        budget = settings.engines.memory_budget_bytes
        free = partial(free_now, available_memory())
        with ExitStack() as taken:
            name = None
            if place is None:
                bound = bound_sockets(settings, taken)
            else:
                bound = Bound(*map(_open_inherited_socket, place.sockets))
                name = worker_socket(Path(place.supervisor), place.number).name
            address = bound.service
            async with (
                Fleet(makers.entries(), memory_budget=budget, free_memory=free) as fleet,
                service(settings, fleet, credentials, place) as running,
            ):
                makers.reclaimable = fleet.reclaimable
                accounts = running.front.backed.accounts if running.front is not None else None
                first = place is None or place.number == 1
                link = await accounts.users.first_link() if first and accounts is not None else None
                if link is not None:
                    watcher.first_link(link.token)
                read_checked, models = partial(checked_with, read), partial(makers.renew, fleet)
                entries = accounts.entries if accounts is not None else None
                at = "{}:{}".format(*address.getsockname()[:2])
                reloading = Reloading(loaded, read_checked, running, models, entries, stored, at)
                async with (
                    _mount_pages_and_run_alerts(running, reloading),
                    answering(runtime_folder(variables()), reloading.answer, name) as control,
                    owned(reloaded(hangup, reloading.reload)),
                    owned(_reload_on_cache_change(reloading)),
                    owned(_stop_when_unused(fleet, control if loaded.background else None)),
                ):
                    try:
                        preload = preloaded(settings)
                        await run(running.edge, fleet, preload, listening, watcher, bound)
                    except CannotStart as failure:
                        raise makers.missing or failure from failure


async def _reload_on_cache_change(reloader: Reloading) -> None:
    """Reload the settings when cached models come or go, while all of the cache is served."""
    before = await asyncio.to_thread(weights_cache(reloader.loaded.settings).state)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        settings = reloader.loaded.settings
        state = await asyncio.to_thread(weights_cache(settings).state)
        if settings.weights.serve and state != before:
            _ = await reloader.reload()
        before = state


async def _stop_when_unused(fleet: Fleet, control_socket: Path | None) -> None:
    """Stop a background service when no model has been loaded for a while, and no chat is open.

    It also stops when commands cannot find it any more: its socket is gone.
    """
    used = time.monotonic()
    while control_socket is not None:
        await asyncio.sleep(_LOOK_SECONDS)
        has_models = any(status.state in _IN_USE for status in fleet.status())
        if has_models or await asyncio.to_thread(is_chatting, control_socket.parent):
            used = time.monotonic()
        found = await asyncio.to_thread(control_socket.exists)
        if time.monotonic() - used > _UNUSED_SECONDS or not found:
            os.kill(os.getpid(), signal.SIGTERM)
            return


@asynccontextmanager
async def _mount_pages_and_run_alerts(
    running: RunningService, reloader: Reloading
) -> AsyncIterator[None]:
    front = running.front
    alerting = Alerting(running, reloader, front.backed.conditions if front is not None else None)
    async with AsyncExitStack() as stack:
        if front is None:
            mount_chat_page(running.edge, lambda: running.now.settings)
        else:
            front.mount(running, reloader, alerting.center)
            changed = front.backed.key_cache.configuration_changed
            follow = reloader.follow(front.backed.accounts.entries, changed)
            _ = await stack.enter_async_context(owned(follow))
        mount_docs(running.edge, lambda: running.now.settings)
        _ = await stack.enter_async_context(owned(alerting.watch()))
        _ = await stack.enter_async_context(owned(alerting.deliver()))
        yield


async def _read_credentials_and_merge_entries(
    loaded: Loaded, read_settings: ReadWith
) -> tuple[Loaded, Credentials, Sequence[StoredEntry]]:
    credentials = await asyncio.to_thread(read_credentials, loaded)
    if not has_accounts(loaded.settings):
        return loaded, credentials, ()
    # Imported here: what accounts need takes half of all memory.
    from causerie.composition.account_backend import entries_of  # noqa: PLC0415 - see above

    async with entries_of(loaded.settings.store, credentials.store, complete=True) as entries:
        stored = await entries.every()
    if not stored:
        return loaded, credentials, ()
    warn_of_unknown(stored)
    loaded, credentials = await asyncio.to_thread(checked_with, read_settings, stored, loaded.text)
    return loaded, credentials, stored
