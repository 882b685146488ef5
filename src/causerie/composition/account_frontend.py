"""Console, sign-in, management API and SCIM of accounts, and account policies from the settings.

Imported only if there are accounts: its dependencies take more memory than all the rest of a
gateway."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
from msgspec import Struct, structs, to_builtins

from causerie.access.allowed import Access, AccessRule, Permissions
from causerie.access.keys import Caller, KeyDigest
from causerie.access.shared_budgets import SharedBudgetStore
from causerie.catalog.catalog import WILDCARD, DoorCatalog, Entry, entries_of, named_entry
from causerie.catalog.model import Tariff, highest
from causerie.composition.account_backend import AccountBackend, present_time
from causerie.composition.alerting import alert_options
from causerie.composition.catalog import target_tariffs, tariff
from causerie.composition.doors import branding, leading_to
from causerie.composition.operations import LiveOperations
from causerie.composition.providers import private_networks
from causerie.composition.reloading import Reloading
from causerie.composition.service import RunningService
from causerie.engines.base import EngineStatus
from causerie.errors import NotFound
from causerie.hosted.accounts.authorization import LOGGERS, Beginning, Policies
from causerie.hosted.accounts.bookkeeping import ModelPrices
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets
from causerie.hosted.accounts.key_cache import admitted
from causerie.hosted.accounts.keys import LinkKind
from causerie.hosted.accounts.people import (
    GroupClaims,
    GroupGrant,
    Role,
    RoleColumn,
    User,
    actor_of,
)
from causerie.hosted.accounts.projects import Projects
from causerie.hosted.accounts.records import AuditEntry
from causerie.hosted.accounts.tokens import SignInPolicy
from causerie.hosted.console.application import ConsoleApplication
from causerie.hosted.console.public_chat import PublicChatOptions
from causerie.hosted.console.request_context import OpenPages, Site
from causerie.hosted.console.service_view import DoorView, ModelVerdict
from causerie.hosted.identity.provider import IdentityHttp, OidcProvider, ProviderOptions
from causerie.hosted.management.application import Management
from causerie.hosted.management.scim import Scim
from causerie.hosted.operations.ports import Operations
from causerie.hosted.payments.stripe import Sales, Stripe
from causerie.http.addresses import IpNetwork
from causerie.http.exchange import Exchange
from causerie.observe.alerts import AlertCenter, Condition
from causerie.protocol.alike import alike
from causerie.protocol.numbers import money
from causerie.protocol.targets import TimeBucket
from causerie.routing.target_state import TargetStatus
from causerie.settings.console import (
    UNLIMITED,
    IdentityProvider,
    PolicySettings,
    policy_of,
    read_logo,
)
from causerie.settings.credentials import Credentials
from causerie.settings.doors import DoorAddress, default_address, door_addresses
from causerie.settings.prices import Prices, without_price
from causerie.settings.tree import Settings
from causerie.settings.values import LimitSettings

_LOGGERS = {"admins": LOGGERS, "owners": frozenset({RoleColumn.OWNER}), "nobody": frozenset()}


def policies(settings: Settings) -> Policies:
    """Return the policies of accounts: with what new people and projects begin."""
    people = policy_of(settings.policies, "people")
    projects = policy_of(settings.policies, "projects")
    of_project, amount = _build_limits_and_access(projects), settings.console.new_project_budget
    personal: Beginning | None = None
    credits = money(settings.console.new_project_credits)
    if people.personal_projects == "sign_up":
        personal = of_project
        bound = amount != "0" or (projects.budget is None and not credits)
        if amount != UNLIMITED and bound:
            own = LimitsAndBudgets(budgets=(Budget(money(amount), BudgetPeriod.MONTH),))
            personal = Beginning(own.added_to(of_project.bounds), of_project.access)
    return Policies(
        person=_build_limits_and_access(people),
        project=of_project,
        personal_project=personal,
        personal_project_name=people.personal_project_name,
        personal_role=Role(people.role),
        personal_credits=credits,
        own_projects=settings.console.projects_per_person,
        loggers=frozenset[RoleColumn](_LOGGERS[projects.request_logging]),
    )


def _build_limits_and_access(policy: PolicySettings) -> Beginning:
    budgets: tuple[Budget, ...] = ()
    if policy.budget is not None:
        period = BudgetPeriod(policy.period)
        budgets = (Budget(money(policy.budget), period, soft=policy.soft),)
    limits = (alike(Limit, policy.limits),) if policy.limits != LimitSettings() else ()
    set_here: dict[str, Any] = {
        name: money(given) if isinstance(given, str) else frozenset(given)
        for name in Access.__struct_fields__
        if (given := getattr(policy, name)) is not None
    }
    access = Access(**set_here)
    return Beginning(LimitsAndBudgets(limits, budgets), access)


_log = structlog.get_logger(__name__)


def identity_providers(
    listed: Sequence[IdentityProvider],
    credentials: Credentials,
    networks: Sequence[IpNetwork] | None = None,
) -> tuple[OidcProvider, ...]:
    return tuple(
        OidcProvider(
            alike(
                ProviderOptions,
                each,
                title=each.title or each.name,
                client_secret=credentials.clients.get(each.name),
                domains=frozenset(each.allowed_domains) if each.sign_up else frozenset(),
                trusted_domains=frozenset(each.trusted_domains),
                verified_claim=each.email_verification or "",
                provisioned=bool(each.scim_keys),
                join=each.join_accounts,
                groups=[
                    alike(
                        GroupGrant,
                        group,
                        project_id=group.project or "",
                        role=Role(group.role),
                        rights=frozenset(group.rights),
                    )
                    for group in each.groups
                ],
            ),
            IdentityHttp(ca_file=each.ca_file, networks=networks),
            now=time.time,  # noqa: TID251 - id tokens carry times of the calendar
        )
        for each in listed
    )


def log_audit(entry: AuditEntry) -> None:
    told = {name: getattr(entry, name) for name in ("action", "actor", "subject", "project_id")}
    _log.info("audit", **told, details=dict(entry.details))


def sign_in_policy(settings: Settings) -> SignInPolicy:
    console, rechecked = settings.console, settings.identity_providers
    return SignInPolicy(
        console.password_sign_in,
        console.two_factor == "required",
        timedelta(hours=console.session_hours),
        timedelta(hours=console.session_idle_hours),
        {
            each.issuer: timedelta(minutes=each.recheck_minutes)
            for each in rechecked
            if each.recheck_minutes is not None
        },
    )


class LiveServiceView(Struct):
    """Implements the console's :class:`ServiceView` by the parts of the service in force."""

    _service: RunningService
    _projects: Projects
    operations: Operations

    def doors(self) -> Sequence[DoorView]:
        return [DoorView(way.door.name, way.prefix) for way in self._list_account_doors()]

    def models(
        self, door: str | None = None, rules: Sequence[AccessRule] = ()
    ) -> Sequence[dict[str, Any]]:
        permissions = Permissions(rules)
        entries: list[dict[str, Any]] = []
        for model, every in self._entries_with_names(door):
            names = [
                one for one in every if not permissions.verdict(named_entry(model, one)).refusal
            ]
            for entry in entries_of(model, names):
                name = model.card.name if entry.id == model.id else entry.id
                entries.append({"name": name, **to_builtins(entry)})
        return entries

    def unpriced(self) -> Sequence[str]:
        return without_price(self._service.now.settings)

    def provider_costs(self) -> Mapping[tuple[str, str], Tariff]:
        settings = self._service.now.settings
        prices = Prices(settings)
        # As published, or by the price list; models of this service cost nothing here.
        found = {
            (entry.id, each.name): Tariff() if each.cost is None else tariff(each.cost)
            for entry in settings.catalog
            for each in entry.endpoints
            if each.cost is not None or each.provider is None
        }
        found |= {(each.id, each.id): Tariff() for each in settings.models}
        for alias in settings.aliases:
            unpriced = structs.replace(alias, price=None)
            for each in alias.targets:
                price = prices.of(unpriced, structs.replace(each, price=None))
                if price is not None and (price.rows or each.provider is None):
                    found[alias.id, each.name] = tariff(price.price) if price.rows else Tariff()
        return found

    def verdicts(self, rules: Sequence[AccessRule]) -> Sequence[ModelVerdict]:
        permissions, found = Permissions(rules), []
        for model, names in self._entries_with_names():
            providers = list(dict.fromkeys(one.provider for one in model.offers))
            for name in names:
                verdict = permissions.verdict(named_entry(model, name))
                left = model.targets if verdict.targets is None else sorted(verdict.targets)
                whole = verdict.targets is None
                found.append(ModelVerdict(name, verdict.refusal, left, providers, whole))
        return found

    def _entries_with_names(self, door: str | None = None) -> Iterator[tuple[Entry, Sequence[str]]]:
        found = (
            each for each in self._list_account_doors() if door is None or each.door.name == door
        )
        shown = frozenset(id for way in found for id in way.models)
        return self._service.now.catalog.shown(shown)

    def market(self) -> DoorCatalog | None:
        if (way := self._find_router_door()) is None:
            return None
        models, measured = frozenset(way.models), self._service.measurements
        catalog = self._service.now.catalog
        return DoorCatalog(way.prefix, models, catalog, measured.history, measured.days)

    def policy(self, provider: str) -> Mapping[str, Any]:
        every = self._service.now.settings.providers
        [*found] = (structs.asdict(each.policy) for each in every if each.name == provider)
        return {name: value for each in found for name, value in each.items() if value is not None}

    def answering(self, model: str) -> Sequence[str]:
        return self._service.now.catalog.resolve(None, model).targets

    async def complete(
        self, exchange: Exchange, user: User, project_id: str, *, routed: bool = False
    ) -> None:
        grant = await self._projects.ask(actor_of(user), project_id)
        ways = sorted(
            self._list_account_doors(), key=lambda way: routed and way.door.kind != "router"
        )
        doors = [way.door.name for way in ways]
        if not doors:
            raise NotFound("There is no door for keys of accounts.")
        open_doors = [
            name for name in doors if all(each.access.opens(name) for each in grant.access)
        ]
        caller = admitted(grant, (open_doors or doors)[0])
        await self._service.edge.converse(exchange, caller)

    async def talk(self, exchange: Exchange, body: bytes, model: str) -> None:
        if (way := self._find_router_door()) is None:
            raise NotFound("There is no door to the catalog.")
        models = frozenset({model})
        caller = Caller(key="", name="visitor", door=way.door.name, models=models)
        await self._service.edge.converse(exchange, caller, body)

    def status(self) -> Sequence[EngineStatus]:
        return self._service.engines.status()

    def targets(self) -> Sequence[TargetStatus]:
        return self._service.now.router.status()

    def history(self, target: str) -> Sequence[TimeBucket]:
        return self._service.measurements.history(target)

    def requests(self, target: str) -> int:
        return sum(one.answered + one.failed for one in self.history(target))

    def worker(self) -> tuple[int, int] | None:
        place = self._service.place
        return None if place is None else (place.number, place.count)

    def _find_router_door(self) -> DoorAddress | None:
        ways = door_addresses(self._service.now.settings)
        found = [way for way in ways if way.door.kind == "router"]
        return min(found, key=lambda one: one.door.keys != "accounts", default=None)

    def _list_account_doors(self) -> list[DoorAddress]:
        settings = self._service.now.settings
        usual = default_address(settings)
        return sorted(
            (way for way in door_addresses(settings) if way.door.keys == "accounts"),
            key=lambda way: (way.own, way.door.kind != "hosted", way != usual),
        )


