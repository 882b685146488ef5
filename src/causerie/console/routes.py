"""Which path leads to which page; nothing else."""

from __future__ import annotations

from causerie.console.pages import (
    activity,
    links,
    openid,
    profile,
    sign_in,
    sign_up,
    start,
    usage,
)
from causerie.console.pages.endpoints import EndpointsPages
from causerie.console.pages.explain import ExplainPages
from causerie.console.pages.keys import KeysPages
from causerie.console.pages.market import MarketPages
from causerie.console.pages.models import ModelsPages
from causerie.console.pages.operator import OperatorPages
from causerie.console.pages.playground import PlaygroundPages
from causerie.console.pages.project import MemberPages, ProjectPages
from causerie.console.ports import House
from causerie.console.routing import Route
from causerie.upkeep.ports import Upkeep

_PROJECT = "/projects/{project}"
_KEYS = f"{_PROJECT}/keys"


def routes(house: House, *, open_to_all: bool = False) -> tuple[Route, ...]:
    """All pages, their paths below the console's own."""
    return (
        *(_sign_up() if open_to_all else ()),
        Route("GET", "/", start.show),
        *_sign_in(),
        *_profile(),
        *_keys(KeysPages(house)),
        *_trying(ModelsPages(house), PlaygroundPages(house)),
        *_market(MarketPages(house)),
        *_used(),
        *_project(ProjectPages(house), MemberPages()),
        *_operator(OperatorPages(house)),
        *(_upkeep(house.upkeep) if house.upkeep is not None else ()),
    )


def _sign_in() -> tuple[Route, ...]:
    return (
        Route("GET", "/sign-in", sign_in.show, open=True),
        Route("POST", "/sign-in", sign_in.enter, open=True),
        Route("GET", "/sign-in/code", sign_in.show_code, open=True),
        Route("POST", "/sign-in/code", sign_in.enter_code, open=True),
        Route("GET", "/sign-in/{provider}", openid.begin, open=True),
        Route("GET", "/sign-in/{provider}/back", openid.back, open=True),
        Route("POST", "/sign-out", sign_in.leave, open=True),
        Route("GET", "/link", links.show, open=True),
        Route("POST", "/link", links.follow, open=True),
        Route("POST", "/link/account", links.accept, open=True),
        Route("POST", "/link/with/{provider}", openid.begin_with_link, open=True),
        Route("POST", "/link/join", links.join),
        Route("POST", "/link/password", links.reset, open=True),
    )


def _sign_up() -> tuple[Route, ...]:
    return (
        Route("GET", "/sign-up", sign_up.show, open=True),
        Route("POST", "/sign-up", sign_up.enter, open=True),
    )


def _profile() -> tuple[Route, ...]:
    return (
        Route("GET", "/profile", profile.show),
        Route("POST", "/profile/name", profile.rename, kept=True),
        Route("POST", "/profile/password", profile.change_password),
        Route("POST", "/profile/factor", profile.enrol),
        Route("POST", "/profile/factor/confirm", profile.confirm),
        Route("GET", "/profile/factor/remove", profile.ask_removal),
        Route("POST", "/profile/factor/remove", profile.remove_factor),
        Route("POST", "/profile/identities/unlink", openid.unlink),
        Route("POST", "/profile/identities/{provider}/link", openid.begin_to_join),
        Route("POST", "/profile/sessions/end-others", profile.end_others),
        Route("POST", "/profile/sessions/{session}/end", profile.end_session),
    )


def _keys(keys: KeysPages) -> tuple[Route, ...]:
    key = f"{_KEYS}/{{key}}"
    return (
        Route("GET", _KEYS, keys.list),
        Route("GET", f"{_KEYS}/new", keys.new),
        Route("POST", f"{_KEYS}/new", keys.create, kept=True),
        Route("GET", key, keys.show),
        Route("POST", key, keys.edit, kept=True),
        Route("GET", f"{key}/rotate", keys.ask_rotation),
        Route("POST", f"{key}/rotate", keys.rotate),
        Route("GET", f"{key}/transfer", keys.ask_transfer),
        Route("POST", f"{key}/transfer", keys.transfer),
        Route("GET", f"{key}/delete", keys.ask_deletion),
        Route("POST", f"{key}/delete", keys.delete),
        Route("POST", f"{key}/disable", keys.disable),
        Route("POST", f"{key}/enable", keys.enable),
    )


