"""The service as its operators see to it: providers, probes, alerts, and the routes of requests.

Always by the parts that are in force. Of a provider operators see what the configuration says, how
it stands, and what probes saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass
from datetime import date, datetime
from functools import lru_cache
from types import SimpleNamespace
from typing import Self
from urllib.parse import urlsplit

from msgspec import Struct, convert, structs

from causerie.access.keys import Caller
from causerie.catalog.model import OWN_PROVIDER
from causerie.composition.alerting import receivers
from causerie.composition.catalog import parameters, tariff
from causerie.composition.configuring import LiveConfiguration
from causerie.composition.doors import limits
from causerie.composition.reloading import Reloading
from causerie.composition.service import InForce, RunningService
from causerie.errors import InvalidRequest, NotFound, ServiceError, Unauthenticated
from causerie.hosted.accounts.accounts import Accounts
from causerie.hosted.accounts.authorization import AccountService
from causerie.hosted.accounts.bounds import UNBOUNDED
from causerie.hosted.accounts.key_cache import admitted
from causerie.hosted.accounts.keys import Grant, KeyState
from causerie.hosted.accounts.people import Action, Actor
from causerie.hosted.operations import ports, probes
from causerie.hosted.operations.configuring import EntryView, EntryWish
from causerie.hosted.operations.explanation import (
    ExplainedRefusal,
    PriceTexts,
    RoutingExplanation,
    explanation,
    prices,
)
from causerie.hosted.operations.provider_models import provider_in_force
from causerie.http.api import parsing_rules
from causerie.http.doors import MountedDoor
from causerie.http.event_loop import Turns
from causerie.observe.alerts import AlertCenter
from causerie.protocol.alike import alike
from causerie.protocol.known_fields import KNOWN, Known
from causerie.protocol.targets import UNKNOWN_STATS
from causerie.providers.target import ProviderTarget
from causerie.settings.alerts import ALERT_NAMES
from causerie.settings.decode import joined_by_or
from causerie.settings.doors import default_address
from causerie.settings.provider import ProviderModelSettings, ProviderSettings
from causerie.settings.toml import table_text
from causerie.settings.tree import Settings
from causerie.shapes.chat_completions.reader import parse

_UNUSED = SimpleNamespace(state="unused", in_flight=0, failures=0, wait_seconds=0.0, reason="")


class ProviderViews:
    """Makes operators' views of providers by the parts in force; lets other tasks run meanwhile."""

    def __init__(self, now: InForce) -> None:
        self._settings = now.settings
        self._router = now.router
        self._target_status_by_name = {one.name: one for one in now.router.status()}
        self._yielder_to_other_tasks = Turns()
        self._target_models_by_provider: dict[str | None, dict[str, str]] = {}  # of each provider
        self._servings_by_target: dict[str, list[ports.Serving]] = {}

    @classmethod
    async def of(cls, now: InForce) -> Self:
        views, settings = cls(now), now.settings
        for target in settings.targets:
            models = views._target_models_by_provider.setdefault(target.provider, {})
            models[target.name] = target.model
            await views._yielder_to_other_tasks.pause()
        for name, serving in _iterate_target_servings(settings):
            views._servings_by_target.setdefault(name, []).append(serving)
            await views._yielder_to_other_tasks.pause()
        return views

    async def provider(
        self,
        one: ProviderSettings,
        results: Mapping[str, probes.Kept],
        probe: probes.Examination | None,
    ) -> ports.ProviderView:
        known = {each.id: each for each in one.models}
        targets, models = [], []
        for name, model in self._target_models_by_provider.get(one.name, {}).items():
            targets.append(self._view_target(name, model))
            await self._yielder_to_other_tasks.pause()
        for id in dict.fromkeys([*(each.model for each in targets), *known]):
            told = known.get(id, ProviderModelSettings(id=id))
            models.append(self._view_probed_model(told, results.get(id, probes.NOTHING)))
            await self._yielder_to_other_tasks.pause()
        shown = probe_view(probe) if probe is not None else None
        return alike(
            ports.ProviderView, one, targets=tuple(targets), models=tuple(models), probe=shown
        )

    def own(self) -> ports.ProviderView | None:
        if not self._settings.models:
            return None
        return ports.ProviderView(
            name=OWN_PROVIDER,
            base_url="",
            dialect=OWN_PROVIDER,
            max_concurrent=None,
            targets=tuple(self._view_target(one.id, one.id) for one in self._settings.models),
            models=tuple(
                alike(
                    ports.ProbedModelView,
                    ProviderModelSettings(id=one.id, context_length=one.context, continues=True),
                    evidence="runs here",
                    cells=tuple(probes.own_row()),
                    cost=None,
                )
                for one in self._settings.models
            ),
        )

    def _view_target(self, target_name: str, model_id: str) -> ports.TargetView:
        stats = self._router.target_stats(target_name) or UNKNOWN_STATS
        first, speed = stats.first_token, stats.speed
        return alike(
            ports.TargetView,
            self._target_status_by_name.get(target_name, _UNUSED),
            name=target_name,
            model=model_id,
            first_token_seconds=first.p50 if first is not None else None,
            slow_first_token_seconds=first.p99 if first is not None else None,
            tokens_per_second=speed.p50 if speed is not None else None,
            uptime_half_hour=stats.uptime_half_hour,
            uptime_day=stats.uptime_day,
            serves=tuple(self._servings_by_target.get(target_name, ())),
        )

    def _view_probed_model(
        self, model: ProviderModelSettings, kept_results: probes.Kept
    ) -> ports.ProbedModelView:
        newest = kept_results.newest
        results = (each for each in (kept_results.used, newest) if each is not None)
        used = next((each for each in results if not changes(model, each)), None)
        return alike(
            ports.ProbedModelView,
            model,
            evidence=used.evidence if used is not None else "",
            cells=tuple(probes.row(model.supported_parameters, parameters(model), used)),
            cost=probe_cost(model.context_length),
            used=used,
            newest=newest,
            changes=tuple(changes(model, newest)) if newest is not None else (),
        )


