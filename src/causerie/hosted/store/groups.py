"""Groups that directories provision, and their members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from causerie.hosted.accounts.people import IdentityGroup, User
from causerie.hosted.accounts.records import Taken
from causerie.hosted.store.repository import SqlRows
from causerie.hosted.store.tables import identity_group_members as members
from causerie.hosted.store.tables import identity_groups as groups
from causerie.hosted.store.tables import users


class SqlGroups(SqlRows[IdentityGroup]):
    """Groups of directories; ``join`` raises :class:`Taken` for an unknown user."""

    table, kind = groups, IdentityGroup

    async def remove(self, id: str) -> None:
        """Remove a group without members."""
        await self._execute(groups.delete().where(groups.c.id == id))

    async def search(
        self, provider: str, where: Mapping[str, str], start: int, count: int
    ) -> tuple[int, Sequence[IdentityGroup]]:
        query = select(groups).where(groups.c.provider == provider)
        for name, value in where.items():
            if name == "member":
                held = select(members.c.group_id).where(members.c.user_id == value)
                query = query.where(groups.c.id.in_(held))
            elif name == "name":  # which is not case-exact (RFC 7643, section 4.2)
                query = query.where(func.lower(groups.c.name) == value.lower())
            else:
                query = query.where(groups.c[name] == value)
        return await self._page(query, start, count)

    async def members(self, group_ids: Collection[str]) -> Mapping[str, Sequence[User]]:
        found: dict[str, list[User]] = {id: [] for id in group_ids}
        query = (
            select(members.c.group_id, users)
            .join(users, users.c.id == members.c.user_id)
            .where(members.c.group_id.in_(found))
            .order_by(users.c.created_at, users.c.id)
        )
        for row in await self._all(query, dict):
            found[row.pop("group_id")].append(User(**row))
        return found

    async def join(self, group_id: str, user_ids: Collection[str]) -> None:
        if user_ids:
            rows = [{"group_id": group_id, "user_id": id} for id in sorted(user_ids)]
            try:
                await self._execute(members.insert(), rows)
            except IntegrityError as failure:
                raise Taken(members.name) from failure

    async def leave(self, group_id: str, user_ids: Collection[str]) -> None:
        of_group = members.c.group_id == group_id, members.c.user_id.in_(user_ids)
        await self._execute(members.delete().where(*of_group))

    async def leave_all(self, user_id: str) -> None:
        await self._execute(members.delete().where(members.c.user_id == user_id))

    async def names(self, provider: str, user_id: str) -> frozenset[str]:
        """Return the names and external ids of a user's groups."""
        query = (
            select(groups.c.name, groups.c.external_id)
            .join(members, members.c.group_id == groups.c.id)
            .where(members.c.user_id == user_id, groups.c.provider == provider)
        )
        return frozenset(each for row in await self._execute(query) for each in row if each)
