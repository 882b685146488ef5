"""Accounts of people: sign-ups, invitations, and changes by operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.authorization import (
    AccountService,
    Policies,
    add_link,
    conflict,
    existing,
    no_such,
    require,
    shut_out,
    supported_links,
    usable_link,
    used_link,
    withdraw_links,
    withdraw_open,
)
from causerie.hosted.accounts.bounds import Credit
from causerie.hosted.accounts.keys import (
    APPROVED,
    FORGOTTEN,
    SIGN_UP,
    LinkKind,
    NewLink,
    OneTimeLink,
    no_such_link,
)
from causerie.hosted.accounts.passwords import Passwords
from causerie.hosted.accounts.people import (
    OPERATOR_RIGHTS,
    REMOVED,
    SYSTEM,
    Action,
    Actor,
    LinkedIdentity,
    Membership,
    Project,
    User,
    actor_of,
)
from causerie.hosted.accounts.records import Taken
from causerie.hosted.accounts.tokens import LONGEST_NAME, new_id, tidy_email, tidy_name
from causerie.hosted.store.accounts import SqlStore, Transaction


def checked_rights(rights: frozenset[str]) -> frozenset[str]:
    """Return these operator rights unchanged; raise :class:`InvalidRequest` if one is unknown."""
    if unknown := sorted(rights - {*OPERATOR_RIGHTS}):
        raise InvalidRequest(
            f"There is no right {unknown[0][:40]}; the rights are {', '.join(OPERATOR_RIGHTS)}.",
            param="rights",
        )
    return rights


def _check_invited_address(invitation: OneTimeLink, email: str) -> None:
    if invitation.email not in (None, email):
        raise InvalidRequest("The invitation is for another address.", param="email")


class SignUps(AccountService):
    """Creates links for people who ask for an account or a new password; approves sign-ups."""

    async def ask(self, email: str) -> tuple[NewLink, bool]:
        """Create a link for a sign-up; return it, and whether the address has an account.

        Only for services with open sign-up. Both are for the holder of the address alone: the steps
        are the same with and without an account, and so must be the answer to the client.
        """
        email = tidy_email(email)
        async with self._store.writing() as tx:
            await tx.links.forget(SIGN_UP.label, email)
            made = await add_link(tx, LinkKind.INVITATION, SIGN_UP, email=email)
            return made, await tx.people.one(email=email) is not None

    async def forgotten(self, email: str) -> tuple[NewLink, bool]:
        """Create a link for a new password; return it, and whether the address has one to reset."""
        email = tidy_email(email)
        async with self._store.writing() as tx:
            user = await tx.people.one(email=email)
            known = user is not None and user.password is not None and user.disabled_at is None
            user_id = user.id if known and user else None
            await tx.links.forget(FORGOTTEN.label, email)
            made = await add_link(tx, LinkKind.RESET, FORGOTTEN, email=email, user_id=user_id)
        return made, known

    async def asked(self, actor: Actor) -> Sequence[OneTimeLink]:
        """Return the open sign-ups of people without an account, oldest first."""
        async with self._begin_read(actor, Action.USERS_INVITE) as tx:
            found = await tx.links.open(project_id=None, created_by=SIGN_UP.label)
            return [each for each in found if await tx.people.one(email=each.email) is None]

    async def approve(self, actor: Actor, link_id: str) -> NewLink:
        """Replace an open sign-up's link by a new invitation, which the operator passes on."""
        async with self._begin_write(actor, Action.USERS_INVITE) as tx:
            link = await tx.links.find(link_id)
            if link is None or link.created_by != SIGN_UP.label or link.used_at is not None:
                raise no_such("sign-up")
            await tx.links.withdraw([link])
            granted = {"email": link.email, "person": actor.person}
            made = await add_link(tx, LinkKind.INVITATION, APPROVED, **granted)
            await tx.audit.record(actor, "user.invite", made.link.id, email=link.email or "")
            return made


