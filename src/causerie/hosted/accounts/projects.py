"""Projects and their members, and the models and doors that they and people may use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from causerie.access.allowed import ALL, Access, AccessRule
from causerie.access.networks import tidy_networks
from causerie.errors import Forbidden, counted
from causerie.hosted.accounts.authorization import (
    AccountService,
    Beginning,
    Narrowed,
    add_link,
    conflict,
    existing,
    handed_over,
    no_such,
    require,
    set_bounds,
    supported_links,
    visible_project,
    withdraw_links,
    withdraw_open,
    working,
)
from causerie.hosted.accounts.bounds import LimitsAndBudgets, own_bounds
from causerie.hosted.accounts.keys import ApiKey, Grant, LinkKind, NewLink, OneTimeLink, Purpose
from causerie.hosted.accounts.people import (
    Action,
    Actor,
    Membership,
    Project,
    ProjectMember,
    Role,
    User,
    actor_of,
)
from causerie.hosted.accounts.records import AuditEntry, AuditFilter, difference, differences
from causerie.hosted.accounts.tokens import new_id, tidy_email, tidy_name
from causerie.hosted.store.accounts import Transaction


@dataclass(frozen=True, slots=True)
class ProjectOverview:
    """A project with its limits and budgets."""

    project: Project
    bounds: LimitsAndBudgets
    """Those in force: of operators, and of the project's owners."""
    granted: LimitsAndBudgets
    """Those that operators have set."""
    own: LimitsAndBudgets
    """Those that owners have set."""


