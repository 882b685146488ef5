"""People and groups that a directory provisions: created, changed, disabled, and moved.

The groups of a directory have the grants of its identity provider, as the groups that people bring
at a sign-in. A person whom the directory deletes is disabled, because usage and audit log name
them; they are shown to it no more, and creating them anew takes the same account up again. An
account that an operator has disabled is taken up by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.audit import difference
from causerie.hosted.accounts.authorization import Clock, conflict, found_user, no_such
from causerie.hosted.accounts.people import REMOVED, IdentityGroup, User
from causerie.hosted.accounts.ports import AccountStore, Taken, Transaction
from causerie.hosted.accounts.service import AccountService
from causerie.hosted.accounts.sso_provisioning import GroupClaims, GroupMemberships
from causerie.hosted.accounts.tokens import new_id, tidy_email, tidy_name
from causerie.hosted.accounts.users import Users


@dataclass(frozen=True, slots=True)
class ProvisionedPerson:
    """A person as a directory describes them."""

    user_name: str
    email: str
    name: str
    external_id: str = ""
    active: bool = True


@dataclass(frozen=True, slots=True)
class WantedGroup:
    """A group as a directory describes it, with the ids of its members."""

    name: str
    external_id: str
    members: frozenset[str]


class Provisioning(AccountService):
    """Changes of people and groups by directories; each sees all people, and its own groups.

    A directory is the claims of no groups, with the grants of its provider's groups. Methods raise
    :class:`NotFound`, and :class:`InvalidRequest` for what cannot be.
    """

    def __init__(
        self, store: AccountStore, clock: Clock, users: Users, memberships: GroupMemberships
    ) -> None:
        super().__init__(store, clock)
        self._users = users
        self._memberships = memberships

    async def people(
        self, where: Mapping[str, str], start: int = 0, count: int = 1
    ) -> tuple[int, Sequence[User]]:
        """Return the number of people who fit, and some of them, oldest first.

        ``where`` has values of ``id``, ``user_name``, ``external_id`` and ``email``.
        """
        async with self._store.reading() as tx:
            return await tx.people.search(where, start, count)

    async def person(self, user_id: str) -> User:
        async with self._store.reading() as tx:
            _, found = await tx.people.search({"id": user_id}, 0, 1)
        if not found:
            raise no_such("user")
        return found[0]

    async def create(self, directory: GroupClaims, person: ProvisionedPerson) -> User:
        """Create an account, or take up the one that the directory deleted before."""
        async with self._store.reading() as tx:
            user = await tx.people.by_email(tidy_email(person.email))
            await _check_unique(tx, "", "", person.user_name)
        if user is None or user.disabled_at is None or user.external_id != REMOVED:
            user = await self._users.create(
                directory.actor, email=person.email, name=person.name, password=None
            )
        return await self._describe(directory, user.id, lambda _: person)

    async def change(
        self, directory: GroupClaims, user_id: str, describe: Callable[[User], ProvisionedPerson]
    ) -> User:
        """Describe a person anew, from what they are; disable or enable their account."""
        await self.person(user_id)
        return await self._describe(directory, user_id, describe)

    async def _describe(
        self, directory: GroupClaims, user_id: str, describe: Callable[[User], ProvisionedPerson]
    ) -> User:
        async with self._store.writing() as tx:
            await tx.people.operators()  # locked before one of them is, in one order by everybody
            before = await found_user(tx, user_id)
            person = describe(before)
            email, name = tidy_email(person.email), tidy_name(person.name)
            await _check_unique(tx, user_id, email, person.user_name)
            after = replace(before, email=email, name=name, user_name=person.user_name)
            after = replace(after, external_id=person.external_id)
            if after != before:
                await tx.people.change(after)
                changes = {
                    each: difference(getattr(before, each), getattr(after, each))
                    for each in ("email", "name", "user_name")
                    if getattr(before, each) != getattr(after, each)
                }
                await self._record(tx, directory.actor, "user.provision", user_id, **changes)
        if person.active is (after.disabled_at is not None):
            disabled = not person.active
            after = await self._users.disable(directory.actor, user_id, disabled=disabled)
            await self._settle(directory, [user_id])
        return after

    async def remove(self, directory: GroupClaims, user_id: str) -> None:
        """Disable a person's account, and end their memberships of groups."""
        if (await self.person(user_id)).disabled_at is None:
            await self._users.disable(directory.actor, user_id)
        async with self._store.writing() as tx:
            await tx.people.operators()
            user = await found_user(tx, user_id)
            await tx.groups.leave_all(user_id)
            enabled = replace(user, disabled_at=None)  # whose rights end by the same rules
            await self._memberships.settle(tx, enabled, directory)
            user = await found_user(tx, user_id)
            await tx.people.change(replace(user, user_name="", external_id=REMOVED))
            await self._record(tx, directory.actor, "user.unprovision", user_id)

    async def groups(
        self, directory: GroupClaims, where: Mapping[str, str], start: int = 0, count: int = 1
    ) -> tuple[int, Sequence[IdentityGroup]]:
        """Return the number of groups that fit, and some of them, oldest first.

        ``where`` has values of ``id``, ``name``, ``external_id`` and ``member``.
        """
        async with self._store.reading() as tx:
            return await tx.groups.search(directory.provider, where, start, count)

    async def group(self, directory: GroupClaims, group_id: str) -> IdentityGroup:
        async with self._store.reading() as tx:
            return await _group(tx, directory, group_id)

    async def members(self, group_ids: Collection[str]) -> Mapping[str, Sequence[User]]:
        """Return the members of groups, by the groups' ids."""
        async with self._store.reading() as tx:
            return await tx.groups.members(group_ids)

    async def create_group(self, directory: GroupClaims, wanted: WantedGroup) -> IdentityGroup:
        """Create a group; its members get what it grants."""
        group = IdentityGroup(
            new_id("grp"), directory.provider, wanted.name, wanted.external_id, self._clock()
        )
        async with self._store.writing() as tx:
            await _check_name(tx, group)
            await tx.groups.add(group)
            affected = await self._move(tx, group.id, wanted.members)
            await self._record(tx, directory.actor, "group.create", group.id, name=group.name)
        await self._granted(directory, (group,), affected)
        return group

    async def change_group(
        self,
        directory: GroupClaims,
        group_id: str,
        describe: Callable[[IdentityGroup, Sequence[User]], WantedGroup],
    ) -> IdentityGroup:
        """Describe a group anew, from what it is; its members get or lose what it grants."""
        async with self._store.writing() as tx:
            before = await _group(tx, directory, group_id)
            held = (await tx.groups.members([group_id]))[group_id]
            wanted = describe(before, held)
            after = replace(before, name=wanted.name, external_id=wanted.external_id)
            await _check_name(tx, after)
            await tx.groups.change(after)
            affected = await self._move(tx, group_id, wanted.members)
            moved = {"moved": str(len(affected))}
            await self._record(
                tx, directory.actor, "group.change", group_id, name=after.name, **moved
            )
        if after != before:
            affected |= {user.id for user in held}
        await self._granted(directory, (before, after), affected)
        return after

    async def _move(self, tx: Transaction, group_id: str, members: Collection[str]) -> set[str]:
        held = {user.id for user in (await tx.groups.members([group_id]))[group_id]}
        joined, left = set(members) - held, held - set(members)
        try:
            await tx.groups.join(group_id, joined)
        except Taken as failure:
            raise InvalidRequest("A member is no user here.", param="members") from failure
        await tx.groups.leave(group_id, left)
        return joined | left

    async def remove_group(self, directory: GroupClaims, group_id: str) -> None:
        """Delete a group; its members lose what it grants."""
        async with self._store.writing() as tx:
            group = await _group(tx, directory, group_id)
            affected = await self._move(tx, group_id, ())
            await tx.groups.remove(group_id)
            await self._record(tx, directory.actor, "group.delete", group_id, name=group.name)
        await self._granted(directory, (group,), affected)

    async def _granted(
        self, directory: GroupClaims, groups: Collection[IdentityGroup], user_ids: Collection[str]
    ) -> None:
        names = {name for each in groups for name in (each.name, each.external_id)}
        if any(grant.group in names for grant in directory.grants):
            await self._settle(directory, user_ids)

    async def _settle(self, directory: GroupClaims, user_ids: Collection[str]) -> None:
        # One transaction for each, so that a large group does not hold up the database.
        for id in sorted(user_ids):
            async with self._store.reading() as tx:
                user = await tx.people.find(id)
            if user is not None:
                async with self._store.writing() as tx:
                    await self._memberships.settle(tx, user, directory)


async def _group(tx: Transaction, directory: GroupClaims, group_id: str) -> IdentityGroup:
    group = await tx.groups.find(group_id)
    if group is None or group.provider != directory.provider:
        raise no_such("group")
    return group


async def _check_unique(tx: Transaction, user_id: str, email: str, user_name: str) -> None:
    same_email = await tx.people.by_email(email)
    _, same_name = await tx.people.search({"user_name": user_name}, 0, 2)
    if any(each is not None and each.id != user_id for each in (same_email, *same_name)):
        raise conflict("taken", "Another user has this userName or address.")


async def _check_name(tx: Transaction, group: IdentityGroup) -> None:
    _, same = await tx.groups.search(group.provider, {"name": group.name}, 0, 2)
    if any(each.id != group.id for each in same):
        raise conflict("taken", "There is a group with this displayName.")
