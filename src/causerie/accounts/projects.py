"""Projects and who is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from causerie.accounts.audit import AuditEntry, AuditFilter, entry
from causerie.accounts.bounds import Bounds
from causerie.accounts.credit import bounded
from causerie.accounts.derivation import (
    Narrowed,
    handed_over,
    supported,
    withdraw_links,
    withdraw_open,
    working,
)
from causerie.accounts.guard import Clock, no_such, require, visible_project
from causerie.accounts.keys import ApiKey
from causerie.accounts.links import Link, LinkKind, NewLink, Offer, new_link
from causerie.accounts.names import new_id, tidy_email, tidy_name
from causerie.accounts.people import Actor, Member, Membership, Project, Role, User
from causerie.accounts.ports import Books, Store
from causerie.accounts.rights import Action
from causerie.errors import Forbidden, InvalidRequest


@dataclass(frozen=True, slots=True)
class ProjectView:
    """A project with what it may use."""

    project: Project
    bounds: Bounds


class Projects:
    """Makes projects, and sees to their members."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, actor: Actor, name: str, *, owner: str | None = None) -> Project:
        """A project; its owner is the user named, or whoever makes it."""
        now = self._clock()
        project = Project(new_id("prj"), tidy_name(name), now)
        owner_id = owner or (actor.id if actor.kind == "user" else None)
        async with self._store.writing() as books:
            await require(books, actor, Action.PROJECTS_CREATE)
            await books.projects.add(project)
            if owner_id is not None:
                if await books.people.find(owner_id) is None:
                    raise no_such("user")
                await books.projects.join(Membership(project.id, owner_id, Role.OWNER, now))
            await self._note(books, actor, "project.create", project.id, project, name=project.name)
        return project

    async def see(self, actor: Actor, project_id: str) -> ProjectView:
        """The project, its limits and budgets."""
        async with self._store.reading() as books:
            project = await visible_project(books, actor, project_id)
            return ProjectView(project, await books.keys.bounds(f"project:{project_id}"))

    async def ask(self, actor: Actor, project_id: str) -> ProjectView:
        """The project, for somebody who wants to talk with models in it, within what was put in.

        Raises :class:`Forbidden`, also where the project is archived.
        """
        async with self._store.reading() as books:
            project = await visible_project(books, actor, project_id, Action.MODELS_ASK)
            if project.archived_at is not None:
                raise Forbidden("The project is archived; bring it back first.", code="archived")
            bounds = await books.keys.bounds(f"project:{project_id}")
            return ProjectView(project, bounded(bounds, await books.credits.total(project_id)))

    async def of(self, user: User) -> Sequence[tuple[Project, Membership]]:
        """The projects that somebody is in, by name."""
        async with self._store.reading() as books:
            return await books.projects.of(user.id)

    async def every(self, actor: Actor) -> Sequence[Project]:
        """All projects of the service, by name."""
        async with self._store.reading() as books:
            await require(books, actor, Action.USERS_SEE)
            return await books.projects.every()

    async def rename(self, actor: Actor, project_id: str, name: str) -> Project:
        """Give it another name."""
        async with self._store.writing() as books:
            project = await visible_project(books, actor, project_id, Action.PROJECT_RENAME)
            changed = replace(project, name=tidy_name(name))
            await books.projects.change(changed)
            await self._note(books, actor, "project.rename", project.id, project, name=changed.name)
        return changed

    async def archive(self, actor: Actor, project_id: str, *, archived: bool = True) -> Project:
        """Stop all its keys, or let them work again; nothing is lost."""
        async with self._store.writing() as books:
            project = await visible_project(books, actor, project_id, Action.PROJECT_ARCHIVE)
            changed = replace(project, archived_at=self._clock() if archived else None)
            await books.projects.change(changed)
            await books.keys.announce(f"project:{project.id}", self._clock())
            verb = "project.archive" if archived else "project.restore"
            await self._note(books, actor, verb, project.id, project)
        return changed

    async def set_bounds(self, actor: Actor, project_id: str, bounds: Bounds) -> None:
        """Set all limits and budgets of the project; raises :class:`InvalidRequest`."""
        bounds.check()
        async with self._store.writing() as books:
            project = await visible_project(books, actor, project_id, Action.BOUNDS_SET)
            await books.keys.set_bounds(f"project:{project.id}", bounds)
            await books.keys.announce(f"project:{project.id}", self._clock())
            await self._note(
                books, actor, "project.bounds", project.id, project, bounds=bounds.words()
            )

    async def members(self, actor: Actor, project_id: str) -> Sequence[Member]:
        """Who is in it, by name."""
        async with self._store.reading() as books:
            await visible_project(books, actor, project_id, Action.MEMBERS_SEE)
            return await books.projects.members(project_id)

    async def invitations(self, actor: Actor, project_id: str) -> Sequence[Link]:
        """The invitations that nobody has used yet."""
        async with self._store.reading() as books:
            await visible_project(books, actor, project_id, Action.MEMBERS_SEE)
            found = await books.links.open(project_id, self._clock())
            return [link for link in found if await supported(books, link)]

    async def invite(
        self, actor: Actor, project_id: str, role: Role, *, email: str | None = None
    ) -> NewLink:
        """A link that makes its bearer a member; with ``email``, only for that address."""
        address = tidy_email(email) if email else None
        async with self._store.writing() as books:
            project = await visible_project(books, actor, project_id, Action.MEMBERS_INVITE)
            await self._owners_only(books, actor, project_id, role)
            made = new_link(
                LinkKind.INVITATION,
                self._clock(),
                actor,
                Offer(email=address, project_id=project.id, role=role),
            )
            await books.links.add(made.link)
            await self._note(
                *(books, actor, "member.invite", made.link.id, project),
                role=role,
                email=address or "anybody",
            )
        return made

    async def withdraw(self, actor: Actor, project_id: str, link_id: str) -> None:
        """Take an invitation back."""
        async with self._store.writing() as books:
            project = await visible_project(books, actor, project_id, Action.MEMBERS_INVITE)
            link = await books.links.find(link_id)
            if link is None or link.project_id != project_id:
                raise no_such("invitation")
            if link.role is not None:
                await self._owners_only(books, actor, project_id, link.role)
            await books.links.withdraw(link_id)
            await self._note(books, actor, "member.withdraw", link_id, project)

    async def change_role(
        self, actor: Actor, project_id: str, user_id: str, role: Role
    ) -> Narrowed:
        """Make a member something else; what derives from them is narrowed to the new role."""
        now = self._clock()
        async with self._store.writing() as books:
            project = await visible_project(books, actor, project_id, Action.MEMBERS_CHANGE)
            before = await self._member(books, project_id, user_id)
            await self._owners_only(books, actor, project_id, role, before.role)
            await self._keep_an_owner(books, before, role)
            worked = working(await books.keys.derived(user_id, project_id), now)
            await books.projects.join(replace(before, role=role))
            links = await withdraw_links(books, user_id, now)
            keys = await books.keys.derived(user_id, project_id)
            await books.keys.announce(f"user:{user_id}", now)
            await self._note(books, actor, "member.change", user_id, project, role=role)
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
        async with self._store.writing() as books:
            await require(books, actor, Action.MEMBERS_REMOVE, project_id, made_by=user_id)
            project = await visible_project(books, actor, project_id)
            before = await self._member(books, project_id, user_id)
            if user_id != actor.id:
                await self._owners_only(books, actor, project_id, before.role)
            await self._keep_an_owner(books, before, None)
            if keys_to is not None:
                await require(books, actor, Action.KEYS_TRANSFER, project_id)
            found = await books.keys.derived(user_id, project_id)
            await books.projects.leave(project_id, user_id, now)
            links = await withdraw_links(books, user_id, now)
            if user_id != actor.id:
                links += await self._withdraw_open(books, project_id, user_id, now)
            narrowed = await self._parted(books, found, keys_to, now)
            await books.keys.announce(f"user:{user_id}", now)
            keys = "withdrawn" if keys_to is None else f"transferred to {keys_to}"
            await self._note(books, actor, "member.remove", user_id, project, keys=keys)
        return replace(narrowed, invitations_withdrawn=links)

    async def audit(
        self, actor: Actor, project_id: str, filter: AuditFilter
    ) -> Sequence[AuditEntry]:
        """Who did what in the project, newest first."""
        async with self._store.reading() as books:
            await visible_project(books, actor, project_id, Action.AUDIT_SEE)
            return await books.audit.find(replace(filter, project_id=project_id))

    async def audit_of_all(self, actor: Actor, filter: AuditFilter) -> Sequence[AuditEntry]:
        """Who did what in the whole service, newest first."""
        async with self._store.reading() as books:
            await require(books, actor, Action.SERVICE_SEE)
            return await books.audit.find(filter)

    async def _member(self, books: Books, project_id: str, user_id: str) -> Membership:
        found = await books.projects.membership(project_id, user_id)
        if found is None:
            raise no_such("member")
        return found

    async def _owners_only(self, books: Books, actor: Actor, project_id: str, *roles: Role) -> None:
        if Role.OWNER in roles:
            await require(books, actor, Action.OWNERS_CHANGE, project_id)

    async def _keep_an_owner(self, books: Books, before: Membership, role: Role | None) -> None:
        leaves = before.role is Role.OWNER and role is not Role.OWNER
        if leaves and await books.projects.owners(before.project_id) == 1:
            raise InvalidRequest(
                "This is the last owner of the project; make somebody else one first.",
                code="last_owner",
                status=409,
            )

    async def _parted(
        self, books: Books, keys: Sequence[ApiKey], to: str | None, now: datetime
    ) -> Narrowed:
        """Withdraw the keys of somebody who has left, or transfer them."""
        if to is None:
            await books.keys.withdraw([key.id for key in keys], now)
            worked = working(keys, now)
            gone = (replace(key, withdrawn_at=now) for key in keys if key.id in worked)
            return Narrowed(keys_stopped=tuple(gone))
        given = [
            await handed_over(books, key, to, param="keys_to")
            for key in keys
            if key.withdrawn_at is None
        ]
        for key in given:
            await books.keys.change(key)
        return Narrowed(keys_transferred=tuple(given))

    async def _withdraw_open(
        self, books: Books, project_id: str, user_id: str, now: datetime
    ) -> int:
        user = await books.people.find(user_id)
        email = user.email if user is not None else ""
        return await withdraw_open(books, project_id, email, now)

    async def _note(
        self, books: Books, actor: Actor, what: str, subject: str, project: Project, **details: str
    ) -> None:
        await books.audit.add(entry(self._clock(), actor, what, subject, project.id, **details))
