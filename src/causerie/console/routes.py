"""Which path leads to which page; nothing else."""

from __future__ import annotations

from causerie.console.pages import activity, links, profile, sign_in, start, usage
from causerie.console.pages.keys import KeysPages
from causerie.console.pages.models import ModelsPages
from causerie.console.pages.playground import PlaygroundPages
from causerie.console.ports import House
from causerie.console.routing import Route

_KEYS = "/projects/{project}/keys"


def routes(house: House) -> tuple[Route, ...]:
    """All pages, their paths below the console's own."""
    return (
        Route("GET", "/", start.show),
        *_sign_in(),
        *_profile(),
        *_keys(KeysPages(house)),
        *_trying(ModelsPages(house), PlaygroundPages(house)),
        *_used(),
    )


def _sign_in() -> tuple[Route, ...]:
    return (
        Route("GET", "/sign-in", sign_in.show, open=True),
        Route("POST", "/sign-in", sign_in.enter, open=True),
        Route("GET", "/sign-in/code", sign_in.show_code, open=True),
        Route("POST", "/sign-in/code", sign_in.enter_code, open=True),
        Route("POST", "/sign-out", sign_in.leave, open=True),
        Route("GET", "/link", links.show, open=True),
        Route("POST", "/link", links.follow, open=True),
        Route("POST", "/link/account", links.accept, open=True),
        Route("POST", "/link/join", links.join),
        Route("POST", "/link/password", links.reset, open=True),
    )


def _profile() -> tuple[Route, ...]:
    return (
        Route("GET", "/profile", profile.show),
        Route("POST", "/profile/name", profile.rename),
        Route("POST", "/profile/password", profile.change_password),
        Route("POST", "/profile/factor", profile.enrol),
        Route("POST", "/profile/factor/confirm", profile.confirm),
        Route("GET", "/profile/factor/remove", profile.ask_removal),
        Route("POST", "/profile/factor/remove", profile.remove_factor),
        Route("POST", "/profile/sessions/end-others", profile.end_others),
        Route("POST", "/profile/sessions/{session}/end", profile.end_session),
    )


def _keys(keys: KeysPages) -> tuple[Route, ...]:
    key = f"{_KEYS}/{{key}}"
    return (
        Route("GET", _KEYS, keys.list),
        Route("GET", f"{_KEYS}/new", keys.new),
        Route("POST", f"{_KEYS}/new", keys.create),
        Route("GET", key, keys.show),
        Route("POST", key, keys.edit),
        Route("GET", f"{key}/rotate", keys.ask_rotation),
        Route("POST", f"{key}/rotate", keys.rotate),
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


def _used() -> tuple[Route, ...]:
    return (
        Route("GET", "/projects/{project}/usage", usage.show),
        Route("GET", "/projects/{project}/usage.csv", usage.download),
        Route("GET", "/projects/{project}/activity", activity.show),
        Route("GET", "/operator/usage", usage.show_service),
        Route("GET", "/operator/usage.csv", usage.download_service),
        Route("GET", "/operator/activity", activity.show_service),
    )