def _trying(models: ModelsPages, playground: PlaygroundPages) -> tuple[Route, ...]:
    return (
        Route("GET", "/projects/{project}/playground", playground.show),
        Route("POST", "/projects/{project}/playground", playground.complete, raw=True),
        Route("GET", "/projects/{project}/models", models.show),
        Route("GET", "/projects/{project}/models/states", models.states),
    )


def _market(market: MarketPages) -> tuple[Route, ...]:
    return (
        Route("GET", "/catalog", market.show, open=True),
        Route("GET", "/catalog/compare", market.compare, open=True),
        Route("GET", "/catalog/{author}/{slug}", market.model, open=True),
    )


def _used() -> tuple[Route, ...]:
    return (
        Route("GET", "/projects/{project}/usage", usage.show),
        Route("GET", "/projects/{project}/usage.csv", usage.download),
        Route("GET", "/projects/{project}/activity", activity.show),
        Route("GET", "/projects/{project}/activity/{record}", activity.show_contents),
        Route("GET", "/operator/usage", usage.show_service),
        Route("GET", "/operator/usage.csv", usage.download_service),
        Route("GET", "/operator/activity", activity.show_service),
    )


def _project(project: ProjectPages, members: MemberPages) -> tuple[Route, ...]:
    member = f"{_PROJECT}/members/{{user}}"
    return (
        Route("GET", _PROJECT, project.show),
        Route("POST", f"{_PROJECT}/name", project.rename, kept=True),
        Route("GET", f"{_PROJECT}/archive", project.ask_archive),
        Route("POST", f"{_PROJECT}/archive", project.archive),
        Route("POST", f"{_PROJECT}/restore", project.restore),
        Route("GET", f"{_PROJECT}/bounds", project.bounds),
        Route("POST", f"{_PROJECT}/bounds", project.set_bounds, kept=True),
        Route("POST", f"{_PROJECT}/recording", project.record),
        Route("GET", f"{_PROJECT}/audit", project.audit),
        Route("GET", f"{_PROJECT}/invite", members.ask_invitation),
        Route("POST", f"{_PROJECT}/invite", members.invite, kept=True),
        Route("POST", f"{_PROJECT}/invitations/{{link}}/withdraw", members.withdraw),
        Route("GET", member, members.show),
        Route("POST", member, members.change),
        Route("GET", f"{member}/remove", members.ask_removal),
        Route("POST", f"{member}/remove", members.remove),
    )


def _upkeep(upkeep: Upkeep) -> tuple[Route, ...]:
    endpoints, explain = EndpointsPages(upkeep), ExplainPages(upkeep)
    endpoint = "/operator/endpoints/{endpoint}"
    return (
        Route("GET", "/operator/endpoints", endpoints.list),
        Route("GET", endpoint, endpoints.see),
        Route("GET", f"{endpoint}/progress", endpoints.progress),
        Route("GET", f"{endpoint}/probe", endpoints.ask),
        Route("POST", f"{endpoint}/probe", endpoints.probe),
        Route("POST", f"{endpoint}/probe/cancel", endpoints.cancel),
        Route("POST", f"{endpoint}/probe/use", endpoints.use),
        Route("GET", "/operator/explain", explain.show),
        Route("POST", "/operator/explain", explain.explain, kept=True),
    )


def _operator(operator: OperatorPages) -> tuple[Route, ...]:
    user = "/operator/users/{user}"
    return (
        Route("GET", "/operator", operator.health),
        Route("GET", "/operator/users", operator.users),
        Route("GET", "/operator/invite", operator.ask_invitation),
        Route("POST", "/operator/invite", operator.invite, kept=True),
        Route("POST", "/operator/invitations/{link}/withdraw", operator.withdraw),
        Route("POST", "/operator/sign-ups/{link}/approve", operator.approve),
        Route("POST", f"{user}/reset", operator.reset_link),
        Route("GET", f"{user}/factor/remove", operator.ask_factor_removal),
        Route("POST", f"{user}/factor/remove", operator.remove_factor),
        Route("GET", f"{user}/disable", operator.ask_disable),
        Route("POST", f"{user}/disable", operator.disable),
        Route("POST", f"{user}/enable", operator.enable),
        Route("POST", f"{user}/operator", operator.make_operator),
        Route("POST", f"{user}/no-operator", operator.unmake_operator),
        Route("GET", "/operator/projects", operator.projects),
        Route("GET", "/operator/projects/new", operator.ask_project),
        Route("POST", "/operator/projects/new", operator.make_project, kept=True),
        Route("GET", "/operator/audit", operator.audit),
    )
