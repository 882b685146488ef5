"""Navigation links of every page, for those who may follow them, and the texts of notices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from urllib.parse import quote

from msgspec import Struct, convert
from msgspec.structs import replace

from causerie.hosted.accounts.people import Action, Project
from causerie.hosted.console.words import WORDS


class NavigationLink(Struct, frozen=True, array_like=True):
    """A link of the navigation; one for operators has the title of a ``section`` that folds."""

    title: str
    path: str
    """With ``{project}``: only for members of one."""
    icon: str
    section: str = ""
    needs: Action | None = None
    """Right that a place of operators needs."""
    here: bool = False
    shifted: str = ""
    """Path to which Shift-Enter leads in the palette."""


class NavigationSection(Struct, frozen=True):
    """Links under one title; a section that folds has an icon."""

    title: str
    links: Sequence[NavigationLink]
    icon: str = ""

    def selling(self, selling: bool) -> NavigationSection:
        """Return the section, without its link to credits if ``selling`` is false."""
        kept = [each for each in self.links if selling or not each.path.endswith("/credits")]
        return replace(self, links=kept)


_SECTIONS: Mapping[str, str] = WORDS["navigation"]["icons"]
_LINKS = convert(WORDS["navigation"]["links"], list[NavigationLink])
_UNDER = {"/operator/invite": "/operator/users"}
"""Pages that belong to another than the one above them by their paths."""
_MARKET = ("/catalog", "/rankings", "/status")


def sections(
    project: Project | None, path: str, *, may: Callable[[Action], bool], has_catalog: bool
) -> Sequence[NavigationSection]:
    """Return the navigation with the links that a visitor ``may`` follow, grouped by section."""
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


NOTICES: Mapping[str, str] = WORDS["notices"]
