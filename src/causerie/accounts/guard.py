"""Asks the table of rights, for somebody in a project, inside the transaction that acts on it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from causerie.accounts.people import Actor, Project
from causerie.accounts.ports import Books
from causerie.accounts.rights import WORDS, Action, Extent, Part, extent
from causerie.errors import Forbidden, NotFound

Clock = Callable[[], datetime]


async def parts(books: Books, actor: Actor, project_id: str | None) -> frozenset[Part]:
    """The columns of the table that somebody is in."""
    found = {Part.OUTSIDER}
    if actor.operator:
        found.add(Part.OPERATOR)
    if project_id is None:
        return frozenset(found)
    if actor.kind == "key" and actor.project == project_id:
        found.add(Part.MANAGEMENT_KEY)
    if actor.kind == "user":
        membership = await books.projects.membership(project_id, actor.id)
        if membership is not None:
            found.add(Part(membership.role))
    return frozenset(found)


async def require(
    books: Books,
    actor: Actor,
    action: Action,
    project_id: str | None = None,
    *,
    made_by: str | None = None,
) -> Extent:
    """How far ``actor`` may; ``made_by`` is whose the thing is.

    Raises :class:`Forbidden`, and :class:`NotFound` where they may not even see the project.
    """
    if actor.kind == "system":
        return Extent.ALL
    columns = await parts(books, actor, project_id)
    reach = extent(action, columns)
    if reach is Extent.ALL or (reach is Extent.OWN and made_by == actor.id):
        return reach
    if project_id is not None and extent(Action.PROJECT_SEE, columns) is Extent.NO:
        raise no_such("project")
    raise forbidden(action, reach)


async def visible_project(
    books: Books, actor: Actor, project_id: str, action: Action = Action.PROJECT_SEE
) -> Project:
    """The project, if it is there and ``actor`` may do this in it."""
    await require(books, actor, action, project_id)
    project = await books.projects.find(project_id)
    if project is None:
        raise no_such("project")
    return project


def forbidden(action: Action, reach: Extent) -> Forbidden:
    """What is said to who may do this only so far."""
    only = " (you may with what you made yourself)" if reach is Extent.OWN else ""
    return Forbidden(f"You may not {WORDS[action]}{only}.", code="scope_not_allowed")


def no_such(what: str) -> NotFound:
    """What is said of things that are not there, and of those that may not be seen."""
    return NotFound(f"There is no such {what}.", code="not_found")