def changes(known: ProviderModelSettings, result: probes.Result) -> list[ports.Change]:
    before, now = known.supported_parameters, frozenset(result.supported_parameters)
    found = []
    if before is None:
        found.append(
            ports.Change(what="parameters", before="not known", now=f"{len(now)} supported")
        )
    else:
        for name in sorted(now.symmetric_difference(before)):
            words = ("no", "yes") if name in now else ("yes", "no")
            found.append(ports.Change(what=name, before=words[0], now=words[1]))
    for what in ("context_length", "thinking", "continues"):
        old, new = getattr(known, what), getattr(result, what)
        if new is not None and old != new:
            found.append(ports.Change(what=what, before=_format_value(old), now=_format_value(new)))
    return found


def probe_view(one: probes.Examination) -> ports.ProbeView:
    findings = one.result.findings if one.quick and one.result is not None else ()
    cost = alike(ports.ProbeCost, one.cost, words=str(one.cost))
    return alike(ports.ProbeView, one, cost=cost, findings=findings)


@lru_cache(maxsize=256)
def probe_cost(context_length: int | None) -> ports.ProbeCost:
    """Return the most that a probe of a model can cost, which only depends on its context."""
    cost = probes.price(context_length)
    return alike(ports.ProbeCost, cost, words=str(cost))


def _iterate_target_servings(settings: Settings) -> Iterator[tuple[str, ports.Serving]]:
    for own in settings.models:
        yield own.id, ports.Serving(model=own.id)
    for alias in settings.aliases:
        for target in alias.targets:
            yield target.name, alike(ports.Serving, target, model=alias.id, price=None)
    for entry in settings.catalog:
        for endpoint in entry.endpoints:
            money: PriceTexts = prices(tariff(endpoint.price))
            yield endpoint.name, ports.Serving(model=entry.id, price=money)


def _format_value(setting: date | str | int | bool | None) -> str:
    if setting is None:
        return "not known"
    if isinstance(setting, bool):
        return "yes" if setting else "no"
    return f"{setting:,}" if isinstance(setting, int) else str(setting)


_SHOWN = 50


class LiveAlerts(Struct):
    """Implements :class:`AlertDesk` for one service, always by the parts that are in force."""

    _service: RunningService
    _alert_center: AlertCenter
    _account_service: AccountService

    async def see(self, actor: Actor) -> ports.AlertsView:
        await self._account_service.require(actor, Action.SERVICE_SEE)
        book, settings = self._alert_center.book, self._service.now.settings
        # The path of an address can hold a secret, so only its host is shown.
        listed = [
            *((each, "webhook", (urlsplit(each.url).netloc,)) for each in settings.alerts.webhooks),
            *((each, "email", each.to) for each in settings.alerts.emails),
        ]
        return ports.AlertsView(
            kinds=ALERT_NAMES,
            channels=tuple(
                alike(ports.AlertChannel, each, type=type, to=to) for each, type, to in listed
            ),
            rules=tuple(_describe_alert_rules(settings)),
            alerts=convert(
                (await book.alerts())[:_SHOWN], tuple[ports.AlertView, ...], from_attributes=True
            ),
            deliveries=convert(
                await book.deliveries(_SHOWN), tuple[ports.AlertDelivery, ...], from_attributes=True
            ),
        )

    async def test(self, actor: Actor, channel: str) -> ports.ChannelTest:
        await self._account_service.require(actor, Action.ALERTS_TEST)
        settings = self._service.now.settings
        mine = [each for each in receivers(settings.alerts) if each.channel == channel]
        if not mine:
            raise NotFound("There is no such channel.", code="not_found")
        words = f"This is a test of the channel {channel}"
        outcomes = [await self._alert_center.test(each, words) for each in mine]
        delivered = all(each.delivered for each in outcomes)
        outcome = "delivered" if delivered else "failed"
        await self._account_service.record(
            actor, Action.ALERTS_TEST, "alerts.test", channel, outcome=outcome
        )
        answers = tuple(each.words for each in outcomes)
        return ports.ChannelTest(channel=channel, delivered=delivered, answers=answers)


