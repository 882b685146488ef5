"""What a service is made of, put together from the settings and the engines.

Each part is made once and handed to whoever needs it; nothing here decides
anything about a request. At a reload new parts take the place of the old ones
in one step; requests under way keep those that they came to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import msgspec

from causerie import settings as configured
from causerie.access.free import FreeScopes
from causerie.access.keys import KeyDigest, StaticKeys
from causerie.access.quota import Rates, Scope, ScopeKind
from causerie.accounts.bookkeeping import Bookkeeping
from causerie.accounts.free_days import FreeDays
from causerie.accounts.links import NewLink
from causerie.accounts.prices import Price, Prices
from causerie.accounts.statement import Statements
from causerie.assembly.configuration import Configuration
from causerie.assembly.endpoints import Connected, checks, close, connected
from causerie.assembly.offers import offered
from causerie.assembly.sharing import Sharing, sharing
from causerie.assembly.targets import ChatParts, Targets, chat_options, own_models, remote_models
from causerie.assembly.tracing import UNTRACED, Traces, tracing
from causerie.catalog.catalog import Catalog
from causerie.chat.chat import ChatOptions
from causerie.chat.compiler import Compiler
from causerie.chat.renderers import Renderers
from causerie.edge import doors
from causerie.edge.application import Edge, OwnPaths
from causerie.edge.body import BodyLimits
from causerie.edge.doors import DoorTable
from causerie.edge.openai import Limits
from causerie.edge.ownership import owned
from causerie.edge.server import Listen
from causerie.engines.base import EngineStatus
from causerie.journal import Journal
from causerie.members import Members, Ring
from causerie.metering.counters import Counters
from causerie.metering.meter import RecordSink
from causerie.metering.request_log import RequestLog
from causerie.pipeline import Pipeline, Scopes
from causerie.protocol.standing import Standing, Stretch
from causerie.protocol.variants import free_name
from causerie.routing.health import Check, Health
from causerie.routing.router import Router
from causerie.routing.seat import SeatStatus
from causerie.settings import Problem, Server, Settings, SettingsError
from causerie.settings import price as configured_price
from causerie.settings.addresses import Way, default_way, has_accounts, host_names, ways
from causerie.settings.credentials import NO_CREDENTIALS, Credentials
from causerie.startup import Engines

_VOCABULARY_READER = "causerie.engines.weights.vocabulary:read_vocabulary"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What of new settings may fail, done already."""

    settings: Settings
    doors: DoorTable
    endpoints: Mapping[str, Connected]
    options: Mapping[str, ChatOptions]
    credentials: Credentials


@asynccontextmanager
async def service(
    settings: Settings, engines: Engines, credentials: Credentials = NO_CREDENTIALS
) -> AsyncIterator[Service]:
    """The service, ready to be served; leaving ends what it started.

    Raises :class:`SettingsError` where files that the settings name cannot be
    used, and :class:`CannotStart` where accounts, or shared limits, cannot be.
    """
    async with AsyncExitStack() as stack:
        shared = await stack.enter_async_context(sharing(settings.shared))
        front = None
        if has_accounts(settings):
            from causerie.front import entered  # noqa: PLC0415 - half of all memory, for accounts

            accounts = entered(settings, shared.budgets, credentials)
            front = await stack.enter_async_context(accounts)
        parts = ChatParts(Compiler(reader=_VOCABULARY_READER), Renderers())
        stack.push_async_callback(parts.stop)
        journal = Journal()
        traces = await stack.enter_async_context(tracing(settings.tracing))
        running = Service(engines, parts, journal, shared, front, traces)
        stack.push_async_callback(running.close)
        stack.callback(journal.flush)
        running.replace(running.prepare(settings, credentials))
        _ = await stack.enter_async_context(owned(running.watch()))
        yield running


class Front(Protocol):
    """Accounts, and what people and their programs come to."""

    @property
    def books(self) -> Bookkeeping: ...
    @property
    def ring(self) -> Ring: ...
    @property
    def free_days(self) -> FreeDays: ...
    @property
    def statements(self) -> Statements: ...
    async def first_link(self) -> NewLink | None:
        """A link that makes the first operator, where nobody has an account yet."""
        ...

    def replace(self, settings: Settings, credentials: Credentials) -> None:
        """Go by these settings from now on."""
        ...

    def mount(self, edge: Edge, parts: Service) -> None:
        """Answer at the paths of pages and management."""
        ...


