"""The frame of every page: links, only to pages that exist, and the notice after an action."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import quote

from causerie.hosted.accounts.people import Project


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A place in the navigation. ``pattern`` is its path; ``group`` names who it is for:
    ``nobody`` is in no project. Entries of operators have the title of a section that folds."""

    title: str
    pattern: str
    icon: str
    group: str = "project"
    section: str = ""


@dataclass(frozen=True, slots=True)
class NavigationLink:
    title: str
    path: str
    icon: str
    here: bool


@dataclass(frozen=True, slots=True)
class NavigationSection:
    """Entries under one title; one that folds has an icon."""

    title: str
    links: Sequence[NavigationLink]
    icon: str = ""

    @property
    def here(self) -> bool:
        return any(link.here for link in self.links)


_SECTIONS = {"Service": "pulse", "Models": "cube", "People": "people", "Reports": "chart"}
"""Sections of operators, with their icons."""
ENTRIES = (
    NavigationEntry("Overview", "/projects/{project}/overview", "home"),
    NavigationEntry("Playground", "/projects/{project}/playground", "chat"),
    NavigationEntry("Models", "/projects/{project}/models", "cube"),
    NavigationEntry("Models", "/catalog", "cube", "nobody"),
    NavigationEntry("API Keys", "/projects/{project}/keys", "key"),
    NavigationEntry("Usage", "/projects/{project}/usage", "chart"),
    NavigationEntry("Activity", "/projects/{project}/activity", "list"),
    NavigationEntry("Project", "/projects/{project}", "folder"),
    NavigationEntry("Health", "/operator", "pulse", "operator", "Service"),
    NavigationEntry("Doors", "/operator/doors", "key", "operator", "Service"),
    NavigationEntry("Routing", "/operator/explain", "route", "operator", "Service"),
    NavigationEntry("Alerts", "/operator/alerts", "bell", "operator", "Service"),
    NavigationEntry("Providers", "/operator/providers", "plug", "operator", "Models"),
    NavigationEntry("Aliases", "/operator/aliases", "tag", "operator", "Models"),
    NavigationEntry("Own models", "/operator/models", "cube", "operator", "Models"),
    NavigationEntry("Catalog models", "/operator/catalog", "cube", "operator", "Models"),
    NavigationEntry("Users", "/operator/users", "people", "operator", "People"),
    NavigationEntry("Projects", "/operator/projects", "folders", "operator", "People"),
    NavigationEntry("All usage", "/operator/usage", "chart", "operator", "Reports"),
    NavigationEntry("All activity", "/operator/activity", "list", "operator", "Reports"),
    NavigationEntry("Rankings", "/rankings", "up", "operator", "Reports"),
    NavigationEntry("Audit log", "/operator/audit", "shield", "operator", "Reports"),
)


def sections(
    entries: Iterable[NavigationEntry], project: Project | None, path: str, *, operator: bool
) -> Sequence[NavigationSection]:
    groups: dict[str, list[tuple[NavigationEntry, str]]] = {}
    for entry in entries:
        if entry.group == "operator" and not operator:
            continue
        if "{project}" in entry.pattern and project is None:
            continue
        if entry.group == "nobody" and project is not None:
            continue
        target = entry.pattern.replace("{project}", quote(project.id) if project else "")
        groups.setdefault(entry.section, []).append((entry, target))
    here = _longest([target for group in groups.values() for _, target in group], path)
    return [
        NavigationSection(
            title,
            [NavigationLink(each.title, to, each.icon, to == here) for each, to in found],
            _SECTIONS.get(title, ""),
        )
        for title, found in groups.items()
    ]


def _longest(targets: Sequence[str], path: str) -> str:
    fitting = [each for each in targets if path == each or path.startswith(f"{each}/")]
    return max(fitting, key=len, default="")


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
