"""Users: how accounts come to be, and what becomes of them; also of people who ask for one
without an invitation, where the service is open to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.audit import entry
from causerie.hosted.accounts.authorization import (
    Clock,
    check_return,
    no_such,
    require,
    shut_out,
    supported_links,
    usable_link,
    used_link,
    withdraw_links,
)
from causerie.hosted.accounts.bounds import LimitsAndBudgets
from causerie.hosted.accounts.keys import (
    APPROVED,
    SIGN_UP,
    LinkGrant,
    LinkKind,
    NewLink,
    OneTimeLink,
    new_link,
    no_such_link,
)
from causerie.hosted.accounts.passwords import Passwords
from causerie.hosted.accounts.people import (
    SYSTEM,
    Action,
    Actor,
    LinkedIdentity,
    Membership,
    Project,
    Role,
    User,
    actor_of,
)
from causerie.hosted.accounts.ports import AccountStore, Repositories, Taken
from causerie.hosted.accounts.tokens import new_id, tidy_email, tidy_name


@dataclass(frozen=True, slots=True)
class Asked:
    """A sign-up. The fact that the address is ``known`` is for its holder alone."""

    made: NewLink
    known: bool


class SignUps:
    """Takes note of them, and gives them links."""

    def __init__(self, store: AccountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def ask(self, email: str) -> Asked:
        """Take note that somebody asks for an account: only for services that are open to all.

        The link that creates it is for the holder of the address alone. The steps are the same for
        addresses with and without an account; so must be what is answered.
        """
        now, email = self._clock(), tidy_email(email)
        made = new_link(LinkKind.INVITATION, now, SIGN_UP, LinkGrant(email=email))
        async with self._store.writing() as repositories:
            await repositories.links.forget(SIGN_UP.label, email, now)
            await repositories.links.add(made.link)
            return Asked(made, await repositories.people.by_email(email) is not None)

    async def asked(self, actor: Actor) -> Sequence[OneTimeLink]:
        """The people without an account who ask for one, oldest first."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.USERS_INVITE)
            found = await repositories.links.open(None, self._clock())
            return [
                each
                for each in found
                if each.created_by == SIGN_UP.label
                and await repositories.people.by_email(each.email or "") is None
            ]

    async def approve(self, actor: Actor, link_id: str) -> NewLink:
        """The link for somebody who asks for an account, to be given to them by hand."""
        now = self._clock()
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.USERS_INVITE)
            link = await repositories.links.find(link_id)
            if link is None or link.created_by != SIGN_UP.label or link.used_at is not None:
                raise no_such("sign-up")
            made = new_link(LinkKind.INVITATION, now, APPROVED, LinkGrant(email=link.email))
            made = replace(made, link=replace(made.link, person=actor.person))
            await repositories.links.withdraw(link.id)
            await repositories.links.add(made.link)
            await repositories.audit.add(
                entry(now, actor, "user.invite", made.link.id, email=link.email or "")
            )
            return made