class Projects(AccountService):
    """Projects, their memberships and their audit log."""

    async def create(self, actor: Actor, name: str, *, owner: str | None = None) -> Project:
        """Create a project, owned by the user ``owner``, or else by the user who creates it."""
        owner_id = owner or (actor.id if actor.kind == "user" else None)
        async with self._begin_write(actor, Action.PROJECTS_CREATE) as tx:
            return await self._create_project(tx, actor, name, owner_id, self.policies.project)

    async def create_own(self, user: User, name: str) -> Project:
        """Create a project for a user without the right to create any; it spends nothing at first.

        Raises :class:`InvalidRequest` if they own as many as they may, or created as many within a
        day: each begins with free requests.
        """
        async with self._store.writing() as tx:
            await tx.people.find(user.id)  # locked, so that two at once are counted
            beginning = self.policies.later_project
            if beginning is None or not self.room_for(await tx.projects.of(user.id)):
                most = self._get_own_project_max_or_zero()
                owned = f"People may own {counted(most, 'project')} here without an operator."
                raise conflict("too_many_projects", f"{owned} Archive one first.")
            creator, most = actor_of(user), self._get_own_project_max_or_zero()
            made = AuditFilter(actor=creator.label, action="project.create", limit=most)
            recent = await tx.audit.find(made)
            if len(recent) == most and tx.now - recent[-1].at < timedelta(days=1):
                words = f"People may create {counted(most, 'project')} a day without an operator."
                raise conflict("too_many_projects", words)
            return await self._create_project(tx, creator, name, user.id, beginning)

    def room_for(self, found: Iterable[tuple[Project, Membership]]) -> bool:
        """Return whether somebody with these projects may create one more of their own."""
        owners = (each for project, each in found if project.archived_at is None)
        return sum(each.role is Role.OWNER for each in owners) < self._get_own_project_max_or_zero()

    def _get_own_project_max_or_zero(self) -> int:
        return self.policies.own_projects if self.policies.personal_project is not None else 0

    async def _create_project(
        self, tx: Transaction, actor: Actor, name: str, owner_id: str | None, defaults: Beginning
    ) -> Project:
        project = Project(new_id("prj"), tidy_name(name), tx.now)
        await tx.projects.add(project)
        await defaults.give(tx, f"project:{project.id}")
        if owner_id is not None:
            existing(await tx.people.find(owner_id), "user")
            await tx.projects.join(Membership(project.id, owner_id, Role.OWNER, tx.now))
        await tx.audit.record(actor, "project.create", project.id, project.id, name=project.name)
        return project

    async def see(self, actor: Actor, project_id: str) -> ProjectOverview:
        """Return a project with its limits and budgets."""
        async with self._store.reading() as tx:
            project = await visible_project(tx, actor, project_id)
            owners = f"project:{project_id}", own_bounds(project_id)
            granted, own = map((await tx.keys.bounds_of(owners)).__getitem__, owners)
            return ProjectOverview(project, granted.tightened(own), granted, own)

    async def ask(self, actor: Actor, project_id: str) -> Grant:
        """Return the grant for requests that a user makes without a key and the project pays."""
        async with self._store.reading() as tx:
            project = await visible_project(tx, actor, project_id, Action.MODELS_ASK)
            if project.archived_at is not None:
                raise Forbidden("The project is archived; bring it back first.", code="archived")
            key = ApiKey(
                id="",
                project_id=project_id,
                created_by=actor.id,
                name=actor.name,
                purpose=Purpose.INFERENCE,
                doors=None,
                models=None,
                created_at=tx.now,
                person=actor.person,
            )
            recorded = project.recording_days is not None
            return await tx.keys.granted(key, networks=project.networks, recorded=recorded)

    async def of(self, user: User) -> Sequence[tuple[Project, Membership]]:
        """Return the projects of a user, by name."""
        async with self._store.reading() as tx:
            return await tx.projects.of(user.id)

    async def any_budget(self, actor: Actor) -> bool:
        """Return whether anybody has a budget in money; the actor has to be allowed SERVICE_SEE."""
        async with self._begin_read(actor, Action.SERVICE_SEE) as tx:
            return await tx.keys.any_budget()

    async def every(self, actor: Actor) -> Sequence[Project]:
        """Return all projects of the service, by name."""
        async with self._begin_read(actor, Action.USERS_SEE) as tx:
            return await tx.projects.every()

    async def rename(self, actor: Actor, project_id: str, name: str) -> Project:
        right, changed = Action.PROJECT_RENAME, {"name": tidy_name(name)}
        return await self._replace_project_fields(actor, project_id, right, "rename", **changed)

    async def set_networks(
        self, actor: Actor, project_id: str, networks: Sequence[str] | None
    ) -> Project:
        """Set the networks from which keys of a project work; ``None``: from all."""
        right, changed = Action.PROJECT_NETWORKS, {"networks": tidy_networks(networks)}
        return await self._replace_project_fields(actor, project_id, right, "networks", **changed)

    async def archive(self, actor: Actor, project_id: str, *, archived: bool = True) -> Project:
        """Archive a project, so that its keys stop, or restore it."""
        right, verb = Action.PROJECT_ARCHIVE, "archive" if archived else "restore"
        changed = {"archived_at": self._clock() if archived else None}
        return await self._replace_project_fields(actor, project_id, right, verb, **changed)

    async def _replace_project_fields(
        self, actor: Actor, project_id: str, action: Action, audit_verb: str, **changed: Any
    ) -> Project:
        async with self._store.writing() as tx:
            before = await visible_project(tx, actor, project_id, action)
            after = replace(before, **changed)
            await tx.projects.change(after)
            await tx.keys.announce(f"project:{project_id}")
            details = differences(_format_audit_fields(before), _format_audit_fields(after))
            await tx.audit.record(actor, f"project.{audit_verb}", project_id, project_id, **details)
        return after

    async def set_bounds(
        self, actor: Actor, project_id: str, bounds: LimitsAndBudgets
    ) -> LimitsAndBudgets:
        """Replace the limits and budgets of a project; raise :class:`InvalidRequest`."""
        bounds.check()
        async with self._begin_write(actor, Action.BOUNDS_SET, project_id) as tx:
            await set_bounds(tx, actor, {f"project:{project_id}": bounds})
        return bounds

    async def member_bounds(self, actor: Actor, project_id: str, user_id: str) -> LimitsAndBudgets:
        """Return the limits and budgets of a member in a project, which its owners set."""
        async with self._begin_read(actor, Action.MEMBERS_SEE, project_id) as tx:
            return await tx.keys.bounds(own_bounds(project_id, user_id))

    async def lower(
        self, actor: Actor, project_id: str, bounds: LimitsAndBudgets, user_id: str = ""
    ) -> LimitsAndBudgets:
        """Replace the limits and budgets that a project's owners set, on it or on one member."""
        bounds.check()
        owner = own_bounds(project_id, user_id)
        async with self._begin_write(actor, Action.BOUNDS_LOWER, project_id) as tx:
            if user_id:
                existing(await tx.projects.membership(project_id, user_id), "member")
            before = await tx.keys.bounds(owner)
            await tx.keys.set_bounds({owner: bounds})
            kind, subject = ("member", user_id) if user_id else ("project", project_id)
            await tx.keys.announce(f"user:{user_id}" if user_id else f"project:{project_id}")
            words = difference(before.words(), bounds.words())
            await tx.audit.record(actor, f"{kind}.lower", subject, project_id, bounds=words)
        return bounds

    async def members(self, actor: Actor, project_id: str) -> Sequence[ProjectMember]:
        """Return the members of a project, by name."""
        async with self._begin_read(actor, Action.MEMBERS_SEE, project_id) as tx:
            return await tx.projects.members(project_id)

    async def invitations(self, actor: Actor, project_id: str) -> Sequence[OneTimeLink]:
        async with self._begin_read(actor, Action.MEMBERS_SEE, project_id) as tx:
            return await supported_links(tx, await tx.links.open(project_id=project_id))

    async def invite(
        self, actor: Actor, project_id: str, role: Role, *, email: str | None = None
    ) -> NewLink:
        """Create a link that makes its bearer a member; with ``email``, only this address."""
        address = tidy_email(email) if email else None
        async with self._begin_write(actor, Action.MEMBERS_INVITE, project_id) as tx:
            await self._require_right_if_owner_role(tx, actor, project_id, role)
            granted = {"email": address, "project_id": project_id, "role": role}
            if address:  # the last one that was sent works
                await withdraw_open(tx, project_id, address, others=False)
            made = await add_link(tx, LinkKind.INVITATION, actor, **granted)
            details = {"role": role, "email": address or "anybody"}
            await tx.audit.record(actor, "member.invite", made.link.id, project_id, **details)
        return made

    async def withdraw(self, actor: Actor, project_id: str, link_id: str) -> None:
        async with self._begin_write(actor, Action.MEMBERS_INVITE, project_id) as tx:
            link = await tx.links.find(link_id)
            if link is None or link.project_id != project_id:
                raise no_such("invitation")
            if link.role is not None:
                await self._require_right_if_owner_role(tx, actor, project_id, link.role)
            await tx.links.withdraw([link])
            await tx.audit.record(actor, "member.withdraw", link_id, project_id)

    async def add(self, actor: Actor, project_id: str, user_id: str, role: Role) -> Membership:
        """Make a user a member without an invitation; a member with another role is a conflict."""
        async with self._begin_write(actor, Action.MEMBERS_ADD, project_id) as tx:
            await self._require_right_if_owner_role(tx, actor, project_id, role)
            existing(await tx.people.find(user_id), "user")
            made = await tx.projects.membership(project_id, user_id)
            if made is not None and made.role is not role:
                raise conflict("taken", f"This user is a member with the role {made.role} already.")
            if made is None:
                made = Membership(project_id, user_id, role, tx.now)
                await tx.projects.join(made)
                await tx.audit.record(actor, "member.add", user_id, project_id, role=role)
        return made

    async def change_role(
        self, actor: Actor, project_id: str, user_id: str, role: Role
    ) -> Narrowed:
        """Change a member's role; what derives from them is narrowed to the new role."""
        async with self._begin_write(actor, Action.MEMBERS_CHANGE, project_id) as tx:
            before = existing(await tx.projects.membership(project_id, user_id), "member")
            await self._require_right_if_owner_role(tx, actor, project_id, role, before.role)
            await self._require_other_owner(tx, before, role)
            worked = working(await tx.keys.derived(user_id, project_id), tx.now)
            await tx.projects.join(replace(before, role=role))
            links = await withdraw_links(tx, user_id)
            keys = await tx.keys.derived(user_id, project_id)
            await tx.keys.announce(f"user:{user_id}")
            changed = {"role": difference(before.role, role)}
            await tx.audit.record(actor, "member.change", user_id, project_id, **changed)
        stopped = worked - working(keys, tx.now)
        return Narrowed(tuple(key for key in keys if key.id in stopped), (), links)

    async def remove(
        self, actor: Actor, project_id: str, user_id: str, *, keys_to: str = ""
    ) -> Narrowed:
        """Remove a member, and withdraw their keys or transfer them to the member ``keys_to``.

        Their invitations are withdrawn. If somebody else removes them, so are the ones that they
        could use: for their address, or for no address.
        """
        async with self._store.writing() as tx:
            await require(tx, actor, Action.MEMBERS_REMOVE, project_id, made_by=user_id)
            await visible_project(tx, actor, project_id)
            before = existing(await tx.projects.membership(project_id, user_id), "member")
            if user_id != actor.id:
                await self._require_right_if_owner_role(tx, actor, project_id, before.role)
            await self._require_other_owner(tx, before, None)
            if keys_to:
                await require(tx, actor, Action.KEYS_TRANSFER, project_id)
            found = await tx.keys.derived(user_id, project_id)
            await tx.projects.leave(project_id, user_id)
            links = await withdraw_links(tx, user_id)
            if user_id != actor.id:
                user = await tx.people.find(user_id)
                email = user.email if user is not None else ""
                links += await withdraw_open(tx, project_id, email)
            narrowed = await self._withdraw_or_transfer_keys(tx, found, keys_to)
            await tx.keys.announce(f"user:{user_id}")
            keys = f"transferred to {keys_to}" if keys_to else "withdrawn"
            await tx.audit.record(actor, "member.remove", user_id, project_id, keys=keys)
        return replace(narrowed, invitations_withdrawn=links)

    async def audit(
        self, actor: Actor, project_id: str | None, filter: AuditFilter
    ) -> Sequence[AuditEntry]:
        """Return the audit log of a project, or of the whole service, newest first."""
        needs = Action.SERVICE_SEE if project_id is None else Action.AUDIT_SEE
        async with self._begin_read(actor, needs, project_id) as tx:
            return await tx.audit.find(replace(filter, project_id=project_id))

    async def _require_right_if_owner_role(
        self, tx: Transaction, actor: Actor, project_id: str, *roles: Role
    ) -> None:
        if Role.OWNER in roles:
            await require(tx, actor, Action.OWNERS_CHANGE, project_id)

    async def _require_other_owner(
        self, tx: Transaction, membership: Membership, new_role: Role | None
    ) -> None:
        leaves = membership.role is Role.OWNER and new_role is not Role.OWNER
        if leaves and await tx.projects.owners(membership.project_id) == 1:
            raise conflict(
                "last_owner", "This is the last owner of the project; make somebody else one first."
            )

    async def _withdraw_or_transfer_keys(
        self, tx: Transaction, keys: Sequence[ApiKey], new_holder_id: str
    ) -> Narrowed:
        if not new_holder_id:
            await tx.keys.withdraw(keys)
            worked = working(keys, tx.now)
            gone = (replace(key, withdrawn_at=tx.now) for key in keys if key.id in worked)
            return Narrowed(keys_stopped=tuple(gone))
        kept = (key for key in keys if key.withdrawn_at is None)
        given = [await handed_over(tx, key, new_holder_id, param="keys_to") for key in kept]
        for key in given:
            await tx.keys.change(key)
        return Narrowed(keys_transferred=tuple(given))


