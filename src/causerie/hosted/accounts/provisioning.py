"""People and groups that a directory provisions, and sign-in with another provider's identity.

The groups of such an identity become memberships at each sign-in.

The groups of a directory have the grants of its identity provider, as the groups that people bring
at a sign-in. A person whom the directory deletes is disabled, because usage and audit log name
them; they are shown to it no more, and creating them anew takes the same account up again. An
account that an operator has disabled is taken up by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from causerie.errors import InvalidRequest, Unauthenticated
from causerie.hosted.accounts.authorization import (
    AccountService,
    conflict,
    existing,
    no_such,
    withdraw_links,
    withdraw_open,
)
from causerie.hosted.accounts.people import (
    REMOVED,
    GroupClaims,
    GroupGrant,
    IdentityGroup,
    Membership,
    Role,
    User,
    Vouched,
)
from causerie.hosted.accounts.records import Taken, difference, differences
from causerie.hosted.accounts.sign_in import AccountDisabled, SignIn, SignInRefused, no_account
from causerie.hosted.accounts.tokens import NewSession, SessionClient, new_id, tidy_email, tidy_name
from causerie.hosted.accounts.users import Users
from causerie.hosted.store.accounts import SqlStore, Transaction


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

    def __init__(self, store: SqlStore, users: Users, memberships: GroupMemberships) -> None:
        super().__init__(store)
        self._user_service = users
        self._membership_service = memberships

    async def people(
        self, where: Mapping[str, str], start: int = 0, count: int = 1
    ) -> tuple[int, Sequence[User]]:
        """Return the number of people with the values in ``where``, and some of them, oldest first.

        ``where`` has values of ``id``, ``user_name``, ``external_id`` and ``email``.
        """
        async with self._store.reading() as tx:
            return await tx.people.search(where, start, count)

    async def person(self, user_id: str) -> User:
        async with self._store.reading() as tx:
            _, found = await tx.people.search({"id": user_id}, 0, 1)
        return existing(found[0] if found else None, "user")

    async def create(self, directory: GroupClaims, person: ProvisionedPerson) -> User:
        """Create an account, or take up the one that the directory deleted before."""
        async with self._store.reading() as tx:
            user = await tx.people.one(email=tidy_email(person.email))
            await _check_person_unique(tx, "", "", person.user_name)
        if user is None or user.disabled_at is None or user.external_id != REMOVED:
            email, name = person.email, person.name
            user = await self._user_service.create(directory.actor, email=email, name=name)
        return await self._update_person(directory, user.id, lambda _: person)

    async def change(
        self, directory: GroupClaims, user_id: str, describe: Callable[[User], ProvisionedPerson]
    ) -> User:
        """Change a person to what ``describe`` returns; disable or enable their account."""
        await self.person(user_id)
        return await self._update_person(directory, user_id, describe)

    async def _update_person(
        self, directory: GroupClaims, user_id: str, describe: Callable[[User], ProvisionedPerson]
    ) -> User:
        async with self._store.writing() as tx:
            await tx.people.operators()  # locked before one of them is, in one order by everybody
            before = existing(await tx.people.find(user_id), "user")
            person = describe(before)
            email, name = tidy_email(person.email), tidy_name(person.name)
            await _check_person_unique(tx, user_id, email, person.user_name)
            after = replace(before, email=email, name=name, user_name=person.user_name)
            after = replace(after, external_id=person.external_id)
            if after != before:
                await tx.people.change(after)
                changes = differences(_format_audit_fields(before), _format_audit_fields(after))
                await tx.audit.record(directory.actor, "user.provision", user_id, **changes)
        if person.active is (after.disabled_at is not None):
            disabled = not person.active
            after = await self._user_service.disable(directory.actor, user_id, disabled=disabled)
            await self._apply_user_grants(directory, [user_id])
        return after

    async def remove(self, directory: GroupClaims, user_id: str) -> None:
        """Disable a person's account, and end their memberships of groups."""
        if (await self.person(user_id)).disabled_at is None:
            await self._user_service.disable(directory.actor, user_id)
        async with self._store.writing() as tx:
            await tx.people.operators()
            user = existing(await tx.people.find(user_id), "user")
            await tx.groups.leave_all(user_id)
            enabled = replace(user, disabled_at=None)  # whose rights end by the same rules
            await self._membership_service.settle(tx, enabled, directory)
            user = existing(await tx.people.find(user_id), "user")
            await tx.people.change(replace(user, user_name="", external_id=REMOVED))
            await tx.audit.record(directory.actor, "user.unprovision", user_id)

    async def groups(
        self, directory: GroupClaims, where: Mapping[str, str], start: int = 0, count: int = 1
    ) -> tuple[int, Sequence[IdentityGroup]]:
        """Return the number of groups with the values in ``where``, and some of them, oldest first.

        ``where`` has values of ``id``, ``name``, ``external_id`` and ``member``.
        """
        async with self._store.reading() as tx:
            return await tx.groups.search(directory.provider, where, start, count)

    async def group(self, directory: GroupClaims, group_id: str) -> IdentityGroup:
        async with self._store.reading() as tx:
            return await _find_group(tx, directory, group_id)

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
            await _check_group_name_free(tx, group)
            await tx.groups.add(group)
            affected = await self._set_group_members(tx, group.id, wanted.members)
            await tx.audit.record(directory.actor, "group.create", group.id, name=group.name)
        await self._apply_group_grants(directory, (group,), affected)
        return group

    async def change_group(
        self,
        directory: GroupClaims,
        group_id: str,
        describe: Callable[[IdentityGroup, Sequence[User]], WantedGroup],
    ) -> IdentityGroup:
        """Change a group to what ``describe`` returns; its members get or lose what it grants."""
        async with self._store.writing() as tx:
            before = await _find_group(tx, directory, group_id)
            held = (await tx.groups.members([group_id]))[group_id]
            wanted = describe(before, held)
            after = replace(before, name=wanted.name, external_id=wanted.external_id)
            await _check_group_name_free(tx, after)
            await tx.groups.change(after)
            affected = await self._set_group_members(tx, group_id, wanted.members)
            details = {"name": after.name, "moved": str(len(affected))}
            await tx.audit.record(directory.actor, "group.change", group_id, **details)
        if after != before:
            affected |= {user.id for user in held}
        await self._apply_group_grants(directory, (before, after), affected)
        return after

    async def _set_group_members(
        self, tx: Transaction, group_id: str, member_ids: Collection[str]
    ) -> set[str]:
        held = {user.id for user in (await tx.groups.members([group_id]))[group_id]}
        joined, left = set(member_ids) - held, held - set(member_ids)
        try:
            await tx.groups.join(group_id, joined)
        except Taken as failure:
            raise InvalidRequest("A member is no user here.", param="members") from failure
        await tx.groups.leave(group_id, left)
        return joined | left

    async def remove_group(self, directory: GroupClaims, group_id: str) -> None:
        """Delete a group; its members lose what it grants."""
        async with self._store.writing() as tx:
            group = await _find_group(tx, directory, group_id)
            affected = await self._set_group_members(tx, group_id, ())
            await tx.groups.remove(id=group_id)
            await tx.audit.record(directory.actor, "group.delete", group_id, name=group.name)
        await self._apply_group_grants(directory, (group,), affected)

    async def _apply_group_grants(
        self, directory: GroupClaims, groups: Collection[IdentityGroup], user_ids: Collection[str]
    ) -> None:
        names = {name for each in groups for name in (each.name, each.external_id)}
        if any(grant.group in names for grant in directory.grants):
            await self._apply_user_grants(directory, user_ids)

    async def _apply_user_grants(self, directory: GroupClaims, user_ids: Collection[str]) -> None:
        # One transaction for each, so that a large group does not hold up the database.
        for id in sorted(user_ids):
            async with self._store.reading() as tx:
                user = await tx.people.find(id)
            if user is not None:
                async with self._store.writing() as tx:
                    await self._membership_service.settle(tx, user, directory)


