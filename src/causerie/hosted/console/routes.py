"""Table of paths and their pages; nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from causerie.hosted.console import activity, overview, profile, sign_in, usage
from causerie.hosted.console.alerts import AlertsPages
from causerie.hosted.console.aliases import AliasPages
from causerie.hosted.console.bounds import PersonBoundsPages
from causerie.hosted.console.catalog import MarketPages, ModelsPages, RankingPages
from causerie.hosted.console.catalog_entries import CatalogEntryPages, CatalogImportPages
from causerie.hosted.console.entries import EntryFormPages, EntryPages
from causerie.hosted.console.explain import ExplainPages
from causerie.hosted.console.keys import KeysPages
from causerie.hosted.console.operator import OperatorPages
from causerie.hosted.console.overview import OverviewPages, PalettePages
from causerie.hosted.console.playground import PlaygroundPages, PublicChatPages
from causerie.hosted.console.project import MemberPages, ProjectPages
from causerie.hosted.console.provider_entries import ProviderEntryPages
from causerie.hosted.console.providers import ProviderModelPages, ProvidersPages
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.service_view import ServiceView
from causerie.hosted.console.settings_entries import DOORS, MODELS, SettingsEntryPages, SettingsKind
from causerie.hosted.operations.ports import Operations

Page = Callable[[RequestContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page. An ``open`` one needs nobody to have signed in; one that is ``raw`` reads its
    request's body itself, takes the form token in a header, and has failures as JSON.

    Fields typed into one that is ``kept`` come back if the session has ended in between. It asks
    :meth:`RequestContext.check_form` before it changes anything, and takes nothing that is secret.
    """

    method: str
    path: str
    page: Page
    open: bool = False
    raw: bool = False
    kept: bool = False


_PROJECT = "/projects/{project}"
_KEYS = f"{_PROJECT}/keys"
_MODEL = "/catalog/{author}/{slug}"


def routes(service_view: ServiceView, *, open_to_all: bool = False) -> tuple[PageRoute, ...]:
    """All pages, their paths below the console's own."""
    return (
        *(_sign_up() if open_to_all else ()),
        PageRoute("GET", "/", overview.show_start),
        PageRoute("GET", "/go", PalettePages(service_view).show),
        PageRoute("GET", f"{_PROJECT}/overview", OverviewPages(service_view).show),
        *_sign_in(),
        *_profile(),
        *_keys(KeysPages(service_view)),
        *_playground(PlaygroundPages(service_view)),
        *_models(ModelsPages(service_view), MarketPages(service_view)),
        *_public(RankingPages(service_view), PublicChatPages(service_view)),
        *_used(),
        *_project(ProjectPages(service_view), MemberPages()),
        *_operator(OperatorPages(service_view), PersonBoundsPages(service_view)),
        *(_operations(service_view.operations) if service_view.operations is not None else ()),
    )


def _sign_in() -> tuple[PageRoute, ...]:
    return (
        PageRoute("GET", "/sign-in", sign_in.show_sign_in, open=True),
        PageRoute("POST", "/sign-in", sign_in.enter_password, open=True),
        PageRoute("GET", "/sign-in/code", sign_in.show_code, open=True),
        PageRoute("POST", "/sign-in/code", sign_in.enter_code, open=True),
        PageRoute("GET", "/sign-in/{provider}", sign_in.begin_openid, open=True),
        PageRoute("GET", "/sign-in/{provider}/back", sign_in.return_from_provider, open=True),
        PageRoute("POST", "/sign-out", sign_in.sign_out, open=True),
        PageRoute("GET", "/link", sign_in.show_link, open=True),
        PageRoute("POST", "/link", sign_in.follow_link, open=True),
        PageRoute("POST", "/link/account", sign_in.accept_invitation, open=True),
        PageRoute("POST", "/link/with/{provider}", sign_in.begin_openid_with_link, open=True),
        PageRoute("POST", "/link/join", sign_in.join_project),
        PageRoute("POST", "/link/password", sign_in.reset_password, open=True),
    )