def _format_audit_fields(project: Project) -> dict[str, str]:
    return {"name": project.name, "networks": ", ".join(project.networks or ("all",))}


class AccessRules(AccountService):
    """Rules on doors and models, of projects, of users (no project), and of members (both)."""

    async def see(self, actor: Actor, project_id: str = "", user_id: str = "") -> Access:
        async with self._store.reading() as tx:
            owner = await self._resolve_access_owner(tx, actor, project_id, user_id)
            return (await tx.keys.access([owner])).get(owner, ALL)

    async def mine(self, actor: Actor, project_id: str) -> Sequence[AccessRule]:
        """Return the access rules for the actor's own keys in a project."""
        async with self._begin_read(actor, Action.PROJECT_SEE, project_id) as tx:
            return await tx.keys.access_rules(project_id, actor.person)

    async def set(
        self, actor: Actor, access: Access, project_id: str = "", user_id: str = ""
    ) -> None:
        """Replace the access rule of a project, user or member; raise :class:`InvalidRequest`."""
        access.check()
        async with self._store.writing() as tx:
            owner = await self._resolve_access_owner(tx, actor, project_id, user_id, changes=True)
            before = (await tx.keys.access([owner])).get(owner, ALL)
            await tx.keys.set_access(owner, access)
            await tx.keys.announce(f"user:{user_id}" if user_id else owner)
            action, subject = f"{owner.partition(':')[0]}.access", user_id or project_id
            words = difference(before.words(), access.words())
            await tx.audit.record(actor, action, subject, project_id or None, access=words)

    async def _resolve_access_owner(
        self, tx: Transaction, actor: Actor, project_id: str, user_id: str, *, changes: bool = False
    ) -> str:
        if not project_id:
            await require(tx, actor, Action.BOUNDS_SET if changes else Action.USERS_SEE)
            return f"user:{existing(await tx.people.find(user_id), 'user').id}"
        if not user_id:
            needs = Action.BOUNDS_SET if changes else Action.PROJECT_SEE
            await visible_project(tx, actor, project_id, needs)
            return f"project:{project_id}"
        needs = Action.MEMBERS_CHANGE if changes else Action.MEMBERS_SEE
        await visible_project(tx, actor, project_id, needs)
        member = existing(await tx.projects.membership(project_id, user_id), "member")
        if changes and member.role is Role.OWNER:
            await require(tx, actor, Action.OWNERS_CHANGE, project_id)
        return own_bounds(project_id, user_id)
