"""Projects and who is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from causerie.errors import Forbidden, InvalidRequest
from causerie.hosted.accounts.audit import AuditEntry, AuditFilter, difference, entry
from causerie.hosted.accounts.authorization import (
    Clock,
    Narrowed,
    handed_over,
    no_such,
    require,
    supported_links,
    visible_project,
    withdraw_links,
    withdraw_open,
    working,
)
from causerie.hosted.accounts.bounds import LimitsAndBudgets, bounded
from causerie.hosted.accounts.keys import (
    ApiKey,
    LinkGrant,
    LinkKind,
    NewLink,
    OneTimeLink,
    new_link,
)
from causerie.hosted.accounts.people import (
    Action,
    Actor,
    Membership,
    Project,
    ProjectMember,
    Role,
    User,
)
from causerie.hosted.accounts.ports import AccountStore, Repositories
from causerie.hosted.accounts.tokens import new_id, tidy_email, tidy_name


@dataclass(frozen=True, slots=True)
class ProjectOverview:
    """A project with what it may use."""

    project: Project
    bounds: LimitsAndBudgets


@dataclass(frozen=True, slots=True)
class PlaygroundProject:
    """A project in which somebody talks with models, and what project and person may use."""

    project: Project
    bounds: LimitsAndBudgets
    person_bounds: LimitsAndBudgets


class Projects:
    """Makes projects, and sees to their members."""

    def __init__(self, store: AccountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, actor: Actor, name: str, *, owner: str | None = None) -> Project:
        """A project; its owner is the user named, or whoever makes it."""
        now = self._clock()
        project = Project(new_id("prj"), tidy_name(name), now)
        owner_id = owner or (actor.id if actor.kind == "user" else None)
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.PROJECTS_CREATE)
            await repositories.projects.add(project)
            if owner_id is not None:
                if await repositories.people.find(owner_id) is None:
                    raise no_such("user")
                await repositories.projects.join(Membership(project.id, owner_id, Role.OWNER, now))
            await self._note(
                repositories, actor, "project.create", project.id, project, name=project.name
            )
        return project

    async def see(self, actor: Actor, project_id: str) -> ProjectOverview:
        """The project, its limits and budgets."""
        async with self._store.reading() as repositories:
            project = await visible_project(repositories, actor, project_id)
            return ProjectOverview(project, await repositories.keys.bounds(f"project:{project_id}"))

    async def ask(self, actor: Actor, project_id: str) -> PlaygroundProject:
        """The project, for somebody who wants to talk with models in it, within what was put in.

        Raises :class:`Forbidden`, also where the project is archived.
        """
        async with self._store.reading() as repositories:
            project = await visible_project(repositories, actor, project_id, Action.MODELS_ASK)
            if project.archived_at is not None:
                raise Forbidden("The project is archived; bring it back first.", code="archived")
            put_in = await repositories.credits.total(project_id)
            owners = f"project:{project_id}", f"user:{actor.person}"
            found = await repositories.keys.bounds_of(owners)
            return PlaygroundProject(project, bounded(found[owners[0]], put_in), found[owners[1]])

    async def of(self, user: User) -> Sequence[tuple[Project, Membership]]:
        """The projects that somebody is in, by name."""
        async with self._store.reading() as repositories:
            return await repositories.projects.of(user.id)

    async def every(self, actor: Actor) -> Sequence[Project]:
        """All projects of the service, by name."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.USERS_SEE)
            return await repositories.projects.every()

    async def rename(self, actor: Actor, project_id: str, name: str) -> Project:
        async with self._store.writing() as repositories:
            project = await visible_project(repositories, actor, project_id, Action.PROJECT_RENAME)
            changed = replace(project, name=tidy_name(name))
            await repositories.projects.change(changed)
            await self._note(
                *(repositories, actor, "project.rename", project.id, project),
                name=difference(project.name, changed.name),
            )
        return changed

    async def archive(self, actor: Actor, project_id: str, *, archived: bool = True) -> Project:
        """Stop all its keys, or let them work again; nothing is lost."""
        async with self._store.writing() as repositories:
            project = await visible_project(repositories, actor, project_id, Action.PROJECT_ARCHIVE)
            changed = replace(project, archived_at=self._clock() if archived else None)
            await repositories.projects.change(changed)
            await repositories.keys.announce(f"project:{project.id}", self._clock())
            verb = "project.archive" if archived else "project.restore"
            await self._note(repositories, actor, verb, project.id, project)
        return changed

    async def set_bounds(self, actor: Actor, project_id: str, bounds: LimitsAndBudgets) -> None:
        """Set all limits and budgets of the project; raises :class:`InvalidRequest`."""
        bounds.check()
        async with self._store.writing() as repositories:
            project = await visible_project(repositories, actor, project_id, Action.BOUNDS_SET)
            owner = f"project:{project.id}"
            before = await repositories.keys.bounds(owner)
            await repositories.keys.set_bounds(owner, bounds)
            await repositories.keys.announce(owner, self._clock())
            await self._note(
                *(repositories, actor, "project.bounds", project.id, project),
                bounds=difference(before.words(), bounds.words()),
            )

    async def members(self, actor: Actor, project_id: str) -> Sequence[ProjectMember]:
        """Return the members, by name."""
        async with self._store.reading() as repositories:
            await visible_project(repositories, actor, project_id, Action.MEMBERS_SEE)
            return await repositories.projects.members(project_id)

    async def invitations(self, actor: Actor, project_id: str) -> Sequence[OneTimeLink]:
        """The invitations that nobody has used yet."""
        async with self._store.reading() as repositories:
            await visible_project(repositories, actor, project_id, Action.MEMBERS_SEE)
            found = await repositories.links.open(project_id, self._clock())
            return await supported_links(repositories, found)

    async def invite(
        self, actor: Actor, project_id: str, role: Role, *, email: str | None = None
    ) -> NewLink:
        """A link that makes its bearer a member; with ``email``, only for that address."""
        address = tidy_email(email) if email else None
        async with self._store.writing() as repositories:
            project = await visible_project(repositories, actor, project_id, Action.MEMBERS_INVITE)
            await self._owners_only(repositories, actor, project_id, role)
            made = new_link(
                LinkKind.INVITATION,
                self._clock(),
                actor,
                LinkGrant(email=address, project_id=project.id, role=role),
            )
            await repositories.links.add(made.link)
            await self._note(
                *(repositories, actor, "member.invite", made.link.id, project),
                role=role,
                email=address or "anybody",
            )
        return made

    async def withdraw(self, actor: Actor, project_id: str, link_id: str) -> None:
        """Take an invitation back."""
        async with self._store.writing() as repositories:
            project = await visible_project(repositories, actor, project_id, Action.MEMBERS_INVITE)
            link = await repositories.links.find(link_id)
            if link is None or link.project_id != project_id:
                raise no_such("invitation")
            if link.role is not None:
                await self._owners_only(repositories, actor, project_id, link.role)
            await repositories.links.withdraw(link_id)
            await self._note(repositories, actor, "member.withdraw", link_id, project)

    async def change_role(
        self, actor: Actor, project_id: str, user_id: str, role: Role
    ) -> Narrowed:
        """Make a member something else; what derives from them is narrowed to the new role."""
        now = self._clock()
        async with self._store.writing() as repositories:
            project = await visible_project(repositories, actor, project_id, Action.MEMBERS_CHANGE)
            before = await self._member(repositories, project_id, user_id)
            await self._owners_only(repositories, actor, project_id, role, before.role)
            await self._keep_an_owner(repositories, before, role)
            worked = working(await repositories.keys.derived(user_id, project_id), now)
            await repositories.projects.join(replace(before, role=role))
            links = await withdraw_links(repositories, user_id, now)
            keys = await repositories.keys.derived(user_id, project_id)
            await repositories.keys.announce(f"user:{user_id}", now)
            await self._note(
                *(repositories, actor, "member.change", user_id, project),
                role=difference(before.role, role),
            )
        stopped = worked - working(keys, now)
        return Narrowed(tuple(key for key in keys if key.id in stopped), (), links)

    async def remove(
        self, actor: Actor, project_id: str, user_id: str, *, keys_to: str | None = None
    ) -> Narrowed:
        """Remove a member; what derives from them is withdrawn.

        Their keys are transferred to the member ``keys_to`` instead, where one is named. The
        invitations for their address are withdrawn too, and where somebody else removes them
        those for nobody in particular.
        """
        now = self._clock()
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.MEMBERS_REMOVE, project_id, made_by=user_id)
            project = await visible_project(repositories, actor, project_id)
            before = await self._member(repositories, project_id, user_id)
            if user_id != actor.id:
                await self._owners_only(repositories, actor, project_id, before.role)
            await self._keep_an_owner(repositories, before, None)
            if keys_to is not None:
                await require(repositories, actor, Action.KEYS_TRANSFER, project_id)
            found = await repositories.keys.derived(user_id, project_id)
            await repositories.projects.leave(project_id, user_id, now)
            links = await withdraw_links(repositories, user_id, now)
            if user_id != actor.id:
                links += await self._withdraw_open(repositories, project_id, user_id, now)
            narrowed = await self._parted(repositories, found, keys_to, now)
            await repositories.keys.announce(f"user:{user_id}", now)
            keys = "withdrawn" if keys_to is None else f"transferred to {keys_to}"
            await self._note(repositories, actor, "member.remove", user_id, project, keys=keys)
        return replace(narrowed, invitations_withdrawn=links)

    async def audit(
        self, actor: Actor, project_id: str, filter: AuditFilter
    ) -> Sequence[AuditEntry]:
        """Return the audit log of the project, newest first."""
        async with self._store.reading() as repositories:
            await visible_project(repositories, actor, project_id, Action.AUDIT_SEE)
            return await repositories.audit.find(replace(filter, project_id=project_id))

    async def audit_of_all(self, actor: Actor, filter: AuditFilter) -> Sequence[AuditEntry]:
        """Return the audit log of the whole service, newest first."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.SERVICE_SEE)
            return await repositories.audit.find(filter)

    async def _member(
        self, repositories: Repositories, project_id: str, user_id: str
    ) -> Membership:
        found = await repositories.projects.membership(project_id, user_id)
        if found is None:
            raise no_such("member")
        return found

    async def _owners_only(
        self, repositories: Repositories, actor: Actor, project_id: str, *roles: Role
    ) -> None:
        if Role.OWNER in roles:
            await require(repositories, actor, Action.OWNERS_CHANGE, project_id)

    async def _keep_an_owner(
        self, repositories: Repositories, before: Membership, role: Role | None
    ) -> None:
        leaves = before.role is Role.OWNER and role is not Role.OWNER
        if leaves and await repositories.projects.owners(before.project_id) == 1:
            raise InvalidRequest(
                "This is the last owner of the project; make somebody else one first.",
                code="last_owner",
                status=409,
            )

    async def _parted(
        self, repositories: Repositories, keys: Sequence[ApiKey], to: str | None, now: datetime
    ) -> Narrowed:
        if to is None:
            await repositories.keys.withdraw([key.id for key in keys], now)
            worked = working(keys, now)
            gone = (replace(key, withdrawn_at=now) for key in keys if key.id in worked)
            return Narrowed(keys_stopped=tuple(gone))
        given = [
            await handed_over(repositories, key, to, param="keys_to")
            for key in keys
            if key.withdrawn_at is None
        ]
        for key in given:
            await repositories.keys.change(key)
        return Narrowed(keys_transferred=tuple(given))

    async def _withdraw_open(
        self, repositories: Repositories, project_id: str, user_id: str, now: datetime
    ) -> int:
        user = await repositories.people.find(user_id)
        email = user.email if user is not None else ""
        return await withdraw_open(repositories, project_id, email, now)

    async def _note(
        self,
        repositories: Repositories,
        actor: Actor,
        what: str,
        subject: str,
        project: Project,
        **details: str,
    ) -> None:
        await repositories.audit.add(
            entry(self._clock(), actor, what, subject, project.id, **details)
        )
