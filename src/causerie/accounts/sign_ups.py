"""People who ask for an account without an invitation, where the service is open to all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from causerie.accounts.audit import entry
from causerie.accounts.authorization import Clock, no_such, require
from causerie.accounts.links import (
    APPROVED,
    SIGN_UP,
    LinkGrant,
    LinkKind,
    NewLink,
    OneTimeLink,
    new_link,
)
from causerie.accounts.names import tidy_email
from causerie.accounts.people import Actor
from causerie.accounts.ports import AccountStore
from causerie.accounts.rights import Action


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