def _describe_alert_rules(settings: Settings) -> Iterator[ports.AlertRule]:
    alerts = settings.alerts
    if alerts.budget_percent:
        shares = joined_by_or(f"{each} %" for each in sorted(alerts.budget_percent))
        words = f"A key, a project or a person has used {shares} of a budget, once in each period."
        yield ports.AlertRule(kind="budget", words=words)
    yield ports.AlertRule(
        kind="provider", words="A provider fails and gets no requests, and when it is back."
    )
    seconds = alerts.error_window_seconds
    window = f"{seconds / 60:g} minutes" if seconds >= 120 else f"{seconds:g} s"
    yield ports.AlertRule(
        kind="error_rate",
        words=f"{alerts.error_percent} % or more of a model's requests fail within "
        f"{window}, of at least {alerts.error_requests}.",
    )
    if alerts.key_expiry_days:
        days = joined_by_or(str(each) for each in sorted(alerts.key_expiry_days, reverse=True))
        reminds = settings.mail.host is not None and alerts.remind_owners
        too = " The person that it belongs to gets an e-mail." if reminds else ""
        yield ports.AlertRule(kind="key_expiry", words=f"A key expires within {days} days.{too}")
    yield ports.AlertRule(
        kind="job",
        words="An engine has failed, a worker process has ended, a changed configuration does not "
        "hold, the database cannot be reached, or a payment at Stripe cannot be counted.",
    )


