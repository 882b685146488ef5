"""Projects and who is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from causerie.accounts.audit import AuditEntry, AuditFilter, entry
from causerie.accounts.bounds import Bounds
from causerie.accounts.credit import bounded
from causerie.accounts.guard import Clock, no_such, require, visible_project
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
            return await books.links.open(project_id, self._clock())

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
                actor.label,
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

    async def change_role(self, actor: Actor, project_id: str, user_id: str, role: Role) -> None:
        """Make a member something else."""
        async with self._store.writing() as books:
            project = await visible_project(books, actor, project_id, Action.MEMBERS_CHANGE)
            before = await self._member(books, project_id, user_id)
            await self._owners_only(books, actor, project_id, role, before.role)
            await self._keep_an_owner(books, before, role)
            await books.projects.join(replace(before, role=role))
            await self._note(books, actor, "member.change", user_id, project, role=role)

    async def remove(
        self, actor: Actor, project_id: str, user_id: str, *, keep_keys: bool = False
    ) -> None:
        """Take somebody out; the keys they made are disabled unless ``keep_keys``."""
        async with self._store.writing() as books:
            await require(books, actor, Action.MEMBERS_REMOVE, project_id, made_by=user_id)
            project = await visible_project(books, actor, project_id)
            before = await self._member(books, project_id, user_id)
            if user_id != actor.id:
                await self._owners_only(books, actor, project_id, before.role)
            await self._keep_an_owner(books, before, None)
            await books.projects.leave(project_id, user_id)
            keys = "kept" if keep_keys else "disabled"
            if not keep_keys:
                await self._disable_keys(books, actor, project_id, user_id)
            await self._note(
                books,
                actor,
                "member.remove",
                user_id,
                project,
                keys=keys,
            )

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

    async def _disable_keys(
        self, books: Books, actor: Actor, project_id: str, user_id: str
    ) -> None:
        now: datetime = self._clock()
        made = [key.id for key in await books.keys.of(project_id) if key.created_by == user_id]
        found = [key for id in made if (key := await books.keys.find(id)) is not None]
        running = [key for key in found if key.disabled_at is None]
        for key in running:
            await books.keys.change(replace(key, disabled_at=now, disabled_by=actor.id))
        for key in running:  # once all are locked, as everybody does
            await books.keys.announce(f"key:{key.id}", now)

    async def _note(
        self, books: Books, actor: Actor, what: str, subject: str, project: Project, **details: str
    ) -> None:
        await books.audit.add(entry(self._clock(), actor, what, subject, project.id, **details))