class Users(AccountService):
    def __init__(self, store: SqlStore, passwords: Passwords) -> None:
        super().__init__(store)
        self._passwords = passwords

    async def first_link(self) -> NewLink | None:
        """Create the link for the first operator; return ``None`` if there is an operator."""
        async with self._store.writing() as tx:
            if await tx.people.operators():
                return None
            return await add_link(tx, LinkKind.OWNER, SYSTEM, operator=True)

    async def invite(
        self, actor: Actor, *, email: str | None = None, operator: bool = False
    ) -> NewLink:
        """Create an invitation to the service; with ``email``, only for this address."""
        address = tidy_email(email) if email else None
        async with self._begin_write(actor, Action.USERS_INVITE) as tx:
            if operator:
                await require(tx, actor, Action.OPERATORS_CHANGE)
            if address:  # the last one that was sent works
                await withdraw_open(tx, None, address, others=False)
            granted = {"email": address, "operator": operator}
            made = await add_link(tx, LinkKind.INVITATION, actor, **granted)
            await tx.audit.record(actor, "user.invite", made.link.id, email=address or "anybody")
            return made

    async def link(self, token: str) -> OneTimeLink:
        """Return the link of a token; raise :class:`NotFound` if it does not work."""
        async with self._store.reading() as tx:
            return await usable_link(tx, token)

    async def accept(
        self,
        token: str,
        *,
        email: str,
        name: str,
        password: str | None,
        identity: tuple[str, str] | None = None,
    ) -> User:
        """Create the account of an invitation, and use its link up.

        Without a password, the user signs in with ``identity`` (issuer and subject), which the
        caller has verified. Raises :class:`NotFound` for a spent link, and :class:`InvalidRequest`.
        """
        email, name = tidy_email(email), tidy_name(name)
        await self.link(token)  # before the hash, which costs
        hashed = await self._hash_new_password(password, email, name)
        async with self._store.writing() as tx:
            link = await used_link(tx, token, LinkKind.INVITATION, LinkKind.OWNER)
            if link.kind is LinkKind.OWNER:
                # The announcement is for its lock: of two that come at once, one waits here.
                await tx.keys.announce("operators")
                if await tx.people.operators():
                    raise no_such_link()
            _check_invited_address(link, email)
            user = User(new_id("usr"), email, name, hashed, link.operator, tx.now)
            await self._add_user_with_defaults(tx, user, actor_of(user), by=link.created_by)
            if identity is not None:
                await self._bind_identity(tx, user, *identity)
            await self._join_invited_project(tx, link, user)
            if link.kind is LinkKind.OWNER:
                await self._create_first_project(tx, user, Policies())
            elif link.created_by in (SIGN_UP.label, APPROVED.label):
                await self._create_first_project(tx, user, self.policies)
            return user

    async def join(self, token: str, user: User) -> None:
        """Use up an invitation: let an existing user join its project or become an operator."""
        async with self._store.writing() as tx:
            link = await used_link(tx, token, LinkKind.INVITATION)
            _check_invited_address(link, user.email)
            current = await tx.people.find(user.id)
            if link.operator and current is not None and not current.operator:
                await tx.people.change(replace(current, operator=True, rights=frozenset()))
                await tx.audit.record(actor_of(user), "user.operator", user.id, by=link.created_by)
            await self._join_invited_project(tx, link, user)

    async def create(
        self,
        actor: Actor,
        *,
        email: str,
        name: str,
        password: str | None = None,
        operator: bool = False,
    ) -> User:
        """Create an account, as an operator or at the command line."""
        email, name = tidy_email(email), tidy_name(name)
        await self.require(actor, Action.USERS_CHANGE)
        hashed = await self._hash_new_password(password, email, name)
        async with self._begin_write(actor, Action.USERS_CHANGE) as tx:
            if operator:
                await require(tx, actor, Action.OPERATORS_CHANGE)
            user = User(new_id("usr"), email, name, hashed, operator, tx.now)
            await self._add_user_with_defaults(tx, user, actor, by=actor.label)
            return user

    async def sign_up(self, *, email: str, name: str, identity: tuple[str, str]) -> User:
        """Create an account without an invitation (open sign-up), with sign-in by ``identity``."""
        email, name = tidy_email(email), tidy_name(name)
        async with self._store.writing() as tx:
            user = User(new_id("usr"), email, name, None, False, tx.now)
            await self._add_user_with_defaults(tx, user, actor_of(user), by="sign-up")
            await self._create_first_project(tx, user, self.policies)
            await self._bind_identity(tx, user, *identity)
            return user

    async def join_identity(self, email: str, identity: tuple[str, str], *, claimed: bool) -> bool:
        """Link an identity to the account of its verified address; return whether it was linked.

        ``claimed``: also to one that has a password or another identity.
        """
        async with self._store.writing() as tx:
            user = await tx.people.one(email=email)
            if user is None or user.disabled_at is not None:
                return False
            taken = user.password is not None or bool(await tx.people.identities(user.id))
            if taken and not claimed:
                return False
            await self._bind_identity(tx, user, *identity)
            return True

    async def link_identity(self, user: User, issuer: str, subject: str) -> None:
        async with self._store.writing() as tx:
            await self._bind_identity(tx, user, issuer, subject)

    async def identities(self, user: User) -> Sequence[LinkedIdentity]:
        """Return the identities linked to an account, oldest first."""
        async with self._store.reading() as tx:
            return await tx.people.identities(user.id)

    async def unlink_identity(self, user: User, issuer: str, subject: str) -> None:
        """Remove an identity from an account, unless it is the only way into it."""
        async with self._store.writing() as tx:
            found = await tx.people.identities(user.id)
            gone = [each for each in found if (each.issuer, each.subject) == (issuer, subject)]
            if not gone:
                raise no_such("identity")
            current = await tx.people.find(user.id)
            if len(found) == 1 and (current is None or current.password is None):
                raise conflict(
                    "last_identity", "This is the only way into your account; add another first."
                )
            await tx.people.unlink(gone[0])
            await tx.audit.record(actor_of(user), "user.unlink_identity", user.id, issuer=issuer)

    async def every(self, actor: Actor) -> Sequence[User]:
        """Return all users, sorted by e-mail address."""
        async with self._begin_read(actor, Action.USERS_SEE) as tx:
            return await tx.people.every()

    async def see(self, actor: Actor, user_id: str) -> User:
        async with self._begin_read(actor, Action.USERS_SEE) as tx:
            return existing(await tx.people.find(user_id), "user")

    async def invitations(self, actor: Actor) -> Sequence[OneTimeLink]:
        async with self._begin_read(actor, Action.USERS_INVITE) as tx:
            found = await tx.links.open(project_id=None, kind=LinkKind.INVITATION)
            offered = [each for each in found if each.created_by != SIGN_UP.label]
            return await supported_links(tx, offered)

    async def withdraw(self, actor: Actor, link_id: str) -> None:
        async with self._begin_write(actor, Action.USERS_INVITE) as tx:
            link = await tx.links.find(link_id)
            if link is None or link.project_id or link.kind is not LinkKind.INVITATION:
                raise no_such("invitation")
            await tx.links.withdraw([link])
            await tx.audit.record(actor, "user.withdraw", link_id)

    async def disable(self, actor: Actor, user_id: str, *, disabled: bool = True) -> User:
        """Disable a user, or enable them again.

        Disabling ends their sessions, stops the keys that derive from them until they are enabled,
        and withdraws their links and those by which they could come back.
        """
        async with self._store.writing() as tx:
            user = await self._find_changeable_user(tx, actor, user_id)
            changed = replace(user, disabled_at=tx.now if disabled else None)
            if user.external_id == REMOVED and not disabled:
                changed = replace(changed, external_id="")
            await self._require_other_operator(tx, user, changed)
            await tx.people.change(changed)
            if disabled:
                await tx.sessions.end_all(user.id)
                await shut_out(tx, user)
            await tx.keys.announce(f"user:{user.id}")
            await tx.audit.record(actor, "user.disable" if disabled else "user.enable", user.id)
            return changed

    async def make_operator(
        self,
        actor: Actor,
        user_id: str,
        *,
        operator: bool = True,
        rights: frozenset[str] = frozenset(),
    ) -> User:
        """Make a user a full operator, one with ``rights`` only, or (``operator`` false) none."""
        rights = checked_rights(rights)
        full = operator and not rights
        async with self._begin_write(actor, Action.OPERATORS_CHANGE) as tx:
            user = await self._find_changeable_user(tx, actor, user_id)
            changed = replace(
                user, operator=full, operator_group="", rights=rights if operator else frozenset()
            )
            await self._require_other_operator(tx, user, changed)
            await tx.people.change(changed)
            await withdraw_links(tx, user.id)
            await tx.links.withdraw(await tx.links.open(user_id=user.id))
            details = {"operator": str(operator)}
            if rights:
                details["rights"] = ", ".join(sorted(rights))
            await tx.audit.record(actor, "user.operator", user.id, **details)
            return changed

    async def remove_factor(self, actor: Actor, user_id: str) -> User:
        """Remove the two-factor authentication of a user who has lost it, and end their sessions.

        Raises :class:`NotFound` if there is none, and :class:`InvalidRequest` for one's own, which
        needs a code.
        """
        async with self._store.writing() as tx:
            user = await self._find_changeable_user(tx, actor, user_id)
            if actor.kind == "user" and actor.id == user.id:
                raise conflict(
                    "own_factor",
                    "Remove your own two-factor authentication in your profile, with a code of it.",
                )
            if user.id not in await tx.factors.users():
                raise NotFound("This user has no two-factor authentication.", code="not_found")
            await tx.factors.remove(user.id)
            await tx.sessions.end_all(user.id)
            await tx.audit.record(actor, "user.second_factor_off", user.id)
            return user

    async def with_factor(self, actor: Actor) -> frozenset[str]:
        async with self._begin_read(actor, Action.USERS_SEE) as tx:
            return await tx.factors.users()

    async def reset_link(self, actor: Actor, user_id: str) -> NewLink:
        async with self._begin_write(actor, Action.USERS_INVITE) as tx:
            await self._require_right_if_operator(
                tx, actor, existing(await tx.people.find(user_id), "user")
            )
            made = await add_link(tx, LinkKind.RESET, actor, user_id=user_id)
            await tx.audit.record(actor, "user.reset_link", user_id)
            return made

    async def _hash_new_password(self, password: str | None, email: str, name: str) -> str | None:
        return None if password is None else await self._passwords.hash_new(password, (email, name))

    async def _add_user_with_defaults(
        self, tx: Transaction, user: User, actor: Actor, *, by: str
    ) -> None:
        try:
            await tx.people.add(user)
        except Taken as failure:
            words = "This address has an account already; sign in with it."
            raise conflict("taken", words, "email") from failure
        await tx.audit.record(actor, "user.create", user.id, email=user.email, by=by)
        if not user.operator:
            await self.policies.person.give(tx, f"user:{user.id}")

    async def _bind_identity(self, tx: Transaction, user: User, issuer: str, subject: str) -> None:
        try:
            await tx.people.link(LinkedIdentity(issuer, subject, user.id, tx.now))
        except Taken as failure:
            raise conflict("taken", "This identity belongs to an account already.") from failure
        await tx.audit.record(actor_of(user), "user.link_identity", user.id, issuer=issuer)

    async def _create_first_project(self, tx: Transaction, user: User, policies: Policies) -> None:
        if policies.personal_project is None:
            return
        name = policies.personal_project_name.replace("{name}", user.name)
        name = name.replace("{email}", user.email)[:LONGEST_NAME]
        project = Project(new_id("prj"), name, tx.now)
        await tx.projects.add(project)
        await tx.projects.join(Membership(project.id, user.id, policies.personal_role, tx.now))
        creator = actor_of(user)
        await tx.audit.record(creator, "project.create", project.id, project.id, name=name)
        await policies.personal_project.give(tx, f"project:{project.id}")
        if given := policies.personal_credits:
            by, note = SIGN_UP.label, "for a new account"
            await tx.credits.add(Credit(new_id("cr"), project.id, given, tx.now, by, note))

    async def _join_invited_project(self, tx: Transaction, link: OneTimeLink, user: User) -> None:
        if link.project_id is None or link.role is None:
            return
        if await tx.projects.membership(link.project_id, user.id) is not None:
            raise conflict("taken", "You are in this project already.")
        left = await tx.projects.left(link.project_id, user.id)
        if left is not None and link.created_at <= left:
            words = "This invitation is older than the end of your membership; ask for a new one."
            raise conflict("link_spent", words)
        await tx.projects.join(Membership(link.project_id, user.id, link.role, tx.now))
        joined = actor_of(user), "member.join", user.id, link.project_id
        await tx.audit.record(*joined, role=link.role)

    async def _find_changeable_user(self, tx: Transaction, actor: Actor, user_id: str) -> User:
        await require(tx, actor, Action.USERS_CHANGE)
        await tx.people.operators()  # locked before one of them is, in one order by everybody
        user = existing(await tx.people.find(user_id), "user")
        await self._require_right_if_operator(tx, actor, user)
        return user

    async def _require_right_if_operator(self, tx: Transaction, actor: Actor, user: User) -> None:
        # Whoever has the account of an operator has their rights.
        if user.operates:
            await require(tx, actor, Action.OPERATORS_CHANGE)

    async def _require_other_operator(self, tx: Transaction, before: User, after: User) -> None:
        was = before.operator and before.disabled_at is None
        still = after.operator and after.disabled_at is None
        if was and not still and await tx.people.operators() == 1:
            raise conflict(
                "last_operator", "This is the last operator; make somebody else one first."
            )
