"""What the frame of every page leads to: only pages that are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from causerie.accounts.people import Project


@dataclass(frozen=True, slots=True)
class Entry:
    """A place in the navigation. ``pattern`` is its path; ``group`` names who it is for."""

    title: str
    pattern: str
    icon: str
    group: str = "project"


@dataclass(frozen=True, slots=True)
class Link:
    """An entry as one page shows it."""

    title: str
    path: str
    icon: str
    here: bool


@dataclass(frozen=True, slots=True)
class Section:
    """Entries under one title."""

    title: str
    links: Sequence[Link]


ENTRIES = (
    Entry("Playground", "/projects/{project}/playground", "chat"),
    Entry("Models", "/projects/{project}/models", "cube"),
    Entry("Catalog", "/catalog", "tag"),
    Entry("API Keys", "/projects/{project}/keys", "key"),
    Entry("Usage", "/projects/{project}/usage", "chart"),
    Entry("Activity", "/projects/{project}/activity", "list"),
    Entry("Project", "/projects/{project}", "folder"),
    Entry("Health", "/operator", "pulse", "operator"),
    Entry("Endpoints", "/operator/endpoints", "plug", "operator"),
    Entry("Routes", "/operator/explain", "route", "operator"),
    Entry("Users", "/operator/users", "people", "operator"),
    Entry("Projects", "/operator/projects", "folders", "operator"),
    Entry("All usage", "/operator/usage", "chart", "operator"),
    Entry("All activity", "/operator/activity", "list", "operator"),
    Entry("Audit log", "/operator/audit", "shield", "operator"),
)


def sections(
    entries: Iterable[Entry], project: Project | None, path: str, *, operator: bool
) -> Sequence[Section]:
    """The navigation of a page at ``path``."""
    groups: dict[str, list[tuple[Entry, str]]] = {}
    for entry in entries:
        if entry.group == "operator" and not operator:
            continue
        if "{project}" in entry.pattern and project is None:
            continue
        target = entry.pattern.replace("{project}", quote(project.id) if project else "")
        groups.setdefault(entry.group, []).append((entry, target))
    here = _longest([target for group in groups.values() for _, target in group], path)
    titles = {"project": "", "operator": "Operator"}
    return [
        Section(titles[name], [Link(each.title, to, each.icon, to == here) for each, to in found])
        for name, found in groups.items()
    ]


def _longest(targets: Sequence[str], path: str) -> str:
    """The entry that a path is at or below."""
    fitting = [each for each in targets if path == each or path.startswith(f"{each}/")]
    return max(fitting, key=len, default="")