def _sign_up() -> tuple[PageRoute, ...]:
    return (
        PageRoute("GET", "/sign-up", sign_in.show_sign_up, open=True),
        PageRoute("POST", "/sign-up", sign_in.enter_sign_up, open=True),
    )


def _profile() -> tuple[PageRoute, ...]:
    return (
        PageRoute("GET", "/profile", profile.show),
        PageRoute("POST", "/profile/name", profile.rename, kept=True),
        PageRoute("POST", "/profile/password", profile.change_password),
        PageRoute("POST", "/profile/factor", profile.enrol),
        PageRoute("POST", "/profile/factor/confirm", profile.confirm),
        PageRoute("GET", "/profile/factor/remove", profile.ask_removal),
        PageRoute("POST", "/profile/factor/remove", profile.remove_factor),
        PageRoute("POST", "/profile/identities/unlink", sign_in.unlink_identity),
        PageRoute("POST", "/profile/identities/{provider}/link", sign_in.begin_linking),
        PageRoute("POST", "/profile/sessions/end-others", profile.end_others),
        PageRoute("POST", "/profile/sessions/{session}/end", profile.end_session),
    )


def _keys(keys: KeysPages) -> tuple[PageRoute, ...]:
    key = f"{_KEYS}/{{key}}"
    return (
        PageRoute("GET", _KEYS, keys.list),
        PageRoute("GET", f"{_KEYS}/new", keys.new),
        PageRoute("POST", f"{_KEYS}/new", keys.create, kept=True),
        PageRoute("GET", key, keys.show),
        PageRoute("POST", key, keys.edit, kept=True),
        PageRoute("GET", f"{key}/rotate", keys.ask_rotation),
        PageRoute("POST", f"{key}/rotate", keys.rotate),
        PageRoute("GET", f"{key}/transfer", keys.ask_transfer),
        PageRoute("POST", f"{key}/transfer", keys.transfer),
        PageRoute("GET", f"{key}/delete", keys.ask_deletion),
        PageRoute("POST", f"{key}/delete", keys.delete),
        PageRoute("POST", f"{key}/disable", keys.disable),
        PageRoute("POST", f"{key}/enable", keys.enable),
    )


def _playground(playground: PlaygroundPages) -> tuple[PageRoute, ...]:
    return (
        PageRoute("GET", "/projects/{project}/playground", playground.show),
        PageRoute("POST", "/projects/{project}/playground", playground.complete, raw=True),
    )


def _models(models: ModelsPages, market: MarketPages) -> tuple[PageRoute, ...]:
    return (
        PageRoute("GET", f"{_PROJECT}/models", models.show),
        PageRoute("GET", f"{_PROJECT}/models/states", models.states),
        PageRoute("GET", "/catalog", models.show_openly, open=True),
        PageRoute("GET", "/catalog/compare", market.compare, open=True),
        PageRoute("GET", _MODEL, market.model, open=True),
        PageRoute("GET", "/providers", market.providers, open=True),
        PageRoute("GET", "/providers/{provider}", market.provider, open=True),
        PageRoute("GET", "/logos/{name}", market.logo, open=True),
    )


def _public(rankings: RankingPages, chat: PublicChatPages) -> tuple[PageRoute, ...]:
    return (
        PageRoute("GET", f"{_MODEL}/chat", chat.show, open=True),
        PageRoute("POST", f"{_MODEL}/chat", chat.complete, open=True, raw=True),
        PageRoute("GET", "/rankings", rankings.show, open=True),
        PageRoute("GET", "/rankings.json", rankings.tell, open=True),
    )


def _used() -> tuple[PageRoute, ...]:
    return (
        PageRoute("GET", "/projects/{project}/usage", usage.show),
        PageRoute("GET", "/projects/{project}/usage.csv", usage.download),
        PageRoute("GET", "/projects/{project}/activity", activity.show),
        PageRoute("GET", "/projects/{project}/activity/{record}", activity.show_contents),
        PageRoute("GET", "/operator/usage", usage.show_service),
        PageRoute("GET", "/operator/usage.csv", usage.download_service),
        PageRoute("GET", "/operator/activity", activity.show_service),
    )


