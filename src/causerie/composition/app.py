"""The composition root: builds every part from the settings, starts and stops them.

The one place that names concrete engines and hands settings to those who need
them. Nothing here decides anything about a request.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import structlog

from causerie.composition.control import answering
from causerie.composition.doors import listen
from causerie.composition.engine_makers import EngineMakers, preloaded
from causerie.composition.entries import checked_with, warn_of_unknown
from causerie.composition.reloading import Reloading
from causerie.composition.service import service
from causerie.composition.signals import hangups, reloaded
from causerie.composition.startup import CannotStart, StartAnnouncer, bound_sockets, run
from causerie.composition.worker_place import (
    WorkerAnnouncer,
    WorkerPlace,
    following_supervisor,
)
from causerie.edge.ownership import owned
from causerie.engines.fleet import Fleet
from causerie.settings import Loaded
from causerie.settings.addresses import has_accounts
from causerie.settings.credentials import Credentials, read_credentials
from causerie.settings.entries import ReadWith
from causerie.settings.environment import runtime_folder, variables
from causerie.settings.notes import notes

if TYPE_CHECKING:
    from causerie.accounts.entry import StoredEntry

log = structlog.get_logger(__name__)


async def run_worker(loaded: Loaded, read: ReadWith, place: WorkerPlace) -> None:
    """Serve as one of several workers until a signal comes, or the supervisor has ended."""

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    async with following_supervisor(place, stop) as report:
        await run_service(loaded, read, WorkerAnnouncer(loaded.settings, report), place)


async def run_service(
    loaded: Loaded, read: ReadWith, watcher: StartAnnouncer, place: WorkerPlace | None = None
) -> None:
    """Serve until a signal; ``read`` reads the settings anew, with entries of the database.

    ``place`` is that of this process, if there are several workers.

    Raises :class:`CannotStart`, :class:`SettingsError` for secrets and files
    that cannot be had, or :class:`WeightsError` where no model could be loaded
    for want of weights.
    """
    with hangups() as hangup:
        loaded, credentials, stored = await _with_entries(loaded, read)
        settings = watcher.settings = loaded.settings
        for note in notes(settings):
            log.warning("settings", note=note)
        listening = listen(settings.server)
        makers = EngineMakers(settings, credentials, watcher)
        budget = settings.engines.memory_budget_bytes
        with ExitStack() as taken:
            bound = bound_sockets(settings, taken) if place is None else place.bound()
            address = bound.service
            async with (
                Fleet(makers.entries(), memory_budget=budget) as fleet,
                service(settings, fleet, credentials, place) as running,
            ):
                first = place is None or place.number == 1
                if first and (link := await running.first_link()) is not None:
                    watcher.first_link(link.token)
                reloading = Reloading(
                    loaded, partial(checked_with, read), running, makers.renew(fleet)
                )
                running.configuration, reloading.entries = reloading, stored
                reloading.address = "{}:{}".format(*address.getsockname()[:2])
                name = None if place is None else place.control_socket
                async with (
                    answering(runtime_folder(variables()), reloading.answer, name),
                    owned(reloaded(hangup, reloading.reload)),
                    owned(reloading.follow(running.entries_changed)),
                ):
                    try:
                        preload = preloaded(settings)
                        await run(running.edge, fleet, preload, listening, watcher, bound)
                    except CannotStart as failure:
                        raise makers.missing or failure from failure


async def _with_entries(
    loaded: Loaded, read: ReadWith
) -> tuple[Loaded, Credentials, Sequence[StoredEntry]]:
    """Return the settings with the entries that operators have made, all secrets, and those."""
    credentials = await asyncio.to_thread(read_credentials, loaded)
    if not has_accounts(loaded.settings):
        return loaded, credentials, ()
    # Imported here: what accounts need takes half of all memory.
    from causerie.composition.account_backend import stored_entries  # noqa: PLC0415 - see above

    stored = await stored_entries(loaded.settings.store, credentials.store)
    if not stored:
        return loaded, credentials, ()
    warn_of_unknown(stored)
    loaded, credentials = await asyncio.to_thread(checked_with, read, stored, loaded.text)
    return loaded, credentials, stored
