"""The settings read anew: checked as a whole, then in force in one step, or not at all.

Knows the order of the steps; who reads the settings, and what is made of them,
is handed in.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec
import structlog

import causerie
from causerie.composition.control import ServiceFacts, running_models
from causerie.composition.entries import refuse_unreadable, warn_of_unknown
from causerie.composition.service import Prepared, RunningService
from causerie.composition.startup import load_to_the_end
from causerie.engines.base import EngineFailed
from causerie.errors import StoreUnavailable
from causerie.settings.credentials import Credentials
from causerie.settings.doors import open_doors
from causerie.settings.load import Loaded
from causerie.settings.problems import Problem, SettingsError, dotted
from causerie.settings.rules import worker_rules
from causerie.settings.tree import Settings

if TYPE_CHECKING:
    from causerie.hosted.accounts.operating import Entries
    from causerie.hosted.accounts.records import StoredEntry


_AGAIN_SECONDS = 0.5
log = structlog.get_logger(__name__)

_READ_AT_START = (
    "server.host",
    "server.port",
    "server.workers",
    "server.busy_poll_seconds",
    "server.drain_seconds",
    "server.shutdown_delay_seconds",
    "metrics.listen",
    "logging.level",
    "logging.format",
    "console.enabled",
    "console.sign_up",
    "console.address",
    "console.proxies",
    "console.api_requests_per_minute",
)
_READ_AT_START_WITH_SECRETS = ("store", "shared", "mail", "branding", "payments", "tracing")


class ReloadOutcome(msgspec.Struct, frozen=True):
    """Outcome of a reload: its ``problems``, or ``notes`` on changes that need a restart.

    That of a load has ``problems`` alone.
    """

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    doors: int = 0
    models: int = 0
    aliases: int = 0
    entries: int = 0

    @property
    def applied(self) -> bool:
        return not self.problems


@dataclass(eq=False)
class Reloading:
    """Reloads the configuration file and the operators' entries, one reload at a time.

    ``loaded`` and ``stored`` are in force. ``models`` gives the fleet the models of new settings.
    """

    loaded: Loaded
    _load_settings: Callable[[Sequence[StoredEntry]], tuple[Loaded, Credentials]]
    _service: RunningService
    _replace_models: Callable[[Settings, Credentials], None]
    _entries: Entries | None = None
    stored: Sequence[StoredEntry] = ()
    address: str = ""
    failed: bool = False
    """True if the last reload left the settings as they were."""

    def __post_init__(self) -> None:
        self._startup_configuration = self.loaded
        self._reload_lock = asyncio.Lock()

    async def answer(self, asked: str) -> object:
        """Answer a command's request; raise :class:`ValueError` if it is not known."""
        match asked.split(" ", 1):
            case ["reload"]:
                return await self.reload()
            case ["metrics"]:
                return self._service.counters.exposition().decode()
            case ["load", model]:
                return await self._run_load_command(model)
            case ["unload", model]:
                with suppress(KeyError):  # it has gone meanwhile
                    await self._service.engines.unload(model)
            case ["stop"]:
                os.kill(os.getpid(), signal.SIGTERM)  # handled by the loop, after this answer
            case ["facts"]:
                pass
            case _:
                raise ValueError(f"nobody knows how to {asked[:40]}")
        loaded, running = self.loaded, self._service
        return ServiceFacts(
            os.getpid(),
            str(loaded.file.absolute()) if loaded.file else None,
            self.address,
            running_models(running.now.settings.models, running.engines.status()),
            bool(loaded.settings.weights.serve),
            loaded.background,
            causerie.__version__,
        )

    async def _run_load_command(self, model_id: str) -> ReloadOutcome:
        try:
            await load_to_the_end(self._service.engines, model_id)
        except KeyError:
            return ReloadOutcome((f"the service has no model {model_id}",))
        except EngineFailed as error:
            return ReloadOutcome((str(error),))
        return ReloadOutcome()

    async def reload(self) -> ReloadOutcome:
        async with self._reload_lock:
            try:
                outcome = await self._reload_now()
            except SettingsError as error:
                outcome = ReloadOutcome(problems=tuple(str(problem) for problem in error.problems))
            except Exception as error:  # the true top: whatever it is, the service goes on
                log.exception("reload failed")
                outcome = ReloadOutcome(problems=(f"the reload failed: {type(error).__name__}",))
        self.failed = not outcome.applied
        facts = {name: value for name, value in msgspec.structs.asdict(outcome).items() if value}
        if outcome.applied:
            log.info("configuration reloaded", **facts)
        else:
            log.error("configuration not reloaded, nothing has changed", **facts)
        return outcome

    async def _reload_now(self) -> ReloadOutcome:
        stored = await self._entries.every() if self._entries is not None else ()
        warn_of_unknown(stored)
        refuse_unreadable(stored)
        loaded, prepared = await asyncio.to_thread(self._prepare_reload, stored)
        settings = prepared.settings
        # From here on nothing waits: a request sees all of the new parts or none.
        self._replace_models(settings, prepared.credentials)
        self._service.replace(prepared)
        self.loaded, self.stored = loaded, stored
        return ReloadOutcome(
            notes=tuple(waits_for_restart(self._startup_configuration.settings, settings)),
            doors=len(prepared.doors.doors),
            models=len(settings.models),
            aliases=len(settings.aliases),
            entries=len(settings.catalog),
        )

    def read(self, stored: Sequence[StoredEntry]) -> Loaded:
        """Return the settings with these entries; raise :class:`SettingsError`. Blocks."""
        return self._load_settings(stored)[0]

    async def follow(self, entries: Entries, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            try:
                differ = list(await entries.every()) != list(self.stored)
            except StoreUnavailable:
                changed.set()
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if differ:
                await self.reload()

    def _prepare_reload(self, stored_entries: Sequence[StoredEntry]) -> tuple[Loaded, Prepared]:
        file = self.loaded.file
        if file is not None and file.is_fifo():
            advice = "is a pipe, which was read at the start; a reload needs a file"
            raise SettingsError([Problem(str(file), "", advice)])
        loaded, credentials = self._load_settings(stored_entries)
        if problems := list(refusals(self._startup_configuration, loaded)):
            raise SettingsError(problems)
        return loaded, self._service.prepare(loaded.settings, credentials)


def refusals(started: Loaded, wanted: Loaded) -> Iterator[Problem]:
    """Yield a problem for each setting that a start may introduce but a reload may not."""
    if wanted.blank and not started.blank:
        advice = "is gone, or sets nothing any more; for what is there by default, start again"
        yield Problem(str(started.file), "", advice)
    for rule in open_doors(wanted.settings, started.settings.server.host):
        advice = f"{rule.advice} (it is listened on until the service is started again)"
        yield Problem(wanted.where(rule.path), dotted(rule.path), advice)
    before = started.settings
    server = msgspec.structs.replace(wanted.settings.server, workers=before.server.workers)
    running = msgspec.structs.replace(wanted.settings, server=server, shared=before.shared)
    for rule in worker_rules(running):
        advice = f"{rule.advice} (both stay until the service is started again)"
        yield Problem(wanted.where(rule.path), dotted(rule.path), advice)


def waits_for_restart(running: Settings, wanted: Settings) -> list[str]:
    """Return a note for each changed setting that takes effect only after a restart."""
    notes = []
    for name in (*_READ_AT_START, *_READ_AT_START_WITH_SECRETS):
        before, now = attrgetter(name)(running), attrgetter(name)(wanted)
        if before == now:
            continue
        if name in _READ_AT_START:
            stays = f"{name} stays {before} until the service is started again"
            notes.append(f"{stays}; the configuration says {now}")
        else:
            notes.append(f"{name} stays as it was until the service is started again")
    return notes
