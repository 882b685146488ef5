"""Links in the frame of every page: only to pages that exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from causerie.accounts.people import Project


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A place in the navigation. ``pattern`` is its path; ``group`` names who it is for:
    ``nobody`` is in no project."""

    title: str
    pattern: str
    icon: str
    group: str = "project"


@dataclass(frozen=True, slots=True)
class NavigationLink:
    """An entry as one page shows it."""

    title: str
    path: str
    icon: str
    here: bool


@dataclass(frozen=True, slots=True)
class NavigationSection:
    """Entries under one title."""

    title: str
    links: Sequence[NavigationLink]


ENTRIES = (
    NavigationEntry("Overview", "/projects/{project}/overview", "home"),
    NavigationEntry("Playground", "/projects/{project}/playground", "chat"),
    NavigationEntry("Models", "/projects/{project}/models", "cube"),
    NavigationEntry("Models", "/catalog", "cube", "nobody"),
    NavigationEntry("API Keys", "/projects/{project}/keys", "key"),
    NavigationEntry("Usage", "/projects/{project}/usage", "chart"),
    NavigationEntry("Activity", "/projects/{project}/activity", "list"),
    NavigationEntry("Project", "/projects/{project}", "folder"),
    NavigationEntry("Health", "/operator", "pulse", "operator"),
    NavigationEntry("Providers", "/operator/providers", "plug", "operator"),
    NavigationEntry("Aliases", "/operator/aliases", "tag", "operator"),
    NavigationEntry("Own models", "/operator/models", "cube", "operator"),
    NavigationEntry("Doors", "/operator/doors", "key", "operator"),
    NavigationEntry("Catalog models", "/operator/catalog", "cube", "operator"),
    NavigationEntry("Rankings", "/rankings", "up", "operator"),
    NavigationEntry("Routing", "/operator/explain", "route", "operator"),
    NavigationEntry("Alerts", "/operator/alerts", "bell", "operator"),
    NavigationEntry("Users", "/operator/users", "people", "operator"),
    NavigationEntry("Projects", "/operator/projects", "folders", "operator"),
    NavigationEntry("All usage", "/operator/usage", "chart", "operator"),
    NavigationEntry("All activity", "/operator/activity", "list", "operator"),
    NavigationEntry("Audit log", "/operator/audit", "shield", "operator"),
)


def sections(
    entries: Iterable[NavigationEntry], project: Project | None, path: str, *, operator: bool
) -> Sequence[NavigationSection]:
    """The navigation of a page at ``path``."""
    groups: dict[str, list[tuple[NavigationEntry, str]]] = {}
    for entry in entries:
        if entry.group == "operator" and not operator:
            continue
        if "{project}" in entry.pattern and project is None:
            continue
        if entry.group == "nobody" and project is not None:
            continue
        target = entry.pattern.replace("{project}", quote(project.id) if project else "")
        groups.setdefault("project" if entry.group == "nobody" else entry.group, []).append(
            (entry, target)
        )
    here = _longest([target for group in groups.values() for _, target in group], path)
    titles = {"project": "", "operator": "Operator"}
    return [
        NavigationSection(
            titles[name],
            [NavigationLink(each.title, to, each.icon, to == here) for each, to in found],
        )
        for name, found in groups.items()
    ]


def _longest(targets: Sequence[str], path: str) -> str:
    """The entry that a path is at or below."""
    fitting = [each for each in targets if path == each or path.startswith(f"{each}/")]
    return max(fitting, key=len, default="")
