"""Coming in by the word of another provider: who has an account, who gets one, who does not.

An account is never entered because its address is the same: whoever can make up
an address at some provider could take it. Its owner links the identity instead,
signed in. A new account comes by an open invitation, or for verified addresses
of listed domains.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from causerie.accounts.group_memberships import NO_GROUPS, GroupClaims, GroupMemberships
from causerie.accounts.names import tidy_name
from causerie.accounts.sessions import NewSession, SessionClient
from causerie.accounts.sign_in import SignIn
from causerie.accounts.users import Users
from causerie.errors import InvalidRequest, Unauthenticated

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
        """A session, once the rights are those that the groups give now."""
        await self._groups.apply(who.issuer, who.subject, who.groups)
        return await self._sign_in.with_identity(
            who.issuer, who.subject, client, old_token=old_token
        )


def _may_sign_up(who: Vouched, domains: Collection[str]) -> bool:
    _, at, domain = who.email.rpartition("@")
    return bool(at) and who.email_verified and (domain in domains or ANY_DOMAIN in domains)


def _name(who: Vouched) -> str:
    """A name that can be kept: theirs, or what stands before the ``@``."""
    try:
        return tidy_name(who.name)
    except InvalidRequest:
        return tidy_name(who.email.partition("@")[0] or "somebody")