@dataclass(eq=False)
class LiveOperations:
    """Implements :class:`Operations` for one service; ``examinations`` own the probes."""

    _service: RunningService
    reloading: InitVar[Reloading]
    center: InitVar[AlertCenter]
    _accounts: Accounts
    _examinations: probes.Examinations
    _clock: Callable[[], datetime]

    def __post_init__(self, reloading: Reloading, center: AlertCenter) -> None:
        self.configuration = LiveConfiguration(self._service, reloading, self._accounts.entries)
        self.alerts = LiveAlerts(self._service, center, self._accounts.entries)

    def doors(self) -> Sequence[str]:
        names = [door.name for door in self._service.now.doors.doors]
        usual = default_address(self._service.now.settings).door.name
        return sorted(names, key=lambda name: name != usual)

    def models(self) -> Sequence[str]:
        return [entry.id for entry in self._service.now.catalog.visible(None)]

    async def providers(self, actor: Actor) -> Sequence[ports.ProviderView]:
        await self._accounts.entries.require(actor, Action.PROVIDERS_SEE)
        views = await ProviderViews.of(self._service.now)
        found = [
            await self._view_provider(views, one) for one in self._service.now.settings.providers
        ]
        own = views.own()
        return found if own is None else [*found, own]

    async def provider(self, actor: Actor, name: str) -> ports.ProviderView:
        await self._accounts.entries.require(actor, Action.PROVIDERS_SEE)
        views = await ProviderViews.of(self._service.now)
        if name == OWN_PROVIDER and (own := views.own()) is not None:
            return own
        return await self._view_provider(views, self._require_provider_settings(name))

    async def probe(
        self, actor: Actor, name: str, model: str, *, quick: bool = False
    ) -> ports.ProbeView:
        await self._accounts.entries.require(actor, Action.PROVIDERS_PROBE)
        one = self._require_provider_settings(name)
        if not model or len(model) > 1000:
            raise InvalidRequest("Name the model as the provider does.", param="model")
        connected = self._service.now.providers[name]
        examinee = probes.Examinee(
            provider=name,
            base_url=one.base_url,
            key=connected.key,
            reach=connected.reach,
            dialect=connected.provider.dialect,
        )
        started = self._examinations.begin(examinee, model, quick=quick)
        told = {"model": model, **({"quick": "yes"} if quick else {})}
        await self._accounts.entries.record(
            actor, Action.PROVIDERS_PROBE, "provider.probe", name, **told
        )
        return probe_view(started)

    async def cancel(self, actor: Actor, name: str) -> ports.ProbeView:
        await self._accounts.entries.require(actor, Action.PROVIDERS_PROBE)
        last = self._examinations.last(self._require_provider_settings(name).name)
        if last is None:
            words = f"No probe of {name} was started since the service was started."
            raise NotFound(words, code="not_found")
        if last.state == "asking":
            await self._examinations.cancel(name)
            await self._accounts.entries.record(
                actor, Action.PROVIDERS_PROBE, "provider.probe_cancel", name, model=last.model
            )
        return probe_view(last)

    async def use(self, actor: Actor, name: str, model: str) -> ports.AppliedResult:
        await self._accounts.entries.require(actor, Action.PROVIDERS_PROBE)
        one = self._require_provider_settings(name)
        kept_results = await self._examinations.results.of(name)
        result = kept_results.get(model, probes.NOTHING).newest
        if result is None:
            words = f"There is no result of a probe of {model[:100]} at {name}."
            raise NotFound(words, code="not_found")
        if not result.complete:
            raise InvalidRequest(
                "Not every question could be asked, so it cannot be used; probe again.",
                code="probe_incomplete",
                status=409,
            )
        before = next(
            (each for each in one.models if each.id == model), ProviderModelSettings(id=model)
        )
        told = ", ".join(f"{each.what}: {each.now}" for each in changes(before, result))
        kept = provider_in_force(await self.configuration.every(actor), name)
        in_file = "the provider is in the configuration file, which the console does not change"
        used = (
            _build_unapplied_result(result, in_file)
            if kept.locked
            else await self._apply_probe_result(actor, kept, result)
        )
        if used.in_force:
            await self._examinations.results.keep(structs.replace(result, used=True))
        if used.written:
            details = {"model": model, "changes": told[:500] or "none"}
            await self._accounts.entries.record(
                actor, Action.PROVIDERS_PROBE, "provider.use_probe", name, **details
            )
        return used

    async def explain(self, actor: Actor, question: ports.RouteQuery) -> RoutingExplanation:
        await self._accounts.entries.require(actor, Action.PROVIDERS_SEE)
        door = self._service.now.doors.named(question.door or self.doors()[0])
        try:
            caller = await self._build_key_caller(actor, question.key, door)
            rules = parsing_rules(door, limits(self._service.now.settings.server))
            if question.strict:
                rules = structs.replace(rules, reject_unknown=True)
            request = parse(question.body, rules)
        except ServiceError as failure:
            return RoutingExplanation(door=door.name, refusal=ExplainedRefusal.of(failure))
        if question.session and request.session_id is None:
            request = structs.replace(request, session_id=question.session)
        return explanation(self._service.now.pipeline, door, caller, request, self._request_fields)

    def _request_fields(self, target_name: str) -> Known:
        found = self._service.now.router.target_state(target_name)
        if found is not None and isinstance(found.target, ProviderTarget):
            return found.target.provider.dialect.lists
        return KNOWN

    async def _view_provider(
        self, views: ProviderViews, provider: ProviderSettings
    ) -> ports.ProviderView:
        results = await self._examinations.results.of(provider.name)
        return await views.provider(provider, results, self._examinations.last(provider.name))

    def _require_provider_settings(self, provider_name: str) -> ProviderSettings:
        for one in self._service.now.settings.providers:
            if one.name == provider_name:
                return one
        raise NotFound(f"No provider is named {provider_name[:100]}.", code="not_found")

    async def _apply_probe_result(
        self, actor: Actor, provider_entry: EntryView, probe_result: probes.Result
    ) -> ports.AppliedResult:
        models = {each["id"]: each for each in provider_entry.settings.get("models", ())}
        before = models.get(probe_result.model, {})
        known = {name: before[name] for name in ("context_length",) if name in before}
        models[probe_result.model] = {**known, **probe_result.values()}
        settings = {**provider_entry.settings, "models": list(models.values())}
        wish = EntryWish(settings=settings, version=provider_entry.version)
        try:
            view = await self.configuration.change(actor, provider_entry.id, wish)
        except InvalidRequest as failure:
            return _build_unapplied_result(probe_result, failure.message)
        return ports.AppliedResult(
            written=True, in_force=view.in_force, problem="; ".join(view.problems)
        )

    async def _build_key_caller(self, actor: Actor, key_id: str, door: MountedDoor) -> Caller:
        if not key_id:
            return Caller(key="", name="", door=door.name)
        key = await self._accounts.keys.see(actor, key_id)
        state = key.state(self._clock())
        if state is not KeyState.ACTIVE:
            raise Unauthenticated(f"The key {key.id} is {state}, so it is not valid anywhere.")
        grant = Grant(key=key, works=True, until=None, project_bounds=UNBOUNDED)
        return admitted(grant, door.name)


def _build_unapplied_result(result: probes.Result, problem: str) -> ports.AppliedResult:
    table = table_text(("providers", "models"), result.values(), {"probed": result.evidence})
    return ports.AppliedResult(written=False, in_force=False, problem=problem, by_hand=table)