class Users:
    """Accounts of people."""

    def __init__(self, store: AccountStore, passwords: Passwords, clock: Clock) -> None:
        self._store = store
        self._passwords = passwords
        self._clock = clock
        self.new_project_bounds = LimitsAndBudgets()
        """Limits and budgets of the projects of people who sign up."""

    async def first_link(self) -> NewLink | None:
        """The link that makes the first operator; ``None`` where there is one already."""
        async with self._store.writing() as repositories:
            if await repositories.people.operators():
                return None
            made = new_link(LinkKind.OWNER, self._clock(), SYSTEM, LinkGrant(operator=True))
            await repositories.links.add(made.link)
            return made

    async def invite(
        self, actor: Actor, *, email: str | None = None, operator: bool = False
    ) -> NewLink:
        """A link that makes an account; with ``email``, only for that address."""
        address = tidy_email(email) if email else None
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.USERS_INVITE)
            if operator:
                await require(repositories, actor, Action.USERS_CHANGE)
            made = new_link(
                LinkKind.INVITATION,
                self._clock(),
                actor,
                LinkGrant(email=address, operator=operator),
            )
            await repositories.links.add(made.link)
            await repositories.audit.add(
                entry(self._clock(), actor, "user.invite", made.link.id, email=address or "anybody")
            )
            return made

    async def link(self, token: str) -> OneTimeLink:
        """Return the link of a token; raise :class:`NotFound` if it does not work any more."""
        async with self._store.reading() as repositories:
            return await usable_link(repositories, token, self._clock())

    async def accept(
        self,
        token: str,
        *,
        email: str,
        name: str,
        password: str | None,
        identity: tuple[str, str] | None = None,
    ) -> User:
        """Use up a link and make the account that it is for.

        Without a password the account is entered by an ``identity`` (issuer and
        subject) of another provider, which the caller has seen. Raises
        :class:`NotFound` for a spent link, and :class:`InvalidRequest`.
        """
        email, name = tidy_email(email), tidy_name(name)
        hashed = None
        await self.link(token)  # before the hash, which costs
        if password is not None:
            hashed = await self._passwords.hash_new(password, (email, name))
        async with self._store.writing() as repositories:
            link = await used_link(
                repositories, token, self._clock(), LinkKind.INVITATION, LinkKind.OWNER
            )
            if link.kind is LinkKind.OWNER:
                await self._first_only(repositories)
            if link.email is not None and link.email != email:
                raise InvalidRequest("The invitation is for another address.", param="email")
            user = self._new(email, name, hashed, operator=link.operator)
            await self._add(repositories, user, actor_of(user), by=link.created_by)
            if identity is not None:
                await self._bind(repositories, user, *identity)
            await self._join(repositories, link, user)
            if link.kind is LinkKind.OWNER:
                await self._first_project(repositories, user, LimitsAndBudgets())
            elif link.created_by in (SIGN_UP.label, APPROVED.label):
                await self._first_project(repositories, user, self.new_project_bounds)
            return user

    async def join(self, token: str, user: User) -> None:
        """Use up a project's invitation for somebody who has an account already."""
        async with self._store.writing() as repositories:
            link = await used_link(repositories, token, self._clock(), LinkKind.INVITATION)
            if link.email is not None and link.email != user.email:
                raise InvalidRequest("The invitation is for another address.", param="email")
            current = await repositories.people.find(user.id)
            if link.operator and current is not None and not current.operator:
                await repositories.people.change(replace(current, operator=True))
                await repositories.audit.add(
                    entry(
                        self._clock(), actor_of(user), "user.operator", user.id, by=link.created_by
                    )
                )
            await self._join(repositories, link, user)

    async def create(
        self, actor: Actor, *, email: str, name: str, password: str | None, operator: bool = False
    ) -> User:
        """Make an account directly, as an operator or at the command line."""
        email, name = tidy_email(email), tidy_name(name)
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.USERS_CHANGE)
        hashed = (
            None if password is None else await self._passwords.hash_new(password, (email, name))
        )
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.USERS_CHANGE)
            user = self._new(email, name, hashed, operator=operator)
            await self._add(repositories, user, actor, by=actor.label)
            return user

    async def sign_up(
        self,
        *,
        email: str,
        name: str,
        password: str | None,
        identity: tuple[str, str] | None = None,
    ) -> User:
        """Make an account without an invitation: only for services that are open to all.

        ``identity`` is as for :meth:`accept`.
        """
        email, name = tidy_email(email), tidy_name(name)
        hashed = None
        if password is not None:
            hashed = await self._passwords.hash_new(password, (email, name))
        async with self._store.writing() as repositories:
            user = self._new(email, name, hashed, operator=False)
            await self._add(repositories, user, actor_of(user), by="sign-up")
            await self._first_project(repositories, user, self.new_project_bounds)
            if identity is not None:
                await self._bind(repositories, user, *identity)
            return user

    async def link_identity(self, user: User, issuer: str, subject: str) -> None:
        """Let an identity of another provider enter this account."""
        async with self._store.writing() as repositories:
            await self._bind(repositories, user, issuer, subject)

    async def identities(self, user: User) -> Sequence[LinkedIdentity]:
        """The identities that enter this account, oldest first."""
        async with self._store.reading() as repositories:
            return await repositories.people.identities(user.id)

    async def unlink_identity(self, user: User, issuer: str, subject: str) -> None:
        """Let an identity enter this account no more; raises :class:`NotFound`.

        And :class:`InvalidRequest` where there would be no way in any more.
        """
        async with self._store.writing() as repositories:
            found = await repositories.people.identities(user.id)
            gone = [each for each in found if (each.issuer, each.subject) == (issuer, subject)]
            if not gone:
                raise no_such("identity")
            current = await repositories.people.find(user.id)
            if len(found) == 1 and (current is None or current.password is None):
                raise InvalidRequest(
                    "This is the only way into your account; add another first.",
                    code="last_identity",
                    status=409,
                )
            await repositories.people.unlink(gone[0])
            await repositories.audit.add(
                entry(self._clock(), actor_of(user), "user.unlink_identity", user.id, issuer=issuer)
            )

    async def every(self, actor: Actor) -> Sequence[User]:
        """All users, by address."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.USERS_SEE)
            return await repositories.people.every()

    async def see(self, actor: Actor, user_id: str) -> User:
        """One user; raises :class:`NotFound`."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.USERS_SEE)
            user = await repositories.people.find(user_id)
        if user is None:
            raise no_such("user")
        return user

    async def invitations(self, actor: Actor) -> Sequence[OneTimeLink]:
        """The invitations to the service that nobody has used yet."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.USERS_INVITE)
            found = await repositories.links.open(None, self._clock())
            offered = [
                each
                for each in found
                if each.kind is LinkKind.INVITATION and each.created_by != SIGN_UP.label
            ]
            return await supported_links(repositories, offered)

    async def withdraw(self, actor: Actor, link_id: str) -> None:
        """Take an invitation to the service back."""
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.USERS_INVITE)
            link = await repositories.links.find(link_id)
            if link is None or link.project_id or link.kind is not LinkKind.INVITATION:
                raise no_such("invitation")
            await repositories.links.withdraw(link_id)
            await repositories.audit.add(entry(self._clock(), actor, "user.withdraw", link_id))

    async def disable(self, actor: Actor, user_id: str, *, disabled: bool = True) -> User:
        """Shut somebody out, or let them in again.

        Their sessions end. Keys that derive from them stop until they are let in again; their
        links are withdrawn, and links by which somebody shut out could come back.
        """
        now = self._clock()
        async with self._store.writing() as repositories:
            user = await self._changeable(repositories, actor, user_id)
            changed = replace(user, disabled_at=self._clock() if disabled else None)
            await self._keep_an_operator(repositories, user, changed)
            await repositories.people.change(changed)
            if disabled:
                await repositories.sessions.end_all(user.id)
                await shut_out(repositories, user, now)
            await repositories.keys.announce(f"user:{user.id}", now)
            verb = "user.disable" if disabled else "user.enable"
            await repositories.audit.add(entry(now, actor, verb, user.id))
            return changed

    async def make_operator(self, actor: Actor, user_id: str, *, operator: bool = True) -> User:
        """Let somebody see to the whole service, or not any more."""
        async with self._store.writing() as repositories:
            user = await self._changeable(repositories, actor, user_id)
            changed = replace(user, operator=operator, operator_group="")
            await self._keep_an_operator(repositories, user, changed)
            await repositories.people.change(changed)
            await withdraw_links(repositories, user.id, self._clock())
            await repositories.audit.add(
                entry(self._clock(), actor, "user.operator", user.id, operator=str(operator))
            )
            return changed

    async def remove_factor(self, actor: Actor, user_id: str) -> User:
        """For somebody who has lost it, codes and all: the password alone lets them in again.

        Their sessions end. Raises :class:`NotFound` where there is none, and
        :class:`InvalidRequest` for one's own, whose end needs a code of it.
        """
        async with self._store.writing() as repositories:
            user = await self._changeable(repositories, actor, user_id)
            if actor.kind == "user" and actor.id == user.id:
                raise InvalidRequest(
                    "Remove your own two-factor authentication in your profile, with a code of it.",
                    code="own_factor",
                    status=409,
                )
            if user.id not in await repositories.factors.users():
                raise NotFound("This user has no two-factor authentication.", code="not_found")
            await repositories.factors.remove(user.id)
            await repositories.sessions.end_all(user.id)
            await repositories.audit.add(
                entry(self._clock(), actor, "user.second_factor_off", user.id)
            )
            return user

    async def with_factor(self, actor: Actor) -> frozenset[str]:
        """The ids of those whose sign-in needs a code."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.USERS_SEE)
            return await repositories.factors.users()

    async def reset_link(self, actor: Actor, user_id: str) -> NewLink:
        """A link by which somebody chooses a new password."""
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.USERS_INVITE)
            if await repositories.people.find(user_id) is None:
                raise no_such("user")
            made = new_link(LinkKind.RESET, self._clock(), actor, LinkGrant(user_id=user_id))
            await repositories.links.add(made.link)
            await repositories.audit.add(entry(self._clock(), actor, "user.reset_link", user_id))
            return made

    def _new(self, email: str, name: str, hashed: str | None, *, operator: bool) -> User:
        return User(new_id("usr"), email, name, hashed, operator, self._clock())

    async def _add(self, repositories: Repositories, user: User, actor: Actor, *, by: str) -> None:
        try:
            await repositories.people.add(user)
        except Taken as failure:
            raise InvalidRequest(
                "This address has an account already; sign in with it.",
                param="email",
                code="taken",
                status=409,
            ) from failure
        await repositories.audit.add(
            entry(self._clock(), actor, "user.create", user.id, email=user.email, by=by)
        )

    async def _bind(
        self, repositories: Repositories, user: User, issuer: str, subject: str
    ) -> None:
        now = self._clock()
        try:
            await repositories.people.link(LinkedIdentity(issuer, subject, user.id, now))
        except Taken as failure:
            raise InvalidRequest(
                "This identity belongs to an account already.", code="taken", status=409
            ) from failure
        await repositories.audit.add(
            entry(now, actor_of(user), "user.link_identity", user.id, issuer=issuer)
        )

    async def _first_only(self, repositories: Repositories) -> None:
        # The announcement is for its lock: of two that come at once, one waits here.
        await repositories.keys.announce("operators", self._clock())
        if await repositories.people.operators():
            raise no_such_link()

    async def _first_project(
        self, repositories: Repositories, user: User, bounds: LimitsAndBudgets
    ) -> None:
        now = self._clock()
        project = Project(new_id("prj"), "Main", now)
        await repositories.projects.add(project)
        await repositories.projects.join(Membership(project.id, user.id, Role.OWNER, now))
        note = entry(now, actor_of(user), "project.create", project.id, project.id, name="Main")
        await repositories.audit.add(note)
        if bounds != LimitsAndBudgets():
            await repositories.keys.set_bounds(f"project:{project.id}", bounds)

    async def _join(self, repositories: Repositories, link: OneTimeLink, user: User) -> None:
        if link.project_id is None or link.role is None:
            return
        now = self._clock()
        before = await repositories.projects.membership(link.project_id, user.id)
        if before is not None:
            raise InvalidRequest("You are in this project already.", code="taken", status=409)
        await check_return(repositories, link, user.id)
        await repositories.projects.join(Membership(link.project_id, user.id, link.role, now))
        await repositories.audit.add(
            entry(now, actor_of(user), "member.join", user.id, link.project_id, role=link.role)
        )

    async def _changeable(self, repositories: Repositories, actor: Actor, user_id: str) -> User:
        await require(repositories, actor, Action.USERS_CHANGE)
        await (
            repositories.people.operators()
        )  # locked before one of them is, in one order by everybody
        user = await repositories.people.find(user_id)
        if user is None:
            raise no_such("user")
        return user

    async def _keep_an_operator(
        self, repositories: Repositories, before: User, after: User
    ) -> None:
        was = before.operator and before.disabled_at is None
        still = after.operator and after.disabled_at is None
        if was and not still and await repositories.people.operators() == 1:
            raise InvalidRequest(
                "This is the last operator; make somebody else one first.",
                code="last_operator",
                status=409,
            )
