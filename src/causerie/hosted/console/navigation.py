"""The frame of every page: links, only to pages that exist, and the notice after an action."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from causerie.hosted.accounts.people import Action, Project


class NavigationLink(Struct, frozen=True):
    """A place in the navigation. Those of operators have the title of a section that folds."""

    title: str
    path: str
    """With ``{project}``: only for members of one."""
    icon: str
    section: str = ""
    needs: Action | None = None
    """Right that a place of operators needs."""
    here: bool = False


class NavigationSection(Struct, frozen=True):
    """Links under one title; a section that folds has an icon."""

    title: str
    links: Sequence[NavigationLink]
    icon: str = ""

    def selling(self, selling: bool) -> NavigationSection:
        """Return the links without credits, where a project has none and none are sold."""
        kept = [each for each in self.links if selling or not each.path.endswith("/credits")]
        return replace(self, links=kept)


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
    NavigationLink("Credits", "/projects/{project}/credits", "card"),
    NavigationLink("Project", "/projects/{project}", "folder"),
    NavigationLink("Business", "/operator/business", "chart", "Service", Action.USAGE_SEE_ALL),
    NavigationLink("Health", "/operator", "pulse", "Service", Action.SERVICE_SEE),
    NavigationLink("Doors", "/operator/doors", "key", "Service", Action.PROVIDERS_SEE),
    NavigationLink("Routing", "/operator/explain", "route", "Service", Action.PROVIDERS_SEE),
    NavigationLink("Alerts", "/operator/alerts", "bell", "Service", Action.SERVICE_SEE),
    NavigationLink("Providers", "/operator/providers", "plug", "Models", Action.PROVIDERS_SEE),
    NavigationLink("Aliases", "/operator/aliases", "tag", "Models", Action.PROVIDERS_SEE),
    NavigationLink("Own models", "/operator/models", "cube", "Models", Action.PROVIDERS_SEE),
    NavigationLink("Catalog models", "/operator/catalog", "cube", "Models", Action.PROVIDERS_SEE),
    NavigationLink("Users", "/operator/users", "people", "People", Action.USERS_SEE),
    NavigationLink("Projects", "/operator/projects", "folders", "People", Action.USERS_SEE),
    NavigationLink("Policies", "/operator/policies", "shield", "People", Action.PROVIDERS_SEE),
    NavigationLink("Budgets", "/operator/budgets", "chart", "People", Action.USAGE_SEE_ALL),
    NavigationLink("Operator keys", "/operator/keys", "key", "People", Action.USERS_SEE),
    NavigationLink("All usage", "/operator/usage", "chart", "Reports", Action.USAGE_SEE_ALL),
    NavigationLink("All activity", "/operator/activity", "list", "Reports", Action.USAGE_SEE_ALL),
    NavigationLink("Rankings", "/rankings", "up", "Reports", Action.USAGE_SEE_ALL),
    NavigationLink("Status", "/status", "chart", "Reports", Action.USAGE_SEE_ALL),
    NavigationLink("Audit log", "/operator/audit", "shield", "Reports", Action.SERVICE_SEE),
)
_UNDER = {"/operator/invite": "/operator/users"}
"""Pages that belong to another than the one above them by their paths."""
_MARKET = ("/catalog", "/rankings", "/status")


def sections(
    project: Project | None, path: str, *, may: Callable[[Action], bool], has_catalog: bool
) -> Sequence[NavigationSection]:
    """Return the links for a visitor who ``may`` do this; those of the catalog only with one."""
    id, found = quote(project.id) if project is not None else "", list[NavigationLink]()
    for link in _LINKS:
        of_project = (link.path != "/catalog") is (project is not None)
        fits = of_project if link.needs is None else may(link.needs)
        if fits and (has_catalog or link.path not in _MARKET):
            found.append(replace(link, path=link.path.replace("{project}", id)))
    path = _UNDER.get(path, path)
    around = [link.path for link in found if f"{path}/".startswith(f"{link.path}/")]
    here = max(around, key=len, default="")
    shown = [replace(link, here=link.path == here) for link in found]
    return [
        NavigationSection(title, [*links], _SECTIONS.get(title, ""))
        for title, links in groupby(shown, lambda link: link.section)
    ]


NOTICES: Mapping[str, str] = {
    "key-saved": "The key was changed.",
    "key-disabled": "The key was disabled; it stops within a second.",
    "key-enabled": "The key works again.",
    "key-deleted": "The key was deleted.",
    "key-transferred": "The key was transferred.",
    "name-saved": "The name was changed.",
    "password-saved": "The password was changed; all other sessions have ended.",
    "address-asked": "If no account has the address yet, a letter to it is on its way.",
    "address-changed": "The address of your account was changed.",
    "account-deleted": "Your account was deleted.",
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
    "credits-put": "The credits were changed.",
    "paid": "Thank you. The credits are here as soon as the payment is confirmed.",
    "bounds-saved": "Limits and budgets were changed.",
    "access-saved": "Allowed models and doors were changed.",
    "recording-on": "Request logging is on.",
    "recording-off": "Request logging is off; all logged prompts and replies were deleted.",
    "invitation-withdrawn": "The invitation was withdrawn.",
    "member-changed": "The role was changed; their keys do what it allows.",
    "member-removed": "The member was removed.",
    "left": "You have left the project.",
    "user-disabled": "The user was disabled; their sessions have ended and their keys stop.",
    "user-enabled": "The user may sign in again; their keys work again.",
    "users-factor-removed": "Two-factor authentication was removed; their sessions have ended.",
    "operator-saved": "The rights over the service were changed.",
    "operator-key-deleted": "The key was deleted; it has stopped.",
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
    "policy-added": "The policy was created; it holds for new people or projects.",
    "policy-saved": "The policy was changed; it holds for new people or projects.",
    "policy-enabled": "The policy is on again.",
    "policy-disabled": "The policy is off.",
    "policy-deleted": "The policy was deleted.",
    "models-published": "What was picked is published; the catalog shows it now.",
    "catalog-model-added": "The model was added to the catalog.",
    "catalog-model-saved": "The model was changed; the catalog shows it now.",
    "catalog-model-enabled": "The model is in the catalog.",
    "catalog-model-disabled": "The model was taken out of the catalog; its entry is kept.",
    "catalog-model-deleted": "The model was deleted from the catalog.",
    "channel-added": "The channel was added. Send a test to see that it arrives.",
    "channel-saved": "The channel was changed; it is in force.",
    "channel-enabled": "The channel is on again.",
    "channel-disabled": "The channel is off; it gets no alerts.",
    "channel-deleted": "The channel and its secret were deleted.",
}
