"""Entrances for people and their programs: accounts, the console, and the management API.

Imported only if there are accounts: its dependencies take more memory than all the rest of a
gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_network

import msgspec
from msgspec import structs

from causerie.access.keys import KeyDigest
from causerie.accounts.bounds import Budget, BudgetPeriod, LimitsAndBudgets
from causerie.accounts.entry import StoredEntry
from causerie.accounts.free_days import FreeOptions
from causerie.accounts.links import LinkKind, NewLink
from causerie.accounts.prices import ModelPrices, TokenPrice
from causerie.accounts.shared_budgets import SharedBudgetStore
from causerie.composition.account_backend import AccountBackend, account_backend
from causerie.composition.branding import branding, logos
from causerie.composition.front_page import leading_to
from causerie.composition.identity import identity_providers
from causerie.composition.mail import mail_server
from causerie.composition.operations import LiveOperations
from causerie.composition.providers import private_networks
from causerie.composition.service import RunningService
from causerie.composition.service_view import LiveServiceView
from causerie.composition.worker_place import WorkerPlace
from causerie.console.application import ConsoleApplication, OpenPages, SignUp
from causerie.console.origin import Site
from causerie.console.public_chat import PublicChatOptions
from causerie.edge.application import Edge
from causerie.edge.ownership import owned
from causerie.identity.provider import OidcProvider
from causerie.mail.outbox import Outbox
from causerie.management.application import Management
from causerie.management.managers import OperatorKeys
from causerie.operations.examinations import Examinations
from causerie.operations.results import Results
from causerie.protocol.numbers import money
from causerie.settings import Settings
from causerie.settings import price as configured_price
from causerie.settings.branding import UNLIMITED, ConsoleSettings
from causerie.settings.credentials import Credentials
from causerie.settings.mail import Mail
from causerie.settings.public_chat import PublicChatSettings


@asynccontextmanager
async def entered(
    settings: Settings,
    shared_budgets: SharedBudgetStore | None,
    credentials: Credentials,
    place: WorkerPlace | None = None,
) -> AsyncIterator[AccountFrontend]:
    """Accounts, ready to be used; raises :class:`CannotStart` where they cannot be.

    ``shared_budgets`` is where replicas hold budgets, if they do. ``place`` is that of this
    process, if there are several workers.
    """
    backend = account_backend(settings.store, credentials.store, shared_budgets, place)
    async with backend as hosted:
        results = Results(hosted.probe_results)
        outbox = _outbox(settings.mail, credentials.mail)
        async with AsyncExitStack() as stack:
            examinations = await stack.enter_async_context(Examinations(results, hosted.clock))
            if outbox is not None:
                _ = await stack.enter_async_context(owned(outbox.deliver()))
            yield AccountFrontend(hosted, examinations, outbox, shared_budgets)


class AccountFrontend:
    """Accounts, and the ways to manage them."""

    def __init__(
        self,
        hosted: AccountBackend,
        examinations: Examinations,
        outbox: Outbox | None = None,
        shared: SharedBudgetStore | None = None,
    ) -> None:
        self._hosted = hosted
        self.bookkeeping = hosted.bookkeeping
        self.key_cache = hosted.key_cache
        self.free_days = hosted.free_days
        self.statements = hosted.statements
        self.conditions = hosted.conditions
        self._outbox = outbox
        self._shared = shared
        self._examinations = examinations
        self._managers = OperatorKeys(hosted.key_cache)
        self._providers: tuple[OidcProvider, ...] = ()

    async def first_link(self) -> NewLink | None:
        """A link that makes the first operator, where nobody has an account yet."""
        return await self._hosted.accounts.users.first_link()

    async def stored_entries(self) -> Sequence[StoredEntry]:
        """The entries of the configuration that operators have made."""
        return await self._hosted.accounts.entries.every()

    @property
    def entries_changed(self) -> asyncio.Event:
        """The event that is set when an entry has changed, here or in another process."""
        return self._hosted.key_cache.configuration_changed

    def replace(self, settings: Settings, credentials: Credentials) -> None:
        models = prices(settings) | dearest(settings)
        self.bookkeeping.prices = ModelPrices(models, endpoint_prices(settings))
        self._providers = identity_providers(
            settings.identity_providers, credentials, private_networks(settings.server)
        )
        self._hosted.free_days.options = FreeOptions(
            requests=settings.free.requests_per_day,
            paid_requests=settings.free.paid_requests_per_day,
            paid_from=money(settings.free.paid_from),
        )
        self._hosted.accounts.users.new_project_bounds = _new_project_bounds(settings.console)
        self._managers.replace(list(map(KeyDigest.parse, settings.console.operator_keys)))

    def mount(self, edge: Edge, parts: RunningService) -> None:
        """Answer at `/api` and `/console`."""
        options = parts.settings.console
        if not options.enabled:
            return
        accounts, clock = self._hosted.accounts, self._hosted.clock
        operations = LiveOperations(parts, accounts, self._examinations, clock)
        most = options.api_requests_per_minute
        management = Management(accounts, self._managers, clock, _link, operations, most)
        edge.mount("/api", management.answer)
        console = ConsoleApplication(
            accounts,
            LiveServiceView(parts, accounts.projects, operations),
            Site(
                options.address or "",
                tuple(map(ip_network, options.proxies)),
                branding(parts.settings.branding),
                logos(parts.settings.branding),
            ),
            clock=clock,
            open_to=OpenPages(
                SignUp(self._outbox) if options.sign_up else None,
                options.public_rankings,
                _public_chat(parts.settings.public_chat),
                self._shared,
            ),
            providers=lambda: self._providers,
        )
        edge.mount("/console", console.answer, console.refuse, address=options.address or "")
        edge.mount("/", leading_to(f"{options.address or ''}/console/"))


def _new_project_bounds(console: ConsoleSettings) -> LimitsAndBudgets:
    amount = console.new_project_budget
    if amount == UNLIMITED:
        return LimitsAndBudgets()
    return LimitsAndBudgets(budgets=(Budget(money(amount), BudgetPeriod.MONTH),))


def _outbox(mail: Mail, password: str | None) -> Outbox | None:
    """Return the outbox for letters to people, if the settings name a server."""
    server = mail_server(mail, password)
    return None if server is None else Outbox(server)


def _public_chat(chat: PublicChatSettings) -> PublicChatOptions:
    bounds = {**structs.asdict(chat), "models": frozenset(chat.models)}
    return PublicChatOptions(**bounds)


def _link(_: LinkKind, token: str) -> str:
    """Return the URL path of a one-time link; the part behind the # is sent to no server."""
    return f"/console/link#{token}"


def prices(settings: Settings) -> dict[str, TokenPrice]:
    """Return the price of each model and alias."""
    models = {one.id: one.price for one in settings.models}
    models |= {one.id: one.price for one in settings.aliases}
    return {name: _price(each) for name, each in models.items()}


def endpoint_prices(settings: Settings) -> dict[tuple[str, str], TokenPrice]:
    """Return the price of each endpoint of the catalog, by model and target."""
    return {
        (entry.id, endpoint.name): _price(endpoint.price)
        for entry in settings.catalog
        for endpoint in entry.endpoints
    }


def dearest(settings: Settings) -> dict[str, TokenPrice]:
    """The most that the use of each entry of the catalog can cost."""
    made: dict[str, TokenPrice] = {}
    for entry in settings.catalog:
        every = [_price(endpoint.price) for endpoint in entry.endpoints]
        made[entry.id] = TokenPrice(
            prompt=max(one.prompt for one in every),
            completion=max(one.dearest_output for one in every),
            request=max(one.request for one in every),
        )
    return made


def _price(price: configured_price.PriceSettings) -> TokenPrice:
    return TokenPrice(**msgspec.structs.asdict(price.by_token))