class Service:
    """The parts in force. ``configuration`` is unset where nobody can read it anew."""

    def __init__(
        self,
        engines: Engines,
        parts: ChatParts,
        journal: Journal,
        shared: Sharing,
        front: Front | None = None,
        traces: Traces = UNTRACED,
    ) -> None:
        self._front = front
        self._traces = traces
        self._engines = engines
        self._parts = parts
        self._targets = Targets()
        self._router = Router({})
        self._retired: list[Connected] = []
        self._checks: Sequence[Check] = ()
        self._changed = asyncio.Event()
        self._shared = shared
        self._counters = Counters(engines.status, self._waiting, self.targets, shared.here)
        sinks: list[RecordSink] = [self._counters, RequestLog(journal)]
        self._meter = traces.meter(sinks, front.books if front is not None else None)
        self._edge: Edge | None = None
        self._metrics_apart = False  # as it was at the start, like their socket
        self.settings = Settings()
        self.catalog = Catalog(())
        self.configuration: Configuration | None = None

    @property
    def edge(self) -> Edge:
        """What answers, once there are parts to answer by."""
        if self._edge is None:
            raise RuntimeError("there are no parts yet; replace() gives them")
        return self._edge

    async def first_link(self) -> NewLink | None:
        """A link that makes the first operator, where there are accounts and none has it yet."""
        return None if self._front is None else await self._front.first_link()

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
            connected(settings, credentials, self._targets.endpoints, self._traces.headers),
            chat_options(settings),
            credentials,
        )

    def replace(self, prepared: Prepared) -> None:
        """Serve by these from now on. The engines have the models already."""
        settings, before = prepared.settings, self._targets
        self.settings = settings
        self.doors = prepared.doors
        own = own_models(settings, prepared.options, self._engines, self._parts, before)
        remote = remote_models(settings, prepared.endpoints, before)
        self._targets = Targets(own, remote, prepared.endpoints)
        every = self._traces.targets(self._targets.every(), settings)
        self._router = self._router.renewed(every, self._targets.gates())
        self._retire(before)
        self._checks = checks(settings, prepared.endpoints)
        self._changed.set()
        self.catalog = offered(settings, own, lambda name: self._router.standing(name))
        self.pipeline = pipeline = Pipeline(
            keys=StaticKeys(),
            catalog=self.catalog,
            limits=self._shared.counters,
            scopes=scopes(settings, self._busy),
            router=self._router,
            meter=self._meter,
            members=self._members(settings, prepared.credentials),
        )
        server = settings.server
        if self._edge is None:
            self._metrics_apart = settings.metrics.listen is not None
            self._edge = Edge(prepared.doors, pipeline, self, self._counters)
            if self._front is not None:
                self._front.mount(self._edge, self)
        self._edge.replace(
            prepared.doors,
            pipeline,
            limits=limits(server),
            own=own_paths(settings, metrics_apart=self._metrics_apart),
            market=pipeline,
            teller=self._front.statements if self._front is not None else None,
        )

    async def watch(self) -> None:
        """Ask endpoints whether they are there, for ever; those of the parts in force."""
        while True:
            self._changed.clear()
            async with Health(lambda name: self._router.seat(name), self._checks):
                await self._changed.wait()

    async def close(self) -> None:
        """Close every connection to endpoints."""
        await close([*self._targets.endpoints.values(), *self._retired])

    def _members(self, settings: Settings, credentials: Credentials) -> Members | None:
        if self._front is None:
            return None
        self._front.replace(settings, credentials)
        models = prices(settings) | dearest(settings)
        self._front.books.prices = Prices(models, offer_prices(settings))
        return Members(self._front.ring, self._front.books, self._front.free_days)

    def _retire(self, before: Targets) -> None:
        """Endpoints that have changed or gone keep no connection beyond its reply."""
        self._retired = [one for one in self._retired if one.client.open_connections]
        for name, one in before.endpoints.items():
            if self._targets.endpoints.get(name) is not one:
                one.client.retire()
                self._retired.append(one)

    def status(self) -> Sequence[EngineStatus]:
        """Our engines as they are now."""
        return self._engines.status()

    def targets(self) -> Sequence[SeatStatus]:
        """All targets of routing as they stand now."""
        return self._router.status()

    def shared(self) -> bool | None:
        """Whether the server answers in which replicas count; ``None``: there is none."""
        return self._shared.here()

    def history(self, target: str) -> Sequence[Stretch]:
        """The last day of a target, in quarters of an hour."""
        return self._router.history(target)

    def standing(self, target: str) -> Standing | None:
        """How a target stands, with what was measured of it."""
        return self._router.standing(target)

    def endpoint(self, name: str) -> Connected | None:
        """An endpoint that others run."""
        return self._targets.endpoints.get(name)

    def _busy(self, target: str) -> bool:
        own = self._targets.own.get(target)
        if own is not None:
            return not own.gate.spares
        remote = self._targets.remote.get(target)
        return remote is not None and not remote.chat.endpoint.spares

    def _waiting(self) -> list[tuple[str, int]]:
        return [(id, own.gate.waiting) for id, own in self._targets.own.items()]