def _format_audit_fields(user: User) -> dict[str, str]:
    return {"email": user.email, "name": user.name, "user_name": user.user_name}


async def _find_group(tx: Transaction, directory: GroupClaims, group_id: str) -> IdentityGroup:
    group = await tx.groups.find(group_id)
    if group is None or group.provider != directory.provider:
        raise no_such("group")
    return group


async def _check_person_unique(tx: Transaction, user_id: str, email: str, user_name: str) -> None:
    same_email = await tx.people.one(email=email)
    _, same_name = await tx.people.search({"user_name": user_name}, 0, 2)
    if any(each is not None and each.id != user_id for each in (same_email, *same_name)):
        raise conflict("taken", "Another user has this userName or address.")


async def _check_group_name_free(tx: Transaction, group: IdentityGroup) -> None:
    _, same = await tx.groups.search(group.provider, {"name": group.name}, 0, 2)
    if any(each.id != group.id for each in same):
        raise conflict("taken", "There is a group with this displayName.")


_log = structlog.get_logger(__name__)
_RANK = {role: rank for rank, role in enumerate(Role)}  # owner first


class GroupMemberships(AccountService):
    """Memberships and operator rights that come from groups.

    Each is marked with its group. Rights without such a mark were given by hand and stay.
    """

    async def apply(self, issuer: str, subject: str, claims: GroupClaims) -> None:
        """Grant and revoke what the groups of the user with this identity determine."""
        async with self._store.writing() as tx:
            user = await tx.people.by_identity(issuer, subject)
            if user is not None:
                await self.settle(tx, user, claims)

    async def settle(self, tx: Transaction, user: User, claims: GroupClaims) -> None:
        """Grant and revoke what a user's groups determine, unless the user is disabled."""
        if claims.provisioned:
            names = await tx.groups.names(claims.provider, user.id)
            claims = replace(claims, groups=names)
        if user.disabled_at is None:
            operator_changed = await self._sync_operator_rights(tx, user, claims)
            memberships_changed = await self._sync_memberships(tx, user, claims)
            if operator_changed or memberships_changed:
                await withdraw_links(tx, user.id)
                await tx.keys.announce(f"user:{user.id}")

    async def _sync_operator_rights(self, tx: Transaction, user: User, claims: GroupClaims) -> bool:
        held = claims.held
        grants = [one for one in held if one.operator] or [one for one in held if one.rights]
        mark, operator = (claims.mark(grants[0]), grants[0].operator) if grants else ("", False)
        rights = frozenset(right for one in grants for right in one.rights if not operator)
        by_hand = user.operates and not claims.gave(user.operator_group)
        if by_hand or (user.operator, user.rights) == (operator, rights):
            return False
        operators = await tx.people.operators()  # locked before the user, as by everybody
        current = await tx.people.find(user.id)
        if current is None:
            return False
        last = current.operator and operators == 1 and current.disabled_at is None
        if last and not operator:
            _log.warning("identity.last_operator_kept", provider=claims.provider, user=user.id)
            return False
        given = replace(current, operator=operator, rights=rights, operator_group=mark)
        await tx.people.change(given)
        details = {"operator": str(bool(mark)), "group": mark or user.operator_group}
        if rights:
            details["rights"] = ", ".join(sorted(rights))
        await tx.audit.record(claims.actor, "user.operator", user.id, **details)
        return True

    async def _sync_memberships(self, tx: Transaction, user: User, claims: GroupClaims) -> bool:
        wanted = _strongest_grant_by_project(claims)
        held = {each.project_id: each for _, each in await tx.projects.of(user.id)}
        changed = False
        for project_id in sorted({*wanted, *held}):
            before, grant = held.get(project_id), wanted.get(project_id)
            if before is not None and not claims.gave(before.from_group):
                continue
            if grant is None and before is not None:
                await self._leave_and_withdraw_keys(tx, user, before)
                verb, details = "member.remove", {"group": before.from_group}
            elif grant is not None and await self._put_if_changed(tx, user, before, grant, claims):
                verb = "member.change" if before else "member.join"
                role = difference(before.role, grant.role) if before else str(grant.role)
                details = {"group": claims.mark(grant), "role": role}
            else:
                continue
            await tx.audit.record(claims.actor, verb, user.id, project_id, **details)
            changed = True
        return changed

    async def _put_if_changed(
        self,
        tx: Transaction,
        user: User,
        old_membership: Membership | None,
        grant: GroupGrant,
        claims: GroupClaims,
    ) -> bool:
        since = old_membership.since if old_membership is not None else tx.now
        after = Membership(grant.project_id, user.id, grant.role, since, claims.mark(grant))
        if after == old_membership:
            return False
        if await tx.projects.find(grant.project_id) is None:
            _log.warning("identity.no_such_project", group=grant.group, project=grant.project_id)
            return False
        await tx.projects.join(after)
        return True

    async def _leave_and_withdraw_keys(self, tx: Transaction, user: User, left: Membership) -> None:
        keys = await tx.keys.derived(user.id, left.project_id)
        await tx.projects.leave(left.project_id, user.id)
        await withdraw_open(tx, left.project_id, user.email)
        await tx.keys.withdraw(keys)


