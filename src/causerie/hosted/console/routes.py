"""Table of paths and their pages; nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct

from causerie.hosted.console import (
    activity,
    alerts,
    audit,
    bounds,
    business,
    catalog,
    credits,
    explain,
    health,
    keys,
    operator,
    overview,
    playground,
    profile,
    project,
    providers,
    sign_in,
    usage,
)
from causerie.hosted.console.alerts import CHANNELS
from causerie.hosted.console.entries import EntryFormPages, EntryPages
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.settings_entries import ALIASES, DOORS, MODELS, POLICIES

Page = Callable[[RequestContext], Awaitable[None]]


class PageRoute(Struct, frozen=True):
    """A page. ``open``: nobody has to be signed in. ``raw``: it reads the body, and fails as JSON.

    ``form`` is shown again, with the problem, if the page refuses what was sent. The typed fields
    of a ``kept`` one come back after a new sign-in; it must have a ``form`` without secret fields.
    Those that ``enrols`` marks are open to people who first have to set up a second factor.
    """

    method: str
    path: str
    page: Page
    form: Page | None = None
    open: bool = False
    raw: bool = False
    kept: bool = False
    enrols: bool = False


_PROJECT = "/projects/{project}"
_KEYS = f"{_PROJECT}/keys"
_KEY = f"{_KEYS}/{{key}}"
_MEMBER = f"{_PROJECT}/members/{{user}}"
_MODEL = "/catalog/{author}/{slug}"
_USER = "/operator/users/{user}"
_PROVIDER = "/operator/providers/{provider}"


def _form(
    path: str, show: Page, act: Page, *, open: bool = False, kept: bool = False
) -> tuple[PageRoute, PageRoute]:
    return (
        PageRoute("GET", path, show, open=open),
        PageRoute("POST", path, act, show, open=open, kept=kept),
    )


def _entries(pages: EntryPages) -> tuple[PageRoute, ...]:
    words = pages.words
    entry = f"{words.path or words.list_path}/{{entry}}"
    return (
        *([PageRoute("GET", words.list_path, pages.list)] if words.list_template else []),
        PageRoute("POST", f"{entry}/enable", partial(pages.switch, enabled=True)),
        PageRoute("POST", f"{entry}/disable", partial(pages.switch, enabled=False)),
        *_form(f"{entry}/delete", pages.ask_deletion, pages.delete),
    )


def _form_entries(pages: EntryFormPages, *, kept: bool = True) -> tuple[PageRoute, ...]:
    path = pages.words.path or pages.words.list_path
    return (
        *_form(f"{path}/new", pages.new, pages.create, kept=kept),
        *_form(f"{path}/{{entry}}", pages.see, pages.change, kept=kept),
        *_entries(pages),
    )


SIGN_UP_ROUTES = (*_form("/sign-up", sign_in.show_sign_up, sign_in.enter_sign_up, open=True),)
ROUTES = (
    PageRoute("GET", "/", overview.show_start, open=True),
    PageRoute("GET", "/go", overview.show_palette),
    PageRoute("GET", f"{_PROJECT}/overview", overview.show_overview),
    *_form("/sign-in", sign_in.show_sign_in, sign_in.enter_password, open=True),
    *_form("/sign-in/code", sign_in.show_code, sign_in.enter_code, open=True),
    *_form("/sign-in/forgotten", sign_in.show_forgotten, sign_in.send_reset, open=True),
    PageRoute("GET", "/sign-in/{provider}", sign_in.begin_openid, open=True),
    PageRoute("GET", "/sign-in/{provider}/back", sign_in.return_from_provider, open=True),
    PageRoute("POST", "/sign-out", sign_in.sign_out, open=True),
    *_form("/link", sign_in.show_link, sign_in.follow_link, open=True),
    PageRoute("POST", "/link/account", sign_in.accept_invitation, sign_in.follow_link, open=True),
    PageRoute("POST", "/link/with/{provider}", sign_in.begin_openid_with_link, open=True),
    PageRoute("POST", "/link/join", sign_in.join_project, sign_in.follow_link),
    PageRoute("POST", "/link/password", sign_in.reset_password, sign_in.follow_link, open=True),
    PageRoute("POST", "/link/address", sign_in.change_address, sign_in.follow_link, open=True),
    PageRoute("GET", "/profile", profile.show, enrols=True),
    *_form("/profile/address", profile.ask_address, profile.send_address),
    *_form("/profile/delete", profile.ask_deletion, profile.delete),
    PageRoute("POST", "/profile/name", profile.rename, profile.show, kept=True),
    PageRoute("POST", "/profile/password", profile.change_password, profile.show),
    PageRoute("POST", "/profile/factor", profile.enrol, enrols=True),
    PageRoute("POST", "/profile/factor/confirm", profile.confirm, profile.enrol_again, enrols=True),
    *_form("/profile/factor/remove", profile.ask_removal, profile.remove_factor),
    PageRoute("POST", "/profile/identities/unlink", sign_in.unlink_identity),
    PageRoute("POST", "/profile/identities/{provider}/link", sign_in.begin_linking),
    PageRoute("POST", "/profile/sessions/end-others", profile.end_others),
    PageRoute("POST", "/profile/sessions/{session}/end", profile.end_session),
    PageRoute("GET", "/get-key", keys.get_key, open=True),
    PageRoute("GET", _KEYS, keys.show_list),
    *_form(f"{_KEYS}/new", keys.new, keys.create, kept=True),
    *_form(_KEY, keys.show, keys.edit, kept=True),
    PageRoute("GET", f"{_KEY}/rotate", keys.ask_rotation),
    PageRoute("POST", f"{_KEY}/rotate", keys.rotate),
    *_form(f"{_KEY}/transfer", keys.ask_transfer, keys.transfer),
    PageRoute("GET", f"{_KEY}/delete", keys.ask_deletion),
    PageRoute("POST", f"{_KEY}/delete", keys.delete),
    PageRoute("POST", f"{_KEY}/disable", partial(keys.switch, enabled=False)),
    PageRoute("POST", f"{_KEY}/enable", partial(keys.switch, enabled=True)),
    PageRoute("GET", "/projects/{project}/playground", playground.show),
    PageRoute("POST", "/projects/{project}/playground", playground.complete, raw=True),
    PageRoute("GET", f"{_PROJECT}/models", catalog.show_models),
    PageRoute("GET", f"{_PROJECT}/models/states", catalog.show_states),
    PageRoute("GET", "/catalog", catalog.show_catalog, open=True),
    PageRoute("GET", "/catalog/compare", catalog.show_comparison, open=True),
    PageRoute("GET", _MODEL, catalog.show_model, open=True),
    PageRoute("GET", "/providers", catalog.show_providers, open=True),
    PageRoute("GET", "/providers/{provider}", catalog.show_provider, open=True),
    PageRoute("GET", "/logos/{name}", catalog.send_logo, open=True),
    PageRoute("GET", f"{_MODEL}/chat", playground.show_public_chat, open=True),
    PageRoute("POST", f"{_MODEL}/chat", playground.complete_public_chat, open=True, raw=True),
    PageRoute("GET", "/rankings", catalog.show_rankings, open=True),
    PageRoute("GET", "/status", catalog.show_status, open=True),
    PageRoute("GET", "/rankings.json", catalog.send_rankings, open=True),
    PageRoute("GET", "/projects/{project}/usage", usage.show),
    PageRoute("GET", "/projects/{project}/usage.csv", usage.download),
    PageRoute("GET", "/projects/{project}/statement.csv", usage.download_statement),
    PageRoute("GET", "/projects/{project}/activity", activity.show),
    PageRoute("GET", "/projects/{project}/activity.csv", activity.download),
    PageRoute("GET", "/projects/{project}/activity/{record}", activity.show_contents),
    PageRoute("GET", "/operator/usage", usage.show),
    PageRoute("GET", "/operator/usage.csv", usage.download),
    PageRoute("GET", "/operator/statement.csv", usage.download_statement),
    PageRoute("GET", "/operator/activity", activity.show),
    PageRoute("GET", "/operator/activity.csv", activity.download),
    PageRoute("GET", _PROJECT, project.show),
    PageRoute("GET", f"{_PROJECT}/credits", credits.show),
    PageRoute("POST", f"{_PROJECT}/credits/buy", credits.buy, credits.show),
    PageRoute("POST", f"{_PROJECT}/credits/put", credits.put, credits.show),
    PageRoute("GET", f"{_PROJECT}/limits", project.show_limits),
    PageRoute("GET", f"{_PROJECT}/access", bounds.show_access),
    *_form(f"{_PROJECT}/access/change", bounds.ask_access, bounds.change_access, kept=True),
    *_form(f"{_MEMBER}/access", bounds.ask_access, bounds.change_access, kept=True),
    *_form(f"{_USER}/access", bounds.ask_access, bounds.change_access, kept=True),
    PageRoute("GET", f"{_PROJECT}/logging", project.show_logging),
    PageRoute("GET", f"{_PROJECT}/settings", project.show_settings),
    PageRoute("POST", f"{_PROJECT}/name", project.rename, project.show_settings, kept=True),
    PageRoute("POST", f"{_PROJECT}/networks", project.set_networks, project.show_settings),
    PageRoute("GET", f"{_PROJECT}/archive", project.ask_archive),
    PageRoute("POST", f"{_PROJECT}/archive", partial(project.archive, archived=True)),
    PageRoute("POST", f"{_PROJECT}/restore", partial(project.archive, archived=False)),
    *_form(f"{_PROJECT}/bounds", project.ask_bounds, project.set_bounds, kept=True),
    *_form(f"{_PROJECT}/lower", project.ask_lower, project.lower, kept=True),
    *_form(f"{_MEMBER}/bounds", project.ask_lower, project.lower, kept=True),
    PageRoute("POST", f"{_PROJECT}/contents.jsonl", project.export_contents),
    PageRoute("POST", f"{_PROJECT}/recording", project.set_recording, project.show_logging),
    PageRoute("GET", f"{_PROJECT}/audit", audit.show),
    *_form(f"{_PROJECT}/invite", project.ask_invitation, project.invite, kept=True),
    PageRoute("POST", f"{_PROJECT}/invitations/{{link}}/withdraw", project.withdraw),
    *_form(_MEMBER, project.show_member, project.change_member),
    *_form(f"{_MEMBER}/remove", project.ask_removal, project.remove_member),
    PageRoute("GET", "/operator", health.show),
    PageRoute("GET", "/operator/business", business.show),
    PageRoute("GET", "/operator/users", operator.show_users),
    *_form("/operator/invite", operator.ask_invitation, operator.invite, kept=True),
    PageRoute("POST", "/operator/invitations/{link}/withdraw", operator.withdraw),
    PageRoute("POST", "/operator/sign-ups/{link}/approve", operator.approve),
    *_form(f"{_USER}/bounds", bounds.show_person_bounds, bounds.set_person_bounds, kept=True),
    PageRoute("POST", f"{_USER}/reset", operator.reset_link),
    *_form(f"{_USER}/factor/remove", operator.ask_factor_removal, operator.remove_factor),
    *_form(f"{_USER}/disable", operator.ask_disable, operator.disable),
    PageRoute("POST", f"{_USER}/enable", operator.enable),
    *_form(f"{_USER}/operator", operator.ask_operator, operator.make_operator, kept=True),
    PageRoute("GET", "/operator/budgets", bounds.show_budgets),
    *_form("/operator/budgets/edit", bounds.ask_scope, bounds.set_scope, kept=True),
    *_form("/operator/budgets/many", bounds.ask_many, bounds.set_many, kept=True),
    PageRoute("GET", "/operator/keys", operator.show_keys),
    *_form("/operator/keys/new", operator.ask_key, operator.make_key, kept=True),
    *_form("/operator/keys/{key}/delete", operator.ask_key_deletion, operator.delete_key),
    PageRoute("GET", "/operator/projects", operator.show_projects),
    *_form("/new-project", project.ask_own, project.make_own, kept=True),
    *_form("/operator/projects/new", operator.ask_project, operator.make_project, kept=True),
    PageRoute("GET", "/operator/audit", audit.show),
    PageRoute("GET", "/operator/providers", providers.show_list),
    PageRoute("GET", _PROVIDER, providers.see),
    PageRoute("GET", f"{_PROVIDER}/progress", providers.show_progress),
    *_form(f"{_PROVIDER}/probe", providers.ask_probe, providers.probe),
    PageRoute("POST", f"{_PROVIDER}/probe/cancel", providers.cancel_probe),
    PageRoute("POST", f"{_PROVIDER}/probe/use", providers.use_result),
    *_form("/operator/explain", explain.show, explain.explain, kept=True),
    *_form("/operator/providers/add/new", providers.new, providers.create),
    PageRoute("POST", "/operator/providers/add/try", providers.test),
    *_form(f"{_PROVIDER}/edit", providers.edit, providers.change),
    PageRoute("POST", f"{_PROVIDER}/test", providers.try_kept),
    PageRoute("POST", f"{_PROVIDER}/enable", partial(providers.switch, enabled=True)),
    PageRoute("POST", f"{_PROVIDER}/disable", partial(providers.switch, enabled=False)),
    *_form(f"{_PROVIDER}/delete", providers.ask_deletion, providers.delete),
    *_form(f"{_PROVIDER}/models", providers.show_models, providers.take_over),
    *_form(f"{_PROVIDER}/publish", providers.show_publishing, providers.publish),
    PageRoute("GET", "/operator/alerts", alerts.show),
    PageRoute("POST", "/operator/alerts/{channel}/test", alerts.test),
    *_form_entries(CHANNELS, kept=False),
    *_form_entries(providers.CATALOG_MODELS),
    *_form_entries(ALIASES),
    *_form_entries(MODELS),
    *_form_entries(DOORS),
    *_form_entries(POLICIES),
)
"""All pages, their paths below the console's own."""