def door_table(settings: Settings) -> DoorTable:
    """The doors as the edge knows them."""
    return DoorTable(
        [_door(way) for way in ways(settings)],
        default=default_way(settings).door.name,
        domains=[settings.server.public_host],
        names=host_names(settings),
    )


def own_paths(settings: Settings, *, metrics_apart: bool) -> OwnPaths:
    """What the service answers beside its doors."""
    keys = settings.metrics.keys
    return OwnPaths(
        docs=settings.server.docs,
        metrics_keys=tuple(map(KeyDigest.parse, keys)) if keys is not None else None,
        metrics_apart=metrics_apart,
    )


def limits(server: Server) -> Limits:
    """What a request may be."""
    return Limits(
        body=BodyLimits(max_bytes=server.max_body_bytes, seconds=server.body_seconds),
        max_messages=server.max_messages,
        max_nesting=server.max_nesting,
        ping_seconds=server.ping_seconds,
    )


def scopes(settings: Settings, busy: Callable[[str], bool]) -> Scopes:
    """What is limited of doors and models; ``busy`` are targets that free requests leave alone."""
    models = {one.id: one.limits for one in settings.models}
    models |= {one.id: one.limits for one in settings.aliases}
    models |= {one.id: one.limits for one in settings.catalog}
    doors = {way.door.name: way.door.limits for way in ways(settings)}
    doors |= {free_name(name): each for name, each in doors.items()}
    rates = Rates(
        requests_per_minute=settings.free.requests_per_minute, concurrent=settings.free.concurrent
    )
    free = FreeScopes(rates, busy)
    return Scopes(_limited("model", models), _limited("door", doors), free)


def _limited(kind: ScopeKind, limits: Mapping[str, configured.Limits]) -> Mapping[str, Scope]:
    made: dict[str, Scope] = {}
    for name, each in limits.items():
        rates = Rates(**msgspec.structs.asdict(each))
        if rates != Rates():
            made[name] = Scope(kind, name, rates)
    return made


def prices(settings: Settings) -> dict[str, Price]:
    """What the use of each model and alias costs."""
    models = {one.id: one.price for one in settings.models}
    models |= {one.id: one.price for one in settings.aliases}
    return {name: _price(each) for name, each in models.items()}


def offer_prices(settings: Settings) -> dict[tuple[str, str], Price]:
    """What each offer of the catalog costs, by the model and who answers."""
    return {
        (entry.id, offer.name): _price(offer.price)
        for entry in settings.catalog
        for offer in entry.offers
    }


def dearest(settings: Settings) -> dict[str, Price]:
    """The most that the use of each entry of the catalog can cost."""
    made: dict[str, Price] = {}
    for entry in settings.catalog:
        every = [_price(offer.price) for offer in entry.offers]
        made[entry.id] = Price(
            prompt=max(one.prompt for one in every),
            completion=max(one.dearest_output for one in every),
            request=max(one.request for one in every),
        )
    return made


def _price(price: configured_price.Price) -> Price:
    return Price(**msgspec.structs.asdict(price.by_token))


def listen(server: Server) -> Listen:
    """Where to listen, and how to stop."""
    return Listen(
        server.host,
        server.port,
        drain_seconds=server.drain_seconds,
        busy_poll_seconds=server.busy_poll_seconds,
    )


def _door(way: Way) -> doors.Door:
    keys = way.door.keys
    return doors.Door(
        name=way.door.name,
        prefix=way.prefix,
        kind=way.door.kind,
        hosts=frozenset(way.hosts),
        keys=tuple(map(KeyDigest.parse, keys)) if isinstance(keys, tuple) else None,
        models=frozenset(way.models),
        accounts=keys == "accounts",
        reasoning_object=way.door.reasoning or way.door.kind == "router",
        reject_unknown=way.door.unknown_params == "reject",
        open_catalog=way.door.kind == "router",
    )
