"""The models and doors that projects, people and members may use; keys can only narrow them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from causerie.access.allowed import ALL, Access, AccessRule
from causerie.hosted.accounts.audit import difference
from causerie.hosted.accounts.authorization import found_user, no_such, require
from causerie.hosted.accounts.people import Action, Actor, Role
from causerie.hosted.accounts.ports import Transaction
from causerie.hosted.accounts.service import AccountService


def member_owner(project_id: str, user_id: str) -> str:
    """Return the owner of the rule for a member of a project."""
    return f"member:{project_id}/{user_id}"


def rules_of(project_id: str, user_id: str) -> Mapping[str, str]:
    """Return the owners of the rules for a key, and whose rules they are."""
    owners = {f"project:{project_id}": "project"}
    if user_id:
        owners |= {f"user:{user_id}": "person", member_owner(project_id, user_id): "member"}
    return owners


async def found_rules(tx: Transaction, project_id: str, user_id: str) -> tuple[AccessRule, ...]:
    owners = rules_of(project_id, user_id)
    return tuple(
        AccessRule(owners[owner], rule) for owner, rule in (await tx.keys.access([*owners])).items()
    )


class AccessRules(AccountService):
    """Rules of projects, people and members.

    Methods raise :class:`Forbidden` without the right, and :class:`NotFound` for what the actor may
    not see; setting one raises :class:`InvalidRequest` for a wrong rule.
    """

    async def of_project(self, actor: Actor, project_id: str) -> Access:
        async with self._reading(actor, Action.PROJECT_SEE, project_id) as tx:
            return await self._one(tx, f"project:{project_id}")

    async def of_user(self, actor: Actor, user_id: str) -> Access:
        async with self._reading(actor, Action.USERS_SEE) as tx:
            await found_user(tx, user_id)
            return await self._one(tx, f"user:{user_id}")

    async def of_member(self, actor: Actor, project_id: str, user_id: str) -> Access:
        async with self._reading(actor, Action.MEMBERS_SEE, project_id) as tx:
            await self._member(tx, project_id, user_id)
            return await self._one(tx, member_owner(project_id, user_id))

    async def mine(self, actor: Actor, project_id: str) -> Sequence[AccessRule]:
        """Return the rules for keys of the actor in a project."""
        async with self._reading(actor, Action.PROJECT_SEE, project_id) as tx:
            return await found_rules(tx, project_id, actor.person)

    async def set_project(self, actor: Actor, project_id: str, access: Access) -> None:
        async with self._writing(actor, Action.BOUNDS_SET, project_id) as tx:
            await self._set(tx, actor, f"project:{project_id}", access, project_id)

    async def set_user(self, actor: Actor, user_id: str, access: Access) -> None:
        async with self._writing(actor, Action.BOUNDS_SET) as tx:
            await found_user(tx, user_id)
            await self._set(tx, actor, f"user:{user_id}", access)

    async def set_member(self, actor: Actor, project_id: str, user_id: str, access: Access) -> None:
        async with self._writing(actor, Action.MEMBERS_CHANGE, project_id) as tx:
            if await self._member(tx, project_id, user_id) is Role.OWNER:
                await require(tx, actor, Action.OWNERS_CHANGE, project_id)
            owner = member_owner(project_id, user_id)
            await self._set(tx, actor, owner, access, project_id, user_id)

    async def _set(
        self,
        tx: Transaction,
        actor: Actor,
        owner: str,
        access: Access,
        project_id: str | None = None,
        user_id: str = "",
    ) -> None:
        access.check()
        kind, _, id = owner.partition(":")
        before = await self._one(tx, owner)
        await tx.keys.set_access(owner, access)
        await tx.keys.announce(f"user:{user_id}" if user_id else owner, self._clock())
        words = difference(before.words(), access.words())
        await self._record(tx, actor, f"{kind}.access", user_id or id, project_id, access=words)

    async def _member(self, tx: Transaction, project_id: str, user_id: str) -> Role:
        found = await tx.projects.membership(project_id, user_id)
        if found is None:
            raise no_such("member")
        return found.role

    async def _one(self, tx: Transaction, owner: str) -> Access:
        return (await tx.keys.access([owner])).get(owner, ALL)
