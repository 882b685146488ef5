"""Links in the frame of every page: only to pages that exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from causerie.accounts.people import Project


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
    """An entry as one page shows it."""

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
        """Return whether one of its pages is open."""
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
    """The entry that a path is at or below."""
    fitting = [each for each in targets if path == each or path.startswith(f"{each}/")]
    return max(fitting, key=len, default="")