@dataclass(eq=False)
class AccountFrontend:
    """Mounts the pages and APIs of the accounts ``backed``, and applies settings to those."""

    backed: AccountBackend
    _credentials: Credentials
    _shared_budgets: SharedBudgetStore | None = None

    def __post_init__(self) -> None:
        self._operator_key_digests: Sequence[KeyDigest] = ()
        self._oidc_provider_list: tuple[OidcProvider, ...] = ()
        self._group_claims_by_scim_key: Mapping[KeyDigest, GroupClaims] = {}

    def replace(self, settings: Settings, credentials: Credentials) -> None:
        self.backed.bookkeeping.prices = model_prices(settings)
        listed, free, server = settings.identity_providers, settings.free, settings.server
        self._oidc_provider_list = identity_providers(listed, credentials, private_networks(server))
        self._group_claims_by_scim_key = {
            KeyDigest.parse(key): provider.options.directory
            for each, provider in zip(listed, self._oidc_provider_list, strict=True)
            for key in each.scim_keys
        }
        days = self.backed.free_days
        days.requests, days.paid_requests = free.requests_per_day, free.paid_requests_per_day
        days.paid_from = money(free.paid_from)
        self.backed.conditions.low_balance = money(settings.payments.low_balance)
        governing = policies(settings)
        self.backed.accounts.govern(governing)
        self.backed.bookkeeping.logs_contents = bool(governing.loggers)
        self.backed.store.on_audit = log_audit if settings.logging.audit else None
        self.backed.accounts.sign_in.policy = sign_in_policy(settings)
        kept, retention = settings.retention, self.backed.retention
        retention.requests_days, retention.audit_days = kept.requests_days, kept.audit_days
        retention.contents_days = kept.contents_days
        self.backed.accounts.recordings.most_days = kept.contents_days
        self._operator_key_digests = tuple(map(KeyDigest.parse, settings.console.operator_keys))

    def mount(self, running: RunningService, configuration: Reloading, alerts: AlertCenter) -> None:
        settings, edge = running.now.settings, running.edge
        options = settings.console
        if not options.enabled:
            return
        accounts, clock, probes = self.backed.accounts, present_time, self.backed.examinations
        operations = LiveOperations(running, configuration, alerts, accounts, probes, clock)
        most = options.api_requests_per_minute

        def link_path(_: LinkKind, token: str) -> str:
            return f"/console/link#{token}"  # the part behind the # is sent to no server

        management = Management(
            *(accounts, self.backed.key_cache.manager, clock, link_path, operations, most),
            operator_keys=lambda: self._operator_key_digests,
            proxies=running.proxies,
        )
        edge.mount("/api", management.answer)
        site = Site(
            options.address or "",
            running.proxies,
            branding(settings.branding),
            {name: read_logo(text) for name, text in settings.branding.logos.items()},
            settings.server.docs,
        )
        scim = Scim(accounts.provisioning, lambda: self._group_claims_by_scim_key, site.base, most)
        edge.mount("/scim", scim.answer, scim.refuse)
        sales = self._build_credit_sales(running, alerts)
        if sales.stripe is not None:
            edge.mount("/webhooks", sales.stripe.answer)
        console = ConsoleApplication(
            accounts,
            LiveServiceView(running, accounts.projects, operations),
            site,
            clock=clock,
            open_to=self._build_public_page_options(settings, sales),
            providers=lambda: self._oidc_provider_list,
        )
        edge.mount("/console", console.answer, console.refuse, address=options.address or "")
        edge.mount("/", leading_to(f"{options.address or ''}/console/", settings.server))

    def _build_public_page_options(self, settings: Settings, sales: Sales) -> OpenPages:
        options, chat = settings.console, structs.asdict(settings.public_chat)
        return OpenPages(
            options.sign_up,
            self.backed.outbox if options.address else None,
            options.public_rankings,
            sales,
            PublicChatOptions(**chat | {"models": frozenset(chat["models"])}),
            self._shared_budgets,
            options.public_status,
            bool(alert_options(settings).owners),
            frozenset(options.public_apps),
        )

    def _build_credit_sales(self, service: RunningService, alert_center: AlertCenter) -> Sales:
        settings, secrets = service.now.settings, self._credentials.payments
        options, stripe = settings.payments, None

        async def alert(condition: Condition) -> None:
            await alert_center.observe([condition], alert_options(service.now.settings))

        if options.stripe_key is not None:
            stripe = Stripe(
                url=options.stripe_url,
                key=secrets["payments.stripe_key"],
                webhook_secret=secrets["payments.stripe_webhook_secret"],
                service_name=settings.branding.name,
                http=IdentityHttp(),
                credits=self.backed.accounts.credits,
                clock=present_time,
                alert=alert,
            )
        amounts = map(money, (options.least, options.most, options.low_balance))
        return Sales(stripe, options.page, [*map(money, options.amounts)], *amounts)


def model_prices(settings: Settings) -> ModelPrices:
    """Return the tariffs that requests are charged at, by model and by target."""
    prices = Prices(settings)
    models = {one.id: tariff(one.price) for one in settings.models}
    endpoints: dict[tuple[str, str], Tariff] = {}
    wildcards = {}
    by_target: dict[str, Mapping[str, Tariff]] = {
        entry.id: {each.name: tariff(each.price) for each in entry.endpoints}
        for entry in settings.catalog
    }
    for alias in settings.aliases:
        if alias.id.endswith(WILDCARD):
            wildcards[alias.id] = partial(target_tariffs, prices, alias)
        else:
            by_target[alias.id] = target_tariffs(prices, alias).by_target
    for id, tariffs in by_target.items():
        models[id] = highest(tariffs.values())
        endpoints |= {(id, target): each for target, each in tariffs.items()}
    return ModelPrices(models, endpoints, wildcards)
