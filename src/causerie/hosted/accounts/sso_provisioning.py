"""Coming in by the word of another provider: who has an account, who gets one, who does not;
groups there become memberships at each sign-in, and end at one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from causerie.errors import InvalidRequest, Unauthenticated
from causerie.hosted.accounts.audit import difference, entry
from causerie.hosted.accounts.authorization import Clock, withdraw_links, withdraw_open
from causerie.hosted.accounts.people import Actor, Membership, Role, User
from causerie.hosted.accounts.ports import AccountStore, Repositories
from causerie.hosted.accounts.sign_in import SignIn
from causerie.hosted.accounts.tokens import NewSession, SessionClient, tidy_name
from causerie.hosted.accounts.users import Users


_log = structlog.get_logger(__name__)
_RANK = {role: rank for rank, role in enumerate(Role)}  # owner first


@dataclass(frozen=True, slots=True)
class GroupGrant:
    """The members of a group have this role in a project, or are operators."""

    group: str
    project_id: str = ""
    role: Role = Role.MEMBER
    operator: bool = False


@dataclass(frozen=True, slots=True)
class GroupClaims:
    """The groups that a provider says somebody is in, and what its groups give."""

    provider: str
    groups: frozenset[str] = frozenset()
    grants: Sequence[GroupGrant] = ()

    @property
    def held(self) -> Sequence[GroupGrant]:
        """Return what these groups give."""
        return [each for each in self.grants if each.group in self.groups]

    def mark(self, grant: GroupGrant) -> str:
        """Return the mark of what this grant gave."""
        return f"{self.provider}:{grant.group}"

    def gave(self, mark: str) -> bool:
        """Return whether a group of this provider gave what has this mark."""
        return mark.startswith(f"{self.provider}:")

    @property
    def actor(self) -> Actor:
        """Return the provider, as the audit log names it."""
        return Actor("system", self.provider, f"groups of {self.provider}")


NO_GROUPS = GroupClaims("")


class GroupMemberships:
    """Applies what groups say."""

    def __init__(self, store: AccountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def apply(self, issuer: str, subject: str, claims: GroupClaims) -> None:
        """Give and take away what the groups of somebody with this identity say."""
        now = self._clock()
        async with self._store.writing() as repositories:
            user = await repositories.people.by_identity(issuer, subject)
            if user is None or user.disabled_at is not None:
                return
            operates = await _set_operator(repositories, user, claims, now)
            belongs = await _set_memberships(repositories, user, claims, now)
            if operates or belongs:
                await withdraw_links(repositories, user.id, now)
                await repositories.keys.announce(f"user:{user.id}", now)


async def _set_operator(
    repositories: Repositories, user: User, claims: GroupClaims, now: datetime
) -> bool:
    mark = next((claims.mark(each) for each in claims.held if each.operator), "")
    if user.operator == bool(mark) or (user.operator and not claims.gave(user.operator_group)):
        return False
    operators = await repositories.people.operators()  # locked before the user, as by everybody
    current = await repositories.people.find(user.id)
    if current is None:
        return False
    if not mark and operators == 1:
        _log.warning("identity.last_operator_kept", provider=claims.provider, user=user.id)
        return False
    await repositories.people.change(replace(current, operator=bool(mark), operator_group=mark))
    group = mark or user.operator_group
    await repositories.audit.add(
        entry(now, claims.actor, "user.operator", user.id, operator=str(bool(mark)), group=group)
    )
    return True


async def _set_memberships(
    repositories: Repositories, user: User, claims: GroupClaims, now: datetime
) -> bool:
    wanted = _wanted(claims)
    held = {each.project_id: each for _, each in await repositories.projects.of(user.id)}
    changed = False
    for project_id in sorted({*wanted, *held}):
        before, grant = held.get(project_id), wanted.get(project_id)
        if before is not None and not claims.gave(before.from_group):
            continue
        if grant is None:
            assert before is not None
            await _leave(repositories, user, before, now)
        elif not await _join(repositories, user, before, grant, claims, now):
            continue
        verb = _verb(before, grant)
        group = claims.mark(grant) if grant is not None else held[project_id].from_group
        role = {}
        if grant is not None:
            role["role"] = difference(before.role, grant.role) if before else str(grant.role)
        await repositories.audit.add(
            entry(now, claims.actor, verb, user.id, project_id, group=group, **role)
        )
        changed = True
    return changed


async def _join(
    repositories: Repositories,
    user: User,
    before: Membership | None,
    grant: GroupGrant,
    claims: GroupClaims,
    now: datetime,
) -> bool:
    since = before.since if before is not None else now
    after = Membership(grant.project_id, user.id, grant.role, since, claims.mark(grant))
    if after == before:
        return False
    if await repositories.projects.find(grant.project_id) is None:
        _log.warning("identity.no_such_project", group=grant.group, project=grant.project_id)
        return False
    await repositories.projects.join(after)
    return True


async def _leave(repositories: Repositories, user: User, before: Membership, now: datetime) -> None:
    keys = await repositories.keys.derived(user.id, before.project_id)
    await repositories.projects.leave(before.project_id, user.id, now)
    await withdraw_open(repositories, before.project_id, user.email, now)
    await repositories.keys.withdraw([key.id for key in keys], now)


def _wanted(claims: GroupClaims) -> Mapping[str, GroupGrant]:
    # Of several roles in a project, the one with most rights.
    found: dict[str, GroupGrant] = {}
    for each in claims.held:
        if not each.project_id:
            continue
        before = found.get(each.project_id)
        if before is None or _RANK[each.role] < _RANK[before.role]:
            found[each.project_id] = each
    return found


def _verb(before: Membership | None, grant: GroupGrant | None) -> str:
    if grant is None:
        return "member.remove"
    return "member.join" if before is None else "member.change"


ANY_DOMAIN = "*"


@dataclass(frozen=True, slots=True)
class Vouched:
    """Identity asserted by a trusted provider; ``email`` and ``name`` may be empty."""

    issuer: str
    subject: str
    email: str = ""
    email_verified: bool = False
    name: str = ""
    groups: GroupClaims = NO_GROUPS


class SsoProvisioning:
    """The way in with an identity."""

    def __init__(self, users: Users, sign_in: SignIn, groups: GroupMemberships) -> None:
        self._users = users
        self._sign_in = sign_in
        self._groups = groups

    async def enter(
        self,
        who: Vouched,
        client: SessionClient,
        *,
        domains: Collection[str] = (),
        link_token: str = "",
        old_token: str | None = None,
    ) -> NewSession:
        """A session of the account that the identity belongs to, which may be made by this.

        ``domains`` are those whose addresses may sign up, :data:`ANY_DOMAIN` for
        all. Raises :class:`Unauthenticated` for whom there is no way in,
        :class:`NotFound` for a spent link, and :class:`InvalidRequest`.
        """
        try:
            return await self._open(who, client, old_token)
        except Unauthenticated:
            if not link_token and not _may_sign_up(who, domains):
                raise
        identity = (who.issuer, who.subject)
        name = _name(who)
        if link_token:
            link = await self._users.link(link_token)
            if link.email is not None and not who.email_verified:
                raise InvalidRequest(
                    "The invitation is for an address, and the provider does not say that yours "
                    "is verified.",
                    param="email",
                )
            try:
                await self._users.accept(
                    link_token, email=who.email, name=name, password=None, identity=identity
                )
            except InvalidRequest as failure:
                if failure.code != "taken" or who.email_verified:
                    raise
                raise Unauthenticated(  # the address may be anybody's
                    "No account here belongs to this identity.", code="no_account"
                ) from failure
        else:
            await self._users.sign_up(email=who.email, name=name, password=None, identity=identity)
        return await self._open(who, client, old_token)

    async def _open(self, who: Vouched, client: SessionClient, old_token: str | None) -> NewSession:
        # First, so that the session has the rights that the groups give now.
        await self._groups.apply(who.issuer, who.subject, who.groups)
        return await self._sign_in.with_identity(
            who.issuer, who.subject, client, old_token=old_token
        )


def _may_sign_up(who: Vouched, domains: Collection[str]) -> bool:
    _, at, domain = who.email.rpartition("@")
    return bool(at) and who.email_verified and (domain in domains or ANY_DOMAIN in domains)


def _name(who: Vouched) -> str:
    try:
        return tidy_name(who.name)
    except InvalidRequest:
        return tidy_name(who.email.partition("@")[0] or "somebody")
