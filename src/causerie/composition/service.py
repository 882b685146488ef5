"""Composition of a service from the settings and the engines.

Each part is made once and handed to the parts that need it; nothing here decides anything about
a request. At a reload new parts replace the old ones in one step; running requests keep the
parts that they started with. Where requests are traced, some parts are replaced; tracing costs
nothing otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import InitVar, dataclass
from functools import partial
from ipaddress import ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from causerie.access.keys import AccountPorts, KeyDigest, StaticKeys
from causerie.access.limits import MemoryCounters, RateLimiter
from causerie.access.shared_budgets import SharedBudgetStore
from causerie.catalog.catalog import Catalog
from causerie.chat.call_check import CallChecker
from causerie.chat.chat import TextChatOptions
from causerie.chat.compiler import Compiler
from causerie.chat.rendering import Renderers
from causerie.composition.catalog import offered
from causerie.composition.control import WorkerPlace, metrics_of_all
from causerie.composition.doors import door_table, limits, scopes
from causerie.composition.providers import (
    ConnectedProvider,
    ProviderKey,
    checks,
    close,
    connected,
    renewing,
)
from causerie.composition.startup import CannotStart
from causerie.composition.targets import (
    ChatParts,
    Targets,
    chat_options,
    own_models,
    provider_models,
)
from causerie.engines.base import EngineStatus
from causerie.engines.fleet import Fleet
from causerie.http.application import Edge, OwnPaths
from causerie.http.doors import DoorTable
from causerie.http.tasks import owned
from causerie.metering.meter import Meter, RecordSink, RequestLog, UsageSettlement
from causerie.observe.logging import LogBuffer
from causerie.observe.metrics import MetricsCounters
from causerie.pipeline import Pipeline
from causerie.protocol.alike import alike
from causerie.routing.measurements import Measurements
from causerie.routing.router import Router
from causerie.routing.target import Target
from causerie.routing.target_state import Check, TargetStatus, checking_health
from causerie.settings.credentials import NO_CREDENTIALS, Credentials
from causerie.settings.doors import has_accounts
from causerie.settings.problems import Problem, SettingsError
from causerie.settings.store import SharedSettings
from causerie.settings.tree import Settings, Tracing

if TYPE_CHECKING:
    from causerie.composition.account_frontend import AccountFrontend


# As the semantic conventions call them; the other dialects are called as they are here.
_PROVIDERS = {"mistral": "mistral_ai"}


class Traces(Struct, frozen=True):
    meter: Callable[[Sequence[RecordSink], UsageSettlement | None], Meter] = Meter
    targets: Callable[[Mapping[str, Target], Settings], Mapping[str, Target]] = lambda all, _: all
    headers: Callable[[], Mapping[str, str]] | None = None


UNTRACED = Traces()


@asynccontextmanager
async def tracing(settings: Tracing) -> AsyncIterator[Traces]:
    """Trace requests as the settings say, for as long as the block runs."""
    if settings.address is None:
        yield UNTRACED
        return
    from causerie.observe import tracing  # noqa: PLC0415 - memory, for tracing only

    async with tracing.tracer(settings.address, settings.share) as tracer:

        def meter(sinks: Sequence[RecordSink], bookkeeping: UsageSettlement | None) -> Meter:
            return tracing.TracedMeter(sinks, bookkeeping, tracer, follows=settings.follow)

        before: dict[str, tracing.TracedTarget] = {}

        def traced(targets: Mapping[str, Target], settings: Settings) -> Mapping[str, Target]:
            nonlocal before
            facts = _map_target_to_model_and_attributes(settings)
            made: dict[str, tracing.TracedTarget] = {}
            for name, target in targets.items():
                kept = before.get(name)
                if kept is None or kept.target is not target:
                    kept = tracing.TracedTarget(target, tracer, *facts.get(name, (name, {})))
                made[name] = kept
            before = made
            return made

        yield Traces(meter, traced, tracing.current)


def _map_target_to_model_and_attributes(
    settings: Settings,
) -> Mapping[str, tuple[str, Mapping[str, str | int]]]:
    providers = {one.name: one for one in settings.providers}
    facts: dict[str, tuple[str, Mapping[str, str | int]]] = {
        one.id: (one.id, {"gen_ai.provider.name": one.engine, "causerie.target": one.id})
        for one in settings.models
    }
    for target in settings.targets:
        if target.provider is None:
            continue
        provider = providers[target.provider]
        place = urlsplit(provider.base_url)
        facts[target.name] = (
            target.model,
            {
                "gen_ai.provider.name": _PROVIDERS.get(provider.dialect, provider.dialect),
                "server.address": place.hostname or "",
                "server.port": place.port or (443 if place.scheme == "https" else 80),
                "causerie.target": target.name,
            },
        )
    return facts


_FIRST_SECONDS = 2.0


class Distribution(Struct, frozen=True):
    """The counters of limits and budgets, in memory or in a server that replicas share.

    ``budgets`` is ``None`` without a shared server; ``here`` reports whether that answers.
    """

    counters: RateLimiter
    budgets: SharedBudgetStore | None = None
    here: Callable[[], bool | None] = lambda: None


@asynccontextmanager
async def sharing(shared: SharedSettings) -> AsyncIterator[Distribution]:
    """Yield the counters of limits and budgets; reconnect to their server in the background.

    Raises :class:`CannotStart` for a malformed address.
    """
    if shared.url is None:
        yield Distribution(MemoryCounters())
        return
    # Imported here: the server's client takes memory, which a single replica does not need.
    from causerie.distributed import connection, limits  # noqa: PLC0415 - see above

    options = alike(connection.DistributedOptions, shared)
    try:
        here = connection.Replica(shared.url, options)
    except ValueError as error:
        raise CannotStart("shared.url: the address cannot be read") from error
    async with here.running():
        with suppress(TimeoutError):  # said in the log; requests are counted as `away` says
            async with asyncio.timeout(_FIRST_SECONDS):
                await here.wait()
        yield Distribution(
            limits.DistributedCounters(here), limits.DistributedBudgets(here), lambda: here.here
        )


class Prepared(Struct, frozen=True):
    """The parts of new settings whose making can fail."""

    settings: Settings
    doors: DoorTable
    providers: Mapping[str, ConnectedProvider]
    options: Mapping[str, TextChatOptions]
    credentials: Credentials


class InForce(Prepared, frozen=True):
    """Settings, and every part made from them. A reload replaces all of it at once."""

    targets: Targets
    checks: Sequence[Check]
    router: Router
    catalog: Catalog
    pipeline: Pipeline


class _Health(Struct, frozen=True):
    status: Callable[[], Sequence[EngineStatus]]
    targets: Callable[[], Sequence[TargetStatus]]
    shared: Callable[[], bool | None]
    obstacle: Callable[[], str]


@asynccontextmanager
async def service(
    settings: Settings,
    engines: Fleet,
    credentials: Credentials = NO_CREDENTIALS,
    place: WorkerPlace | None = None,
) -> AsyncIterator[RunningService]:
    """Yield the service without its pages; stop what it started at the end.

    Raises :class:`SettingsError` for unusable files, and :class:`CannotStart` for accounts or
    shared limits that cannot be used.
    """
    async with AsyncExitStack() as stack:
        shared = await stack.enter_async_context(sharing(settings.shared))
        front = None
        if has_accounts(settings):
            # Imported here: what accounts need takes half of all memory.
            from causerie.composition import account_backend, account_frontend  # noqa: PLC0415 - see above

            opening = account_backend.account_backend(settings, credentials, shared.budgets, place)
            backed = await stack.enter_async_context(opening)
            front = account_frontend.AccountFrontend(backed, credentials, shared.budgets)
        chat = ChatParts(
            Compiler(reader="causerie.engines.weights.vocabulary:read_vocabulary"), Renderers()
        )
        stack.push_async_callback(chat.stop)
        log_buffer = LogBuffer()
        traces = await stack.enter_async_context(tracing(settings.tracing))
        made = settings, credentials, engines, chat, log_buffer
        running = RunningService(*made, shared, front, traces, place)
        stack.push_async_callback(running.close)
        stack.callback(log_buffer.flush)
        await stack.enter_async_context(running.measurements.kept())
        _ = await stack.enter_async_context(owned(running.check_providers()))
        _ = await stack.enter_async_context(owned(running.call_checker.run()))
        yield running


@dataclass(eq=False)
class RunningService:
    """Parts that stay the same across reloads, and those in force, as ``now``.

    ``place`` is set if there are several workers.
    """

    settings: InitVar[Settings]
    credentials: InitVar[Credentials]
    engines: Fleet
    _chat_parts: ChatParts
    log_buffer: InitVar[LogBuffer]
    _shared: Distribution
    front: AccountFrontend | None = None
    _traces: Traces = UNTRACED
    place: WorkerPlace | None = None

    def __post_init__(
        self, settings: Settings, credentials: Credentials, log_buffer: LogBuffer
    ) -> None:
        self.proxies = tuple(map(ip_network, settings.console.proxies))
        engines, shared, front = self.engines, self._shared, self.front
        self._retired_providers: list[ConnectedProvider] = []
        self._provider_change_event = asyncio.Event()
        health = _Health(
            engines.status,
            lambda: self.now.router.status(),
            shared.here,
            lambda: "" if front is None else front.backed.bookkeeping.ledger.obstacle(),
        )
        self.counters = MetricsCounters(
            engines.status,
            lambda: self.now.targets.waiting(),
            health.targets,
            shared.here,
            lambda: None if front is None else front.backed.store_status(),
        )
        self._request_log = RequestLog(log_buffer)
        sinks: list[RecordSink] = [self.counters, self._request_log]
        self._meter = self._traces.meter(sinks, None if front is None else front.backed.bookkeeping)
        self.call_checker = CallChecker(
            lambda name, classes: self.now.router.count_calls(name, classes),
            lambda name: name in self.now.targets.own,
        )
        self.measurements = Measurements(
            lambda: self.now.router, None if front is None else front.backed.measurements
        )
        self._has_metrics_socket = settings.metrics.listen is not None  # it is never replaced
        prepared = self._prepare_parts(settings, credentials, {})
        self.now = self._build_in_force(prepared, Targets(), Router({}))
        self.edge = Edge(self.now.doors, self.now.pipeline, health, self.counters)
        self._apply_parts_in_force()

    def prepare(self, settings: Settings, credentials: Credentials) -> Prepared:
        return self._prepare_parts(settings, credentials, self.now.providers)

    def replace(self, prepared: Prepared) -> None:
        """Serve by these parts from now on. The engines have the models already."""
        before = self.now
        self.now = self._build_in_force(prepared, before.targets, before.router)
        self._retired_providers = [
            one for one in self._retired_providers if one.client.open_connections
        ]
        for name, one in before.providers.items():
            if prepared.providers.get(name) is not one:
                one.client.retire()
                self._retired_providers.append(one)
        for key in self.changing_keys():
            key.use(prepared.credentials.keys[key.provider.name])
        self._provider_change_event.set()
        self._apply_parts_in_force()

    async def check_providers(self) -> None:
        """Ask the providers in force whether they answer, and renew their keys, for ever."""
        while True:
            self._provider_change_event.clear()
            checks = checking_health(
                lambda name: self.now.router.target_state(name), self.now.checks
            )
            async with checks, renewing(self.changing_keys()):
                await self._provider_change_event.wait()

    def changing_keys(self) -> Sequence[ProviderKey]:
        every = [one.changing_key for one in self.now.providers.values()]
        return [key for key in every if key is not None]

    async def close(self) -> None:
        await close([*self.now.providers.values(), *self._retired_providers])

    def _prepare_parts(
        self, settings: Settings, credentials: Credentials, before: Mapping[str, ConnectedProvider]
    ) -> Prepared:
        if has_accounts(settings) and self.front is None:
            words = "is for keys of accounts, which the service was started without; restart it"
            raise SettingsError([Problem("", "doors", words)])
        return Prepared(
            settings,
            door_table(settings, self.proxies),
            connected(settings, credentials, before, self._traces.headers, self.place),
            chat_options(settings),
            credentials,
        )

    def _apply_parts_in_force(self) -> None:
        settings, pipeline = self.now.settings, self.now.pipeline
        keys, place = settings.metrics.keys, self.place
        self._request_log.shows_door = len(settings.doors) > 1
        if self.front is not None:
            self.front.replace(settings, self.now.credentials)
        self.edge.replace(
            self.now.doors,
            pipeline,
            limits=limits(settings.server),
            own=OwnPaths(
                docs=settings.server.docs,
                metrics_keys=None if keys is None else tuple(map(KeyDigest.parse, keys)),
                metrics_apart=self._has_metrics_socket,
                metrics_of_all=None if place is None else partial(metrics_of_all, place),
            ),
            teller=self.front.backed.statements if self.front is not None else None,
        )

    def _build_in_force(self, prepared: Prepared, old_targets: Targets, router: Router) -> InForce:
        settings, front = prepared.settings, self.front
        own = own_models(settings, prepared.options, self.engines, self._chat_parts, old_targets)
        remote = provider_models(settings, prepared.providers, old_targets)
        targets = Targets(own, remote)
        traced = self._traces.targets(targets.every(), settings)
        router = router.renewed(traced, targets.admission_queues())
        catalog = offered(
            settings,
            own,
            router.target_stats,
            lambda name: prepared.providers[name].provider.listed,
            self.measurements.figures,
        )
        members = None
        if front is not None:
            backed = front.backed
            members = AccountPorts(backed.key_cache, backed.bookkeeping, backed.free_days)
        pipeline = Pipeline(
            keys=StaticKeys(),
            catalog=catalog,
            limits=self._shared.counters,
            scopes=scopes(settings, targets.is_busy),
            router=router,
            meter=self._meter,
            members=members,
            check_calls=self.call_checker.take,
        )
        return alike(
            InForce,
            prepared,
            targets=targets,
            checks=checks(settings, prepared.providers),
            router=router,
            catalog=catalog,
            pipeline=pipeline,
        )