def _strongest_grant_by_project(claims: GroupClaims) -> Mapping[str, GroupGrant]:
    # Of several roles in a project, the one with most rights.
    found: dict[str, GroupGrant] = {}
    for each in claims.held:
        if not each.project_id:
            continue
        before = found.get(each.project_id)
        if before is None or _RANK[each.role] < _RANK[before.role]:
            found[each.project_id] = each
    return found


ANY_DOMAIN = "*"
JOIN_NEVER, JOIN_ALL = "never", "all"


@dataclass(frozen=True, slots=True)
class SsoProvisioning:
    """Signs people in with an identity of another provider.

    An identity does not enter an account because its address is the same: whoever can make up an
    address at a provider could take that account. Its owner links the identity instead, or the
    operator lets verified addresses join accounts. A new account needs an open invitation, or a
    verified address of a listed domain.
    """

    _user_service: Users
    _sign_in: SignIn
    _membership_service: GroupMemberships

    async def enter(
        self,
        who: Vouched,
        client: SessionClient,
        *,
        domains: Collection[str] = (),
        join: str = JOIN_NEVER,
        link_token: str = "",
        old_token: str | None = None,
    ) -> NewSession:
        """Begin a session of the identity's account; create or join the account if allowed.

        Addresses of ``domains`` may sign up (:data:`ANY_DOMAIN`: all). Raises
        :class:`Unauthenticated` without an account, :class:`NotFound` for a spent link, and
        :class:`InvalidRequest`.
        """
        try:
            return await self._apply_groups_and_open_session(who, client, old_token)
        except Unauthenticated as failure:
            if isinstance(failure.__cause__, AccountDisabled):
                raise
            if not link_token and not await self._try_to_link_identity_by_email(who, join):
                why = _explain_sign_up_refusal_or_empty(who, domains)
                if why:
                    raise no_account() from SignInRefused(why)
                name = _tidy_claimed_name(who)
                await self._user_service.sign_up(email=who.email, name=name, identity=who.identity)
        if link_token:
            await self._accept_invitation(who, link_token)
        return await self._apply_groups_and_open_session(who, client, old_token)

    async def _try_to_link_identity_by_email(self, person: Vouched, join_policy: str) -> bool:
        if join_policy == JOIN_NEVER or not person.email_verified:
            return False
        every = join_policy == JOIN_ALL
        return await self._user_service.join_identity(person.email, person.identity, claimed=every)

    async def _accept_invitation(self, person: Vouched, link_token: str) -> None:
        link = await self._user_service.link(link_token)
        if link.email is not None and not person.email_verified:
            raise InvalidRequest(
                "The invitation is for an address, and the provider does not say that yours "
                "is verified.",
                param="email",
            )
        try:
            await self._user_service.accept(
                link_token,
                email=person.email,
                name=_tidy_claimed_name(person),
                password=None,
                identity=person.identity,
            )
        except InvalidRequest as failure:
            if failure.code != "taken" or person.email_verified:
                raise
            raise no_account() from failure  # the address may be anybody's

    async def _apply_groups_and_open_session(
        self, person: Vouched, client: SessionClient, old_token: str | None
    ) -> NewSession:
        # First, so that the session has the rights that the groups give now.
        await self._membership_service.apply(person.issuer, person.subject, person.groups)
        return await self._sign_in.with_identity(
            person.issuer, person.subject, client, old_token=old_token
        )


def _tidy_claimed_name(person: Vouched) -> str:
    try:
        return tidy_name(person.name)
    except InvalidRequest:
        return tidy_name(person.email.partition("@")[0] or "somebody")


def _explain_sign_up_refusal_or_empty(person: Vouched, sign_up_domains: Collection[str]) -> str:
    # Why a new account is not created; empty: it is.
    _, at, domain = person.email.rpartition("@")
    if not at:
        return "no account has this identity, and the provider gives no address"
    if not person.email_verified:
        return f"no account has this identity, and {person.email} is not verified by the provider"
    if domain not in sign_up_domains and ANY_DOMAIN not in sign_up_domains:
        return f"no account has this identity, and {domain} is none of the domains that may sign up"
    return ""