def _project(project: ProjectPages, members: MemberPages) -> tuple[PageRoute, ...]:
    member = f"{_PROJECT}/members/{{user}}"
    return (
        PageRoute("GET", _PROJECT, project.show),
        PageRoute("GET", f"{_PROJECT}/limits", project.limits),
        PageRoute("GET", f"{_PROJECT}/logging", project.logging),
        PageRoute("GET", f"{_PROJECT}/settings", project.settings),
        PageRoute("POST", f"{_PROJECT}/name", project.rename, kept=True),
        PageRoute("GET", f"{_PROJECT}/archive", project.ask_archive),
        PageRoute("POST", f"{_PROJECT}/archive", project.archive),
        PageRoute("POST", f"{_PROJECT}/restore", project.restore),
        PageRoute("GET", f"{_PROJECT}/bounds", project.bounds),
        PageRoute("POST", f"{_PROJECT}/bounds", project.set_bounds, kept=True),
        PageRoute("POST", f"{_PROJECT}/recording", project.record),
        PageRoute("GET", f"{_PROJECT}/audit", project.audit),
        PageRoute("GET", f"{_PROJECT}/invite", members.ask_invitation),
        PageRoute("POST", f"{_PROJECT}/invite", members.invite, kept=True),
        PageRoute("POST", f"{_PROJECT}/invitations/{{link}}/withdraw", members.withdraw),
        PageRoute("GET", member, members.show),
        PageRoute("POST", member, members.change),
        PageRoute("GET", f"{member}/remove", members.ask_removal),
        PageRoute("POST", f"{member}/remove", members.remove),
    )


def _operations(operations: Operations) -> tuple[PageRoute, ...]:
    providers, explain = ProvidersPages(operations), ExplainPages(operations)
    provider = "/operator/providers/{provider}"
    return (
        PageRoute("GET", "/operator/providers", providers.list),
        PageRoute("GET", provider, providers.see),
        PageRoute("GET", f"{provider}/progress", providers.progress),
        PageRoute("GET", f"{provider}/probe", providers.ask),
        PageRoute("POST", f"{provider}/probe", providers.probe),
        PageRoute("POST", f"{provider}/probe/cancel", providers.cancel),
        PageRoute("POST", f"{provider}/probe/use", providers.use),
        *_alerts(AlertsPages(operations)),
        *_provider_entries(ProviderEntryPages(operations), ProviderModelPages(operations)),
        *_form_entries(AliasPages(operations), "/operator/aliases"),
        *_settings_entries(operations, MODELS),
        *_settings_entries(operations, DOORS),
        *_catalog_entries(CatalogEntryPages(operations), CatalogImportPages(operations)),
        PageRoute("GET", "/operator/explain", explain.show),
        PageRoute("POST", "/operator/explain", explain.explain, kept=True),
    )


def _alerts(alerts: AlertsPages) -> tuple[PageRoute, ...]:
    channels = "/operator/alerts/channels"
    return (
        PageRoute("GET", "/operator/alerts", alerts.show),
        PageRoute("POST", "/operator/alerts/{channel}/test", alerts.test),
        PageRoute("GET", f"{channels}/new", alerts.new),
        PageRoute("POST", f"{channels}/new", alerts.create),
        PageRoute("GET", f"{channels}/{{entry}}", alerts.see),
        PageRoute("POST", f"{channels}/{{entry}}", alerts.change),
        *_entries(f"{channels}/{{entry}}", alerts),
    )


