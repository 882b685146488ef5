"""People and groups that a directory provisions: created, changed, disabled, and moved.

The groups of a directory have the grants of its identity provider, as the groups that people bring
at a sign-in. A person whom the directory deletes is disabled, because usage and audit log name
them; they are shown to it no more, and creating them anew takes the same account up again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.audit import difference
from causerie.hosted.accounts.authorization import Clock, conflict, no_such
from causerie.hosted.accounts.people import IdentityGroup, User
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


class Provisioning(AccountService):
    """What directories do to people and groups; each sees all people, and its own groups.

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
        _, found = await self.people({"id": user_id})
        if not found:
            raise no_such("user")
        return found[0]

    async def create(self, directory: GroupClaims, person: ProvisionedPerson) -> User:
        """Create an account, or take up the one that the directory deleted before."""
        async with self._store.reading() as tx:
            before = await tx.people.by_email(tidy_email(person.email))
            known, _ = await tx.people.search({"user_name": person.user_name}, 0, 1)
        if known:
            raise conflict("taken", "There is a user with this userName already.")
        if before is not None and before.disabled_at is not None and not before.user_name:
            return await self._change(directory, before, person)
        made = await self._users.create(
            directory.actor, email=person.email, name=person.name, password=None
        )
        return await self._change(directory, made, person)

    async def change(self, directory: GroupClaims, user_id: str, person: ProvisionedPerson) -> User:
        """Describe a person anew; disable or enable their account."""
        return await self._change(directory, await self.person(user_id), person)

    async def remove(self, directory: GroupClaims, user_id: str) -> None:
        """Disable a person's account, and end their memberships of groups."""
        user = await self.person(user_id)
        if user.disabled_at is None:
            await self._users.disable(directory.actor, user_id)
        async with self._store.writing() as tx:
            await tx.people.operators()
            current = await tx.people.find(user_id) or user
            await tx.groups.leave_all(user_id)
            enabled = replace(current, disabled_at=None)  # whose rights end by the same rules
            await self._memberships.settle(tx, enabled, directory)
            current = await tx.people.find(user_id) or user
            await tx.people.change(replace(current, user_name="", external_id=""))
            await self._record(tx, directory.actor, "user.unprovision", user_id)

    async def _change(self, directory: GroupClaims, user: User, person: ProvisionedPerson) -> User:
        email, name = tidy_email(person.email), tidy_name(person.name)
        async with self._store.writing() as tx:
            await tx.people.operators()  # locked before one of them is, in one order by everybody
            before = await tx.people.find(user.id) or user
            await _check_unique(tx, before, email, person.user_name)
            after = replace(
                before,
                email=email,
                name=name,
                user_name=person.user_name,
                external_id=person.external_id,
            )
            if after != before:
                await tx.people.change(after)
                changes = {
                    each: difference(getattr(before, each), getattr(after, each))
                    for each in ("email", "name", "user_name")
                    if getattr(before, each) != getattr(after, each)
                }
                await self._record(tx, directory.actor, "user.provision", user.id, **changes)
        if person.active is (after.disabled_at is not None):
            disabled = not person.active
            after = await self._users.disable(directory.actor, user.id, disabled=disabled)
            await self._settle(directory, [user.id])
        return after

    async def groups(
        self, directory: GroupClaims, where: Mapping[str, str], start: int = 0, count: int = 1
    ) -> tuple[int, Sequence[IdentityGroup]]:
        """Return the number of groups that fit, and some of them, oldest first.

        ``where`` has values of ``id``, ``name``, ``external_id`` and ``member``.
        """
        async with self._store.reading() as tx:
            return await tx.groups.search(directory.provider, where, start, count)

    async def group(self, directory: GroupClaims, group_id: str) -> IdentityGroup:
        _, found = await self.groups(directory, {"id": group_id})
        if not found:
            raise no_such("group")
        return found[0]

    async def members(self, group_ids: Collection[str]) -> Mapping[str, Sequence[User]]:
        """Return the members of groups, by the groups' ids."""
        async with self._store.reading() as tx:
            return await tx.groups.members(group_ids)

    async def put_group(
        self,
        directory: GroupClaims,
        group_id: str | None,
        name: str,
        external_id: str,
        members: Collection[str],
    ) -> IdentityGroup:
        """Create a group, or describe one anew; its members get or lose what it grants."""
        if group_id is not None:
            before = await self.group(directory, group_id)
        else:
            now = self._clock()
            before = IdentityGroup(new_id("grp"), directory.provider, name, external_id, now)
        after = replace(before, name=name, external_id=external_id)
        async with self._store.writing() as tx:
            try:
                await (tx.groups.add if group_id is None else tx.groups.change)(after)
            except Taken as failure:
                raise conflict("taken", "There is a group with this displayName.") from failure
            held = {user.id for user in (await tx.groups.members([after.id]))[after.id]}
            joined, left = set(members) - held, held - set(members)
            try:
                await tx.groups.join(after.id, joined)
            except Taken as failure:
                raise InvalidRequest(
                    "A member is no user of this service.", param="members"
                ) from failure
            await tx.groups.leave(after.id, left)
            verb = "group.create" if group_id is None else "group.change"
            counts = {"joined": str(len(joined)), "left": str(len(left))}
            await self._record(tx, directory.actor, verb, after.id, name=name, **counts)
        renamed = (before.name, before.external_id) != (after.name, after.external_id)
        affected = held | joined if renamed else joined | left
        await self._granted(directory, (before, after), affected)
        return after

    async def remove_group(self, directory: GroupClaims, group_id: str) -> None:
        """Delete a group; its members lose what it grants."""
        group = await self.group(directory, group_id)
        async with self._store.writing() as tx:
            held = {user.id for user in (await tx.groups.members([group_id]))[group_id]}
            await tx.groups.remove(group_id)
            await self._record(tx, directory.actor, "group.delete", group_id, name=group.name)
        await self._granted(directory, (group,), held)

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


async def _check_unique(tx: Transaction, user: User, email: str, user_name: str) -> None:
    same_email = await tx.people.by_email(email)
    _, same_name = await tx.people.search({"user_name": user_name}, 0, 2)
    if any(each is not None and each.id != user.id for each in (same_email, *same_name)):
        raise conflict("taken", "Another user has this userName or address.")
