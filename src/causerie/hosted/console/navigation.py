"""The frame of every page: links, only to pages that exist, and the notice after an action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from urllib.parse import quote

from causerie.hosted.accounts.people import Project


@dataclass(frozen=True, slots=True)
class NavigationLink:
    """A place in the navigation. Those of operators have the title of a section that folds."""

    title: str
    path: str
    """With ``{project}``: only for members of one."""
    icon: str
    section: str = ""
    here: bool = False


@dataclass(frozen=True, slots=True)
class NavigationSection:
    """Links under one title; a section that folds has an icon."""

    title: str
    links: Sequence[NavigationLink]
    icon: str = ""


_SECTIONS = {"Service": "pulse", "Models": "cube", "People": "people", "Reports": "chart"}
"""Sections of operators, with their icons."""
_LINKS = (
    NavigationLink("Overview", "/projects/{project}/overview", "home"),
    NavigationLink("Playground", "/projects/{project}/playground", "chat"),
    NavigationLink("Models", "/projects/{project}/models", "cube"),
    NavigationLink("Models", "/catalog", "cube"),
    NavigationLink("API Keys", "/projects/{project}/keys", "key"),
    NavigationLink("Usage", "/projects/{project}/usage", "chart"),
    NavigationLink("Activity", "/projects/{project}/activity", "list"),
    NavigationLink("Project", "/projects/{project}", "folder"),
    NavigationLink("Health", "/operator", "pulse", "Service"),
    NavigationLink("Doors", "/operator/doors", "key", "Service"),
    NavigationLink("Routing", "/operator/explain", "route", "Service"),
    NavigationLink("Alerts", "/operator/alerts", "bell", "Service"),
    NavigationLink("Providers", "/operator/providers", "plug", "Models"),
    NavigationLink("Aliases", "/operator/aliases", "tag", "Models"),
    NavigationLink("Own models", "/operator/models", "cube", "Models"),
    NavigationLink("Catalog models", "/operator/catalog", "cube", "Models"),
    NavigationLink("Users", "/operator/users", "people", "People"),
    NavigationLink("Projects", "/operator/projects", "folders", "People"),
    NavigationLink("All usage", "/operator/usage", "chart", "Reports"),
    NavigationLink("All activity", "/operator/activity", "list", "Reports"),
    NavigationLink("Rankings", "/rankings", "up", "Reports"),
    NavigationLink("Audit log", "/operator/audit", "shield", "Reports"),
)
_MARKET = ("/catalog", "/rankings")


def sections(
    project: Project | None, path: str, *, operator: bool, has_catalog: bool
) -> Sequence[NavigationSection]:
    """Return the links for a visitor; those of the catalog only if there is one."""
    id, found = quote(project.id) if project is not None else "", list[NavigationLink]()
    for link in _LINKS:
        needs_project = not link.section and link.path != "/catalog"
        fits = operator if link.section else needs_project is (project is not None)
        if fits and (has_catalog or link.path not in _MARKET):
            found.append(replace(link, path=link.path.replace("{project}", id)))
    around = [link.path for link in found if f"{path}/".startswith(f"{link.path}/")]
    here = max(around, key=len, default="")
    shown = [replace(link, here=link.path == here) for link in found]
    return [
        NavigationSection(title, [*links], _SECTIONS.get(title, ""))
        for title, links in groupby(shown, lambda link: link.section)
    ]


NOTICES = MappingProxyType(
    {
        "key-saved": "The key was changed.",
        "key-disabled": "The key was disabled; it stops within a second.",
        "key-enabled": "The key works again.",
        "key-deleted": "The key was deleted.",
        "key-transferred": "The key was transferred.",
        "name-saved": "The name was changed.",
        "password-saved": "The password was changed; all other sessions have ended.",
        "account-ready": "Sign in with the password that you chose. If the address had an account "
        "before, that and its password are unchanged: sign in, and open the link again.",
        "networks-saved": "Keys work from these networks only, within a second.",
        "factor-required": "This service requires two-factor authentication: set it up first.",
        "password-reset": "The password was changed. Sign in with it.",
        "identity-linked": "You can sign in with it from now on.",
        "identity-unlinked": "You can no longer sign in with it.",
        "factor-removed": "Two-factor authentication was removed.",
        "session-ended": "The session has ended.",
        "sessions-ended": "All other sessions have ended.",
        "nothing-changed": "Your session has ended, so nothing was changed.",
        "signed-out": "You have signed out.",
        "joined": "You are a member of the project now.",
        "project-renamed": "The project was renamed.",
        "project-archived": "The project was archived; its keys no longer work.",
        "project-restored": "The project was restored; its keys work again.",
        "bounds-saved": "Limits and budgets were changed.",
        "recording-on": "Request logging is on.",
        "recording-off": "Request logging is off; all logged prompts and replies were deleted.",
        "invitation-withdrawn": "The invitation was withdrawn.",
        "member-changed": "The role was changed; their keys do what it allows.",
        "member-removed": "The member was removed.",
        "left": "You have left the project.",
        "user-disabled": "The user was disabled; their sessions have ended and their keys stop.",
        "user-enabled": "The user may sign in again; their keys work again.",
        "users-factor-removed": "Two-factor authentication was removed; their sessions have ended.",
        "operator-made": "The user is an operator now.",
        "operator-unmade": "The user is no longer an operator.",
        "probe-cancelled": "The probe was cancelled.",
        "probe-used": "The result was written to the configuration and is in force.",
        "project-made": "The project was created.",
        "provider-added": "The provider was added. Now choose its models.",
        "provider-saved": "The provider was changed; it is in force.",
        "provider-enabled": "The provider is on again.",
        "provider-disabled": "The provider is off; no requests go to it.",
        "provider-deleted": "The provider and its API key were deleted.",
        "models-taken": "The models that were picked are in force.",
        "alias-added": "The alias was created; requests may name it.",
        "alias-saved": "The alias was changed; it is in force.",
        "alias-enabled": "The alias is on again.",
        "alias-disabled": "The alias is off; requests for it are rejected.",
        "alias-deleted": "The alias was deleted.",
        "model-added": "The model was added; its first request loads it.",
        "model-saved": "The model was changed; it is in force.",
        "model-enabled": "The model is on again.",
        "model-disabled": "The model is off; requests for it are rejected.",
        "model-deleted": "The model was deleted.",
        "door-added": "The door was added; it is open.",
        "door-saved": "The door was changed; it is in force.",
        "door-enabled": "The door is open again.",
        "door-disabled": "The door is closed.",
        "door-deleted": "The door was deleted.",
        "models-published": "What was picked is published; the catalog shows it now.",
        "catalog-model-enabled": "The model is in the catalog.",
        "catalog-model-disabled": "The model was taken out of the catalog; its entry is kept.",
        "catalog-model-deleted": "The model was deleted from the catalog.",
        "channel-added": "The channel was added. Send a test to see that it arrives.",
        "channel-saved": "The channel was changed; it is in force.",
        "channel-enabled": "The channel is on again.",
        "channel-disabled": "The channel is off; it gets no alerts.",
        "channel-deleted": "The channel and its secret were deleted.",
    }
)
