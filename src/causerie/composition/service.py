"""Composition of a service from the settings and the engines.

Each part is made once and handed to the parts that need it; nothing here decides anything about
a request. At a reload new parts replace the old ones in one step; running requests keep the
parts that they started with.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from causerie.access.keys import AccountPorts, StaticKeys
from causerie.access.limits import RateLimiter
from causerie.access.shared_budgets import SharedBudgetStore
from causerie.access.windows import MemoryCounters
from causerie.catalog.catalog import Catalog
from causerie.chat.call_check import CallChecker
from causerie.chat.chat import TextChatOptions
from causerie.chat.compiler import Compiler
from causerie.chat.rendering import Renderers
from causerie.composition.alerting import Alerting
from causerie.composition.catalog import offered
from causerie.composition.doors import door_table, limits, own_paths, scopes
from causerie.composition.pages import DocsMount, FrontPage
from causerie.composition.providers import ConnectedProvider, checks, close, connected
from causerie.composition.startup import CannotStart
from causerie.composition.targets import (
    ChatParts,
    OwnModel,
    Targets,
    chat_options,
    own_models,
    provider_models,
)
from causerie.composition.tracing import UNTRACED, Traces, tracing
from causerie.composition.worker import WorkerPlace
from causerie.engines.base import EngineStatus
from causerie.engines.fleet import Fleet
from causerie.http.application import Edge
from causerie.http.doors import DoorTable
from causerie.http.tasks import owned
from causerie.metering.meter import RecordSink
from causerie.metering.request_log import RequestLog
from causerie.observe.logging import LogBuffer
from causerie.observe.metrics import MetricsCounters
from causerie.pipeline import Pipeline
from causerie.routing.router import Router
from causerie.routing.target_state import Check, HealthChecker, TargetState, TargetStatus
from causerie.settings import Problem, Settings, SettingsError, SharedSettings
from causerie.settings.credentials import NO_CREDENTIALS, Credentials
from causerie.settings.doors import has_accounts

if TYPE_CHECKING:
    from causerie.composition.account_frontend import AccountFrontend
    from causerie.composition.reloading import Reloading
    from causerie.hosted.accounts.keys import NewLink
    from causerie.hosted.accounts.ports import StoredEntry


# Counting of limits and budgets: here, or in a server that replicas share.

_FIRST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """Counters of limits and budgets.

    ``budgets`` is ``None`` if each process counts them for itself. ``here`` reports whether the
    shared server answers; ``None``: nothing is shared.
    """

    counters: RateLimiter
    budgets: SharedBudgetStore | None = None
    here: Callable[[], bool | None] = lambda: None


@asynccontextmanager
async def sharing(shared: SharedSettings) -> AsyncIterator[Distribution]:
    """Yield the counters, for as long as the service runs.

    If the server is away when the service starts, the start waits for a moment, and then
    reconnection goes on in the background for ever. Raises :class:`CannotStart` for a malformed
    address.
    """
    if shared.url is None:
        yield Distribution(MemoryCounters())
        return
    # Imported here: the server's client takes memory, which a single replica does not need.
    from causerie.distributed import budgets, connection, limits  # noqa: PLC0415 - see above

    reach = connection.ConnectionOptions(shared.reply_seconds, ca_file=shared.ca_file)
    options = connection.DistributedOptions(away=shared.away, prefix=shared.prefix, line=reach)
    try:
        here = connection.Replica(shared.url, options)
    except ValueError as error:
        raise CannotStart("shared.url: the address cannot be read") from error
    async with here.running():
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await here.wait()
        except TimeoutError:
            pass  # said in the log; requests are counted as `away` says
        yield Distribution(
            limits.DistributedCounters(here),
            budgets.DistributedBudgets(here),
            lambda: here.here,
        )


# Composition of a service from the settings and the engines.
#
# Each part is made once and handed to the parts that need it; nothing here decides anything about a
# request. At a reload new parts replace the old ones in one step; running requests keep the parts
# that they started with.

_VOCABULARY_READER = "causerie.engines.weights.vocabulary:read_vocabulary"


@dataclass(frozen=True, slots=True)
class Prepared:
    """The parts of new settings that may fail, made already."""

    settings: Settings
    doors: DoorTable
    providers: Mapping[str, ConnectedProvider]
    options: Mapping[str, TextChatOptions]
    credentials: Credentials


@asynccontextmanager
async def service(
    settings: Settings,
    engines: Fleet,
    credentials: Credentials = NO_CREDENTIALS,
    place: WorkerPlace | None = None,
) -> AsyncIterator[RunningService]:
    """The service, ready to be served; leaving ends what it started.

    ``place`` is that of this process, if there are several workers.

    Raises :class:`SettingsError` where files that the settings name cannot be used, and
    :class:`CannotStart` where accounts, or shared limits, cannot be.
    """
    async with AsyncExitStack() as stack:
        shared = await stack.enter_async_context(sharing(settings.shared))
        front = None
        if has_accounts(settings):
            from causerie.composition.account_frontend import entered  # noqa: PLC0415 - half of all memory, for accounts

            accounts = entered(settings, shared.budgets, credentials, place)
            front = await stack.enter_async_context(accounts)
        parts = ChatParts(Compiler(reader=_VOCABULARY_READER), Renderers())
        stack.push_async_callback(parts.stop)
        log_buffer = LogBuffer()
        traces = await stack.enter_async_context(tracing(settings.tracing))
        running = RunningService(engines, parts, log_buffer, shared, front, traces)
        running.place = place
        stack.push_async_callback(running.close)
        stack.callback(log_buffer.flush)
        running.replace(running.prepare(settings, credentials))
        for work in running.background_tasks():
            _ = await stack.enter_async_context(owned(work))
        _ = await stack.enter_async_context(owned(running.call_checker.run()))
        yield running


class RunningService:
    """The parts in force. ``configuration`` is unset where nobody can read it anew."""

    def __init__(
        self,
        engines: Fleet,
        parts: ChatParts,
        log_buffer: LogBuffer,
        shared: Distribution,
        front: AccountFrontend | None = None,
        traces: Traces = UNTRACED,
    ) -> None:
        self.place: WorkerPlace | None = None  # among several workers
        self._front = front
        self._traces = traces
        self._engines = engines
        self._parts = parts
        self._targets = Targets()
        self._router = Router({})
        self._retired: list[ConnectedProvider] = []
        self._checks: Sequence[Check] = ()
        self._changed = asyncio.Event()
        self._shared = shared
        self.counters = MetricsCounters(engines.status, self._waiting, self.targets, shared.here)
        self._request_log = RequestLog(log_buffer)
        sinks: list[RecordSink] = [self.counters, self._request_log]
        self._meter = traces.meter(sinks, None if front is None else front.bookkeeping)
        self.call_checker = CallChecker(
            lambda name, classes: self._router.count_calls(name, classes),
            lambda name: name in self._targets.own,
        )
        self._edge: Edge | None = None
        self._metrics_apart = False  # as it was at the start, like their socket
        self.settings, self.credentials = Settings(), NO_CREDENTIALS
        self.catalog = Catalog(())
        self.configuration: Reloading | None = None
        self.alerting = Alerting(self, front.conditions if front is not None else None)

    @property
    def edge(self) -> Edge:
        """Return the handler of requests, once there are parts."""
        if self._edge is None:
            raise RuntimeError("there are no parts yet; replace() gives them")
        return self._edge

    async def first_link(self) -> NewLink | None:
        """A link that makes the first operator, where there are accounts and none has it yet."""
        return None if self._front is None else await self._front.first_link()

    async def stored_entries(self) -> Sequence[StoredEntry]:
        """The entries of the configuration that operators have made."""
        return () if self._front is None else await self._front.stored_entries()

    @property
    def entries_changed(self) -> asyncio.Event:
        """The event that is set when an entry has changed, here or in another process."""
        return asyncio.Event() if self._front is None else self._front.entries_changed

    def prepare(self, settings: Settings, credentials: Credentials) -> Prepared:
        """Read and make what may fail. Blocks; may run in a thread.

        Raises :class:`SettingsError`.
        """
        if has_accounts(settings) and self._front is None:
            words = "is for keys of accounts, which the service was started without; restart it"
            raise SettingsError([Problem("", "doors", words)])
        return Prepared(
            settings,
            door_table(settings),
            connected(
                settings, credentials, self._targets.providers, self._traces.headers, self.place
            ),
            chat_options(settings),
            credentials,
        )

    def replace(self, prepared: Prepared) -> None:
        """Serve by these from now on. The engines have the models already."""
        settings, before = prepared.settings, self._targets
        self.settings, self.credentials = settings, prepared.credentials
        self.doors = prepared.doors
        self._request_log.shows_door = len(settings.doors) > 1
        own = own_models(settings, prepared.options, self._engines, self._parts, before)
        remote = provider_models(settings, prepared.providers, before)
        self._targets = Targets(own, remote, prepared.providers)
        every = self._traces.targets(self._targets.every(), settings)
        self._router = self._router.renewed(every, self._targets.admission_queues())
        self._retire(before)
        self._checks = checks(settings, prepared.providers)
        self._changed.set()
        self.catalog = offered(
            settings, own, lambda name: self._router.target_stats(name), self._listed_by
        )
        self.pipeline = pipeline = Pipeline(
            keys=StaticKeys(),
            catalog=self.catalog,
            limits=self._shared.counters,
            scopes=scopes(settings, self._busy),
            router=self._router,
            meter=self._meter,
            members=self._members(settings, prepared.credentials),
            check_calls=self.call_checker.take,
        )
        server = settings.server
        if self._edge is None:
            self._metrics_apart = settings.metrics.listen is not None
            self._edge = Edge(prepared.doors, pipeline, self, self.counters)
            if self._front is not None:
                self._front.mount(self._edge, self)
            else:
                FrontPage(lambda: self.settings).mount(self._edge)
            DocsMount(lambda: self.settings).mount(self._edge)
        self._edge.replace(
            prepared.doors,
            pipeline,
            limits=limits(server),
            own=own_paths(settings, self.place, metrics_apart=self._metrics_apart),
            market=pipeline,
            teller=self._front.statements if self._front is not None else None,
        )

    def background_tasks(self) -> Iterator[Coroutine[None, None, None]]:
        """Give what one process of the service does all the time, each for ever."""
        yield self._watch()
        yield self.alerting.watch()
        yield self.alerting.deliver()

    async def _watch(self) -> None:
        """Ask providers whether they are there, for ever; those of the parts in force."""
        while True:
            self._changed.clear()
            async with HealthChecker(lambda name: self._router.target_state(name), self._checks):
                await self._changed.wait()

    async def close(self) -> None:
        """Close every connection to providers."""
        await close([*self._targets.providers.values(), *self._retired])

    def _members(self, settings: Settings, credentials: Credentials) -> AccountPorts | None:
        if self._front is None:
            return None
        self._front.replace(settings, credentials)
        return AccountPorts(self._front.key_cache, self._front.bookkeeping, self._front.free_days)

    def _retire(self, before: Targets) -> None:
        """Providers that have changed or gone keep no connection beyond its reply."""
        self._retired = [one for one in self._retired if one.client.open_connections]
        for name, one in before.providers.items():
            if self._targets.providers.get(name) is not one:
                one.client.retire()
                self._retired.append(one)

    def status(self) -> Sequence[EngineStatus]:
        return self._engines.status()

    def targets(self) -> Sequence[TargetStatus]:
        """All targets of routing as they stand now."""
        return self._router.status()

    def shared(self) -> bool | None:
        """Return true if the server answers in which replicas count; ``None``: there is none."""
        return self._shared.here()

    def obstacle(self) -> str:
        """Return why no use could be recorded now, or an empty text."""
        return "" if self._front is None else self._front.bookkeeping.obstacle()

    def target_states(self) -> Sequence[TargetState]:
        """Return what routing knows of all targets."""
        return self._router.target_states()

    def target_state(self, target: str) -> TargetState | None:
        """Return what routing knows of a target."""
        return self._router.target_state(target)

    def own_model(self, name: str) -> OwnModel | None:
        """A model of our own."""
        return self._targets.own.get(name)

    def provider(self, name: str) -> ConnectedProvider | None:
        return self._targets.providers.get(name)

    def _listed_by(self, provider: str) -> Sequence[str]:
        return self._targets.providers[provider].provider.listed

    def _busy(self, target: str) -> bool:
        own = self._targets.own.get(target)
        if own is not None:
            return not own.admission_queue.spares
        remote = self._targets.remote.get(target)
        return remote is not None and not remote.chat.provider.slots.spares

    def _waiting(self) -> list[tuple[str, int]]:
        return [(id, own.admission_queue.waiting) for id, own in self._targets.own.items()]
