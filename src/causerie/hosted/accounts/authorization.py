"""Checks of the rights of actors, inside the transaction that acts on the result.

Also has the base class of the services that make these checks.

Keys and links that derive from a person are checked by the person's present account and role
whenever they are used. If these are lost, keys and links are withdrawn in addition, so that coming
back does not revive them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

from causerie.access.allowed import ALL, Access
from causerie.errors import Forbidden, InvalidRequest, NotFound
from causerie.hosted.accounts.bounds import NOTHING_FOR_NEWCOMERS, UNBOUNDED, LimitsAndBudgets, Unit
from causerie.hosted.accounts.keys import (
    LINK_LIVES,
    ApiKey,
    KeyState,
    LinkKind,
    NewLink,
    OneTimeLink,
    Purpose,
    may_hold,
    no_such_link,
)
from causerie.hosted.accounts.people import (
    Action,
    Actor,
    Extent,
    Project,
    Role,
    RoleColumn,
    User,
    columns,
    extent,
)
from causerie.hosted.accounts.records import difference, entry
from causerie.hosted.accounts.tokens import digest, new_id, new_token
from causerie.hosted.store.accounts import SqlStore, Transaction

Clock = Callable[[], datetime]
T = TypeVar("T")


async def parts(
    tx: Transaction, actor: Actor, project_id: str | None
) -> tuple[frozenset[RoleColumn], ...]:
    """Return the actor's sets of columns in the table of rights; each set has to allow an action.

    A management key that derives from a person has two: its own and those of the person.
    """
    if actor.kind == "user":
        return (columns(await tx.people.person_status(actor.id, project_id)),)
    own = {RoleColumn.OUTSIDER}
    if actor.operator:
        own.add(RoleColumn.OPERATOR)
    own.update(map(RoleColumn, actor.rights))
    if actor.oversees:
        own.add(RoleColumn.OPERATOR_KEY)
    if project_id is not None and actor.project == project_id:
        own.add(RoleColumn.MANAGEMENT_KEY)
    if not actor.holder:
        return (frozenset(own),)
    return frozenset(own), columns(await tx.people.person_status(actor.holder, project_id))


async def reach(
    tx: Transaction, actor: Actor, action: Action, project_id: str | None = None
) -> Extent:
    """Return the extent to which the actor may do an action now."""
    if actor.kind == "system":
        return Extent.ALL
    return min(extent(action, each) for each in await parts(tx, actor, project_id))


async def require(
    tx: Transaction,
    actor: Actor,
    action: Action,
    project_id: str | None = None,
    *,
    made_by: str | None = None,
) -> Extent:
    """Return the extent of the right to ``action``; raise :class:`Forbidden` without the right.

    ``made_by`` is the person from whom the object derives. Raises :class:`NotFound` if the actor
    may not even see the project.
    """
    found = await reach(tx, actor, action, project_id)
    own = bool(made_by) and made_by == actor.person
    if found is Extent.ALL or (found is Extent.OWN and own):
        return found
    if (
        project_id is not None
        and await reach(tx, actor, Action.PROJECT_SEE, project_id) is Extent.NO
    ):
        raise no_such("project")
    raise forbidden(action, found)


async def visible_project(
    tx: Transaction, actor: Actor, project_id: str, action: Action = Action.PROJECT_SEE
) -> Project:
    """Return the project if ``actor`` may do ``action`` in it; raise as :func:`require`."""
    await require(tx, actor, action, project_id)
    return existing(await tx.projects.find(project_id), "project")


def existing(found: T | None, what: str) -> T:
    """Return ``found``; raise :class:`NotFound` if it is ``None``."""
    if found is None:
        raise no_such(what)
    return found


def forbidden(action: Action, reach: Extent) -> Forbidden:
    """Return the error for an action that goes beyond the extent of the actor's right."""
    only = " (you may with what you made yourself)" if reach is Extent.OWN else ""
    return Forbidden(f"You may not {action.words}{only}.", code="scope_not_allowed")


def conflict(code: str, message: str, param: str | None = None) -> InvalidRequest:
    """Return the error (409) for an action that the present state does not allow."""
    return InvalidRequest(message, param=param, code=code, status=409)


