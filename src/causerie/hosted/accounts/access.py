"""The models and doors that projects, people and members may use; keys can only narrow them."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.access.allowed import ALL, Access, AccessRule
from causerie.hosted.accounts.audit import difference
from causerie.hosted.accounts.authorization import found_user, no_such, require, visible_project
from causerie.hosted.accounts.keys import member_owner, rules_of
from causerie.hosted.accounts.people import Action, Actor, Role
from causerie.hosted.accounts.service import AccountService
from causerie.hosted.store.accounts import Transaction


async def found_rules(tx: Transaction, project_id: str, user_id: str) -> tuple[AccessRule, ...]:
    owners = rules_of(project_id, user_id)
    return tuple(
        AccessRule(owners[owner], rule) for owner, rule in (await tx.keys.access([*owners])).items()
    )


class AccessRules(AccountService):
    """Rules of projects, of users (without a project) and of members (with both).

    Methods raise :class:`Forbidden` without the right, and :class:`NotFound` for what the actor may
    not see.
    """

    async def see(self, actor: Actor, project_id: str = "", user_id: str = "") -> Access:
        async with self._store.reading() as tx:
            owner = await self._owner(tx, actor, project_id, user_id)
            return (await tx.keys.access([owner])).get(owner, ALL)

    async def mine(self, actor: Actor, project_id: str) -> Sequence[AccessRule]:
        """Return the rules for keys of the actor in a project."""
        async with self._reading(actor, Action.PROJECT_SEE, project_id) as tx:
            return await found_rules(tx, project_id, actor.person)

    async def set(
        self, actor: Actor, access: Access, project_id: str = "", user_id: str = ""
    ) -> None:
        """Replace a rule; raise :class:`InvalidRequest` for a wrong one."""
        access.check()
        async with self._store.writing() as tx:
            owner = await self._owner(tx, actor, project_id, user_id, changes=True)
            before = (await tx.keys.access([owner])).get(owner, ALL)
            await tx.keys.set_access(owner, access)
            await tx.keys.announce(f"user:{user_id}" if user_id else owner, self._clock())
            action, subject = f"{owner.partition(':')[0]}.access", user_id or project_id
            words = difference(before.words(), access.words())
            await self._record(tx, actor, action, subject, project_id or None, access=words)

    async def _owner(
        self, tx: Transaction, actor: Actor, project_id: str, user_id: str, *, changes: bool = False
    ) -> str:
        if not project_id:
            await require(tx, actor, Action.BOUNDS_SET if changes else Action.USERS_SEE)
            return f"user:{(await found_user(tx, user_id)).id}"
        if not user_id:
            needs = Action.BOUNDS_SET if changes else Action.PROJECT_SEE
            await visible_project(tx, actor, project_id, needs)
            return f"project:{project_id}"
        needs = Action.MEMBERS_CHANGE if changes else Action.MEMBERS_SEE
        await visible_project(tx, actor, project_id, needs)
        member = await tx.projects.membership(project_id, user_id)
        if member is None:
            raise no_such("member")
        if changes and member.role is Role.OWNER:
            await require(tx, actor, Action.OWNERS_CHANGE, project_id)
        return member_owner(project_id, user_id)