def _provider_entries(
    entries: ProviderEntryPages, models: ProviderModelPages
) -> tuple[PageRoute, ...]:
    add, provider = "/operator/providers/add", "/operator/providers/{provider}"
    return (
        PageRoute("GET", f"{add}/new", entries.new),
        PageRoute("POST", f"{add}/new", entries.create),
        PageRoute("POST", f"{add}/try", entries.test),
        PageRoute("GET", f"{provider}/edit", entries.edit),
        PageRoute("POST", f"{provider}/edit", entries.change),
        PageRoute("POST", f"{provider}/test", entries.try_kept),
        PageRoute("POST", f"{provider}/enable", entries.enable),
        PageRoute("POST", f"{provider}/disable", entries.disable),
        PageRoute("GET", f"{provider}/delete", entries.ask_deletion),
        PageRoute("POST", f"{provider}/delete", entries.delete),
        PageRoute("GET", f"{provider}/models", models.show),
        PageRoute("POST", f"{provider}/models", models.take_over),
    )


def _settings_entries(operations: Operations, kind: SettingsKind) -> tuple[PageRoute, ...]:
    return _form_entries(SettingsEntryPages(operations.configuration, kind), kind.words.list_path)


def _form_entries(pages: EntryFormPages[Any], list_path: str) -> tuple[PageRoute, ...]:
    entry = f"{list_path}/{{entry}}"
    return (
        PageRoute("GET", list_path, pages.list),
        PageRoute("GET", f"{list_path}/new", pages.new),
        PageRoute("POST", f"{list_path}/new", pages.create, kept=True),
        PageRoute("GET", entry, pages.see),
        PageRoute("POST", entry, pages.change, kept=True),
        *_entries(entry, pages),
    )


def _catalog_entries(
    entries: CatalogEntryPages, imports: CatalogImportPages
) -> tuple[PageRoute, ...]:
    provider = "/operator/providers/{provider}"
    return (
        PageRoute("GET", "/operator/catalog", entries.list),
        *_entries("/operator/catalog/{entry}", entries),
        PageRoute("GET", f"{provider}/publish", imports.show),
        PageRoute("POST", f"{provider}/publish", imports.publish),
    )


def _entries(entry: str, pages: EntryPages) -> tuple[PageRoute, ...]:
    return (
        PageRoute("POST", f"{entry}/enable", pages.enable),
        PageRoute("POST", f"{entry}/disable", pages.disable),
        PageRoute("GET", f"{entry}/delete", pages.ask_deletion),
        PageRoute("POST", f"{entry}/delete", pages.delete),
    )


def _operator(operator: OperatorPages, bounds: PersonBoundsPages) -> tuple[PageRoute, ...]:
    user = "/operator/users/{user}"
    return (
        PageRoute("GET", "/operator", operator.health),
        PageRoute("GET", "/operator/users", operator.users),
        PageRoute("GET", "/operator/invite", operator.ask_invitation),
        PageRoute("POST", "/operator/invite", operator.invite, kept=True),
        PageRoute("POST", "/operator/invitations/{link}/withdraw", operator.withdraw),
        PageRoute("POST", "/operator/sign-ups/{link}/approve", operator.approve),
        PageRoute("GET", f"{user}/bounds", bounds.ask),
        PageRoute("POST", f"{user}/bounds", bounds.set, kept=True),
        PageRoute("POST", f"{user}/reset", operator.reset_link),
        PageRoute("GET", f"{user}/factor/remove", operator.ask_factor_removal),
        PageRoute("POST", f"{user}/factor/remove", operator.remove_factor),
        PageRoute("GET", f"{user}/disable", operator.ask_disable),
        PageRoute("POST", f"{user}/disable", operator.disable),
        PageRoute("POST", f"{user}/enable", operator.enable),
        PageRoute("POST", f"{user}/operator", operator.make_operator),
        PageRoute("POST", f"{user}/no-operator", operator.unmake_operator),
        PageRoute("GET", "/operator/projects", operator.projects),
        PageRoute("GET", "/operator/projects/new", operator.ask_project),
        PageRoute("POST", "/operator/projects/new", operator.make_project, kept=True),
        PageRoute("GET", "/operator/audit", operator.audit),
    )
