"""The whole service, for its operators: health, users, projects, log."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.accounts.audit import AuditEntry, AuditFilter
from causerie.accounts.keys import ApiKey, KeyState
from causerie.accounts.people import User
from causerie.console.audit_page import AuditPage, show_audit
from causerie.console.pages import links
from causerie.console.ports import House
from causerie.console.visit import Visit
from causerie.errors import Forbidden, InvalidRequest, ServiceError


class OperatorPages:
    """Pages that only operators may see; accounts decide, where they are asked."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def health(self, visit: Visit) -> None:
        """Engines and endpoints, as they stand now."""
        _operators_only(visit)
        await visit.show(
            "operator/health.html",
            engines=self._house.status(),
            targets=self._house.targets(),
        )

    async def users(self, visit: Visit) -> None:
        """All users, and open invitations to the service."""
        users = visit.accounts.users
        await visit.show(
            "operator/users.html",
            users=await users.every(visit.actor),
            with_factor=await users.with_factor(visit.actor),
            invitations=await users.invitations(visit.actor),
            asked=await visit.accounts.sign_ups.asked(visit.actor),
        )

    async def ask_invitation(self, visit: Visit) -> None:
        """The form of an invitation to the service."""
        _operators_only(visit)
        await visit.show("operator/invite.html", email="", operator=False)

    async def invite(self, visit: Visit) -> None:
        """Make an invitation, and show its link once."""
        email, operator = visit.form.get("email"), visit.form.get("operator") == "yes"
        try:
            visit.check_form()
            made = await visit.accounts.users.invite(
                visit.actor, email=email or None, operator=operator
            )
        except InvalidRequest as problem:
            await visit.show_problem(
                "operator/invite.html", problem, email=email, operator=operator
            )
            return
        await visit.show(
            "project/link.html",
            title="Your invitation",
            address=links.address(visit.base, made.token),
            link=made.link,
            back="/operator/users",
        )

    async def withdraw(self, visit: Visit) -> None:
        """Take an invitation to the service back."""
        await visit.accounts.users.withdraw(visit.actor, visit.params["link"])
        visit.go("/operator/users", done="invitation-withdrawn")

    async def approve(self, visit: Visit) -> None:
        """The link for somebody who asks for an account, shown once."""
        made = await visit.accounts.sign_ups.approve(visit.actor, visit.params["link"])
        await visit.show(
            "project/link.html",
            title=f"An account for {made.link.email}",
            address=links.address(visit.base, made.token),
            link=made.link,
            back="/operator/users",
        )

    async def reset_link(self, visit: Visit) -> None:
        """A link for a new password, shown once."""
        user = await self._user(visit)
        made = await visit.accounts.users.reset_link(visit.actor, user.id)
        await visit.show(
            "project/link.html",
            title=f"A new password for {user.name}",
            address=links.address(visit.base, made.token),
            link=made.link,
            back="/operator/users",
        )

    async def ask_factor_removal(self, visit: Visit) -> None:
        """Whether it is meant."""
        await visit.show("operator/factor.html", person=await self._user(visit))

    async def remove_factor(self, visit: Visit) -> None:
        """Let somebody in by the password alone, who has lost the rest."""
        user = await self._user(visit)
        try:
            await visit.accounts.users.remove_factor(visit.actor, user.id)
        except ServiceError as problem:
            await visit.show_problem("operator/factor.html", problem, person=user)
            return
        visit.go("/operator/users", done="users-factor-removed")

    async def ask_disable(self, visit: Visit) -> None:
        """Whether it is meant."""
        user = await self._user(visit)
        await visit.show("operator/disable.html", person=user, held=await self._held(visit, user))

    async def disable(self, visit: Visit) -> None:
        """Shut somebody out."""
        user = await self._user(visit)
        try:
            await visit.accounts.users.disable(visit.actor, user.id)
        except ServiceError as problem:
            held = await self._held(visit, user)
            await visit.show_problem("operator/disable.html", problem, person=user, held=held)
            return
        if user.id == visit.me.id:
            visit.go("/sign-in")
        else:
            visit.go("/operator/users", done="user-disabled")

    async def _held(self, visit: Visit, user: User) -> Sequence[ApiKey]:
        """The keys that derive from a user and work."""
        keys, now = await visit.accounts.keys.derived(visit.actor, user.id), visit.desk.clock()
        return [key for key in keys if key.state(now) is KeyState.ACTIVE]

    async def enable(self, visit: Visit) -> None:
        """Let somebody in again."""
        await visit.accounts.users.disable(visit.actor, visit.params["user"], disabled=False)
        visit.go("/operator/users", done="user-enabled")

    async def make_operator(self, visit: Visit) -> None:
        """Let somebody see to the whole service."""
        await visit.accounts.users.make_operator(visit.actor, visit.params["user"])
        visit.go("/operator/users", done="operator-made")

    async def unmake_operator(self, visit: Visit) -> None:
        """Not any more."""
        user_id = visit.params["user"]
        await visit.accounts.users.make_operator(visit.actor, user_id, operator=False)
        done = "operator-unmade"
        visit.go("/" if user_id == visit.me.id else "/operator/users", done=done)

    async def projects(self, visit: Visit) -> None:
        """All projects of the service."""
        found = await visit.accounts.projects.every(visit.actor)
        await visit.show("operator/projects.html", every=found)

    async def ask_project(self, visit: Visit) -> None:
        """The form of a new project."""
        users = await visit.accounts.users.every(visit.actor)
        await visit.show("operator/new_project.html", name="", owner=visit.me.id, users=users)

    async def make_project(self, visit: Visit) -> None:
        """Make a project."""
        name, owner = visit.form.get("name"), visit.form.get("owner") or visit.me.id
        try:
            visit.check_form()
            made = await visit.accounts.projects.create(visit.actor, name, owner=owner)
        except InvalidRequest as problem:
            users = await visit.accounts.users.every(visit.actor)
            await visit.show_problem(
                "operator/new_project.html", problem, name=name, owner=owner, users=users
            )
            return
        visit.go(f"/projects/{made.id}", done="project-made")

    async def audit(self, visit: Visit) -> None:
        """Who did what in the whole service."""

        async def entries(filter: AuditFilter) -> Sequence[AuditEntry]:
            return await visit.accounts.projects.audit_of_all(visit.actor, filter)

        await show_audit(visit, AuditPage("/operator/audit", entries))

    async def _user(self, visit: Visit) -> User:
        return await visit.accounts.users.see(visit.actor, visit.params["user"])


def _operators_only(visit: Visit) -> None:
    """For what no account holds: engines and endpoints, and empty forms."""
    if not visit.me.operator:
        raise Forbidden("Only operators of the service may see this.", code="scope_not_allowed")
