"""The names that people gave to what records know by its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from causerie.accounts.usage import By
from causerie.console.request_context import RequestContext
from causerie.errors import Forbidden

_NONE = {
    By.KEY: "playground",
    By.USER: "no user",
    By.PROJECT: "no project",
    By.APP: "not named",
    By.TAG: "no tag",
}


class DisplayNames:
    """Names by id; two things of one name are told apart by their ids."""

    def __init__(self, known: Mapping[str, str], none: str = "none") -> None:
        self.known = known
        self._none = none
        self._bearers = Counter(known.values())

    def of(self, id: str) -> str:
        """The name; the id itself of what is gone."""
        if not id:
            return self._none
        name = self.known.get(id, id)
        return f"{name} ({id})" if self._bearers[name] > 1 else name


async def names_of(context: RequestContext, project: str | None, by: By) -> DisplayNames:
    """The names of keys, people or projects; models and doors are their own."""
    return DisplayNames(await _known(context, project, by), _NONE.get(by, "not known"))


async def _known(context: RequestContext, project: str | None, by: By) -> Mapping[str, str]:
    if by is By.PROJECT:
        return {one.id: one.name for one in await context.accounts.projects.every(context.actor)}
    if by is By.USER and project is None:
        return {user.id: user.name for user in await context.accounts.users.every(context.actor)}
    if project is None:
        return {}
    try:
        if by is By.KEY:
            return {
                key.id: key.name for key in await context.accounts.keys.of(context.actor, project)
            }
        if by is By.USER:
            members = await context.accounts.projects.members(context.actor, project)
            return {member.user.id: member.user.name for member in members}
    except Forbidden:  # the numbers may be seen by some who may not see whose they are
        return {}
    return {}