def no_such(what: str) -> NotFound:
    """Return the error (404) for objects that do not exist or that the actor may not see."""
    return NotFound(f"There is no such {what}.", code="not_found")


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Keys stopped or transferred, and invitations withdrawn, when a member has lost rights."""

    keys_stopped: tuple[ApiKey, ...] = ()
    keys_transferred: tuple[ApiKey, ...] = ()
    invitations_withdrawn: int = 0


def rights_to_create(link: OneTimeLink) -> tuple[Action, ...]:
    """Return the actions that an actor has to be allowed in order to create ``link``."""
    if link.kind is not LinkKind.INVITATION:
        return (Action.USERS_INVITE,)
    if link.project_id is None:
        return (Action.USERS_INVITE, *((Action.OPERATORS_CHANGE,) if link.operator else ()))
    owner = (Action.OWNERS_CHANGE,) if link.role is Role.OWNER else ()
    return (Action.MEMBERS_INVITE, *owner)


async def add_link(tx: Transaction, kind: LinkKind, actor: Actor, **granted: Any) -> NewLink:
    """Create a one-time link that expires as its kind does; ``granted`` are fields of the link."""
    token = new_token()
    link = OneTimeLink(
        id=new_id("lnk"),
        kind=kind,
        digest=digest(token),
        created_by=actor.label,
        created_at=tx.now,
        expires_at=tx.now + LINK_LIVES[kind],
        **{"person": actor.person, **granted},
    )
    await tx.links.add(link)
    return NewLink(link, token)


async def supported(tx: Transaction, link: OneTimeLink) -> bool:
    """Return whether the person from whom a link derives may still create it."""
    if not link.person:
        return True
    maker = Actor("user", link.person, "")
    for action in rights_to_create(link):
        if await reach(tx, maker, action, link.project_id) is not Extent.ALL:
            return False
    return True


async def supported_links(tx: Transaction, links: Sequence[OneTimeLink]) -> Sequence[OneTimeLink]:
    """Return the links that are :func:`supported`, with one check for similar links."""
    alike: dict[tuple[str, str | None, tuple[Action, ...]], bool] = {}
    found = []
    for link in links:
        kind = (link.person or "", link.project_id, rights_to_create(link))
        if kind not in alike:
            alike[kind] = await supported(tx, link)
        if alike[kind]:
            found.append(link)
    return found


async def usable_link(tx: Transaction, token: str) -> OneTimeLink:
    """Return the link of a token; raise :class:`NotFound` if it does not work."""
    link = await tx.links.one(digest=digest(token))
    if link is None or link.used_at is not None or link.expires_at <= tx.now:
        raise no_such_link()
    if not await supported(tx, link):
        raise no_such_link()
    return link


async def used_link(tx: Transaction, token: str, *kinds: LinkKind) -> OneTimeLink:
    """Mark the link of a token as used, and return it; raise :class:`NotFound` for other kinds."""
    link = await usable_link(tx, token)
    if link.kind not in kinds or not await tx.links.use(link.id):
        raise no_such_link()
    return link


async def withdraw_links(tx: Transaction, user_id: str) -> int:
    """Withdraw the links that a user may no longer create; return their number."""
    every = await tx.links.open(person=user_id)
    kept = {link.id for link in await supported_links(tx, every)}
    return await tx.links.withdraw(link for link in every if link.id not in kept)


async def withdraw_open(
    tx: Transaction, project_id: str | None, email: str, *, others: bool = True
) -> int:
    """Withdraw a project's invitations that a removed user could use; return their number.

    These are for their address, or (``others``) for no address: such a link works with another
    account. Without a project, they are to the service.
    """
    found = await tx.links.open(project_id=project_id)
    usable = (email, None) if others else (email,)
    return await tx.links.withdraw(link for link in found if link.email in usable)


async def shut_out(tx: Transaction, user: User) -> None:
    """Withdraw all links by which a disabled user could come back."""
    await withdraw_links(tx, user.id)
    await tx.links.withdraw(await tx.links.open(user_id=user.id))
    for project, _ in await tx.projects.of(user.id):
        await withdraw_open(tx, project.id, user.email)


def working(keys: Sequence[ApiKey], now: datetime) -> frozenset[str]:
    return frozenset(key.id for key in keys if key.state(now) is KeyState.ACTIVE)


async def handed_over(tx: Transaction, key: ApiKey, to: str, *, param: str = "to") -> ApiKey:
    """Return ``key`` as derived from user ``to``; raise :class:`InvalidRequest` if not allowed."""
    person_status = await tx.people.person_status(to, key.project_id)
    heir = Actor("user", to, "")
    allowed = may_hold(person_status, key.purpose) and (
        key.purpose is Purpose.INFERENCE
        or await reach(tx, heir, Action.MANAGEMENT_KEYS, key.project_id) is Extent.ALL
    )
    if not allowed:
        raise InvalidRequest(
            f"The key `{key.name}` can only be transferred to a member of its project who may "
            f"create {key.purpose} keys.",
            param=param,
        )
    return replace(key, person=to, person_status=person_status, withdrawn_at=None)


LOGGERS = frozenset({RoleColumn.OWNER, RoleColumn.ADMIN, RoleColumn.MANAGEMENT_KEY})


@dataclass(frozen=True, slots=True)
class Beginning:
    """The budget, limits and access of a new person or project."""

    bounds: LimitsAndBudgets = UNBOUNDED
    access: Access = ALL

    async def give(self, tx: Transaction, owner: str) -> None:
        """Store these bounds and this access for an owner, like ``user:ID``."""
        if self.bounds != UNBOUNDED:
            await tx.keys.set_bounds({owner: self.bounds})
        if self.access != ALL:
            await tx.keys.set_access(owner, self.access)


@dataclass(frozen=True, slots=True)
class Policies:
    person: Beginning = field(default_factory=Beginning)
    project: Beginning = field(default_factory=Beginning)
    personal_project: Beginning | None = field(default_factory=Beginning)
    """Of people who sign up; ``None``: they get none."""
    personal_project_name: str = "{name}'s project"
    personal_credits: Decimal = Decimal(0)
    """Put into the first project of people who sign up."""
    own_projects: int = 1
    """Projects that people may own without an operator, who gives them more than these."""
    personal_role: Role = Role.OWNER
    loggers: frozenset[RoleColumn] = LOGGERS
    """Who may turn on request logging; empty: nobody, and nothing is logged."""

    @property
    def later_project(self) -> Beginning | None:
        """Return the defaults of a project that people create themselves; it may spend nothing."""
        first = self.personal_project
        if first is None:
            return None
        kept = tuple(one for one in first.bounds.budgets if one.unit is not Unit.MONEY)
        bounds = LimitsAndBudgets(first.bounds.limits, (*kept, NOTHING_FOR_NEWCOMERS))
        return replace(first, bounds=bounds)


class AccountService:
    """Base class of services over one store, whose methods check the rights of actors.

    Methods with an actor raise :class:`Forbidden` without the right, and :class:`NotFound` for what
    the actor may not see.
    """

    policies = Policies()

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._clock = store.clock

    async def require(self, actor: Actor, action: Action, project_id: str | None = None) -> None:
        """Raise :class:`Forbidden` unless ``actor`` may do ``action``, in the project if named."""
        async with self._begin_read(actor, action, project_id):
            pass

    async def record(
        self, actor: Actor, needs: Action, action: str, subject: str, **details: str
    ) -> None:
        """Add an audit entry; raise :class:`Forbidden` if the actor lacks the right ``needs``."""
        async with self._begin_write(actor, needs) as tx:
            await tx.audit.record(actor, action, subject, **details)

    def _begin_read(
        self, actor: Actor, action: Action, project_id: str | None = None
    ) -> AbstractAsyncContextManager[Transaction]:
        return _open_permitted_transaction(self._store.reading(), actor, action, project_id)

    def _begin_write(
        self, actor: Actor, action: Action, project_id: str | None = None
    ) -> AbstractAsyncContextManager[Transaction]:
        return _open_permitted_transaction(self._store.writing(), actor, action, project_id)


async def set_bounds(tx: Transaction, actor: Actor, bounds: Mapping[str, LimitsAndBudgets]) -> None:
    """Replace the bounds of owners, named like ``user:ID``, and add audit entries."""
    before = await tx.keys.bounds_of([*bounds])
    await tx.keys.set_bounds(bounds)
    await tx.keys.announce(*bounds)
    entries = []
    for owner, after in bounds.items():
        kind, _, id = owner.partition(":")
        project_id = id if kind == "project" else None
        words = difference(before[owner].words(), after.words())
        entries.append(entry(tx.now, actor, f"{kind}.bounds", id, project_id, bounds=words))
    await tx.audit.add(*entries)


@asynccontextmanager
async def _open_permitted_transaction(
    transaction: AbstractAsyncContextManager[Transaction],
    actor: Actor,
    action: Action,
    project_id: str | None,
) -> AsyncIterator[Transaction]:
    async with transaction as tx:
        if project_id is None:
            await require(tx, actor, action)
        else:
            await visible_project(tx, actor, project_id, action)
        yield tx
