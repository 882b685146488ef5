"""Asks the table of rights, for somebody in a project, inside the transaction that acts on it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from causerie.accounts.people import Actor, Project
from causerie.accounts.ports import Repositories
from causerie.accounts.rights import WORDS, Action, Extent, RoleColumn, columns, extent
from causerie.errors import Forbidden, NotFound

Clock = Callable[[], datetime]


async def parts(
    repositories: Repositories, actor: Actor, project_id: str | None
) -> tuple[frozenset[RoleColumn], ...]:
    """Return the columns of the table that apply, as one or more sets that all have to allow.

    A management key that derives from a person has two: its own and those of the person, who are
    looked up as they are now.
    """
    if actor.kind == "user":
        return (columns(await repositories.people.person_status(actor.id, project_id)),)
    own = {RoleColumn.OUTSIDER}
    if actor.operator:
        own.add(RoleColumn.OPERATOR)
    if project_id is not None and actor.project == project_id:
        own.add(RoleColumn.MANAGEMENT_KEY)
    if not actor.holder:
        return (frozenset(own),)
    return frozenset(own), columns(
        await repositories.people.person_status(actor.holder, project_id)
    )


async def reach(
    repositories: Repositories, actor: Actor, action: Action, project_id: str | None = None
) -> Extent:
    """Return how far ``actor`` may do this now."""
    if actor.kind == "system":
        return Extent.ALL
    return min(extent(action, each) for each in await parts(repositories, actor, project_id))


async def require(
    repositories: Repositories,
    actor: Actor,
    action: Action,
    project_id: str | None = None,
    *,
    made_by: str | None = None,
) -> Extent:
    """Return the extent to which ``actor`` may do this.

    ``made_by`` is the person from whom the object derives. Raises :class:`Forbidden`, and
    :class:`NotFound` if the actor may not even see the project.
    """
    found = await reach(repositories, actor, action, project_id)
    own = bool(made_by) and made_by == actor.person
    if found is Extent.ALL or (found is Extent.OWN and own):
        return found
    if (
        project_id is not None
        and await reach(repositories, actor, Action.PROJECT_SEE, project_id) is Extent.NO
    ):
        raise no_such("project")
    raise forbidden(action, found)


async def visible_project(
    repositories: Repositories, actor: Actor, project_id: str, action: Action = Action.PROJECT_SEE
) -> Project:
    """The project, if it is there and ``actor`` may do this in it."""
    await require(repositories, actor, action, project_id)
    project = await repositories.projects.find(project_id)
    if project is None:
        raise no_such("project")
    return project


def forbidden(action: Action, reach: Extent) -> Forbidden:
    """Return the error for an action that the actor may not do to this extent."""
    only = " (you may with what you made yourself)" if reach is Extent.OWN else ""
    return Forbidden(f"You may not {WORDS[action]}{only}.", code="scope_not_allowed")


def no_such(what: str) -> NotFound:
    """Return the error for objects that do not exist or that the actor may not see."""
    return NotFound(f"There is no such {what}.", code="not_found")
