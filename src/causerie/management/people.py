"""Operations on people: who calls, users, and the links that make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from causerie.accounts.accounts import Accounts
from causerie.accounts.links import LinkKind
from causerie.management.bodies import BoundsBody, CreateUser, InviteUser, NoBody, SetOperator
from causerie.management.lists import LinkList, UserList, by_creation, page_of
from causerie.management.queries import NoQuery, PageQuery
from causerie.management.reports import BudgetSpending, PersonSpending
from causerie.management.route import ApiCall
from causerie.management.views import BoundsView, LinkView, Me, NewLinkView, UserView

LinkPath = Callable[[LinkKind, str], str]
"""The path of the page where a link of this kind, with this token, is used."""


@dataclass(frozen=True, slots=True)
class PeopleOperations:
    """Users, for operators."""

    accounts: Accounts
    link_path: LinkPath

    async def me(self, call: ApiCall[NoQuery, NoBody]) -> Me:
        """Return the identity of the key."""
        return Me.of(call.actor)

    async def list(self, call: ApiCall[PageQuery, NoBody]) -> UserList:
        users = await self.accounts.users.every(call.actor)
        return page_of(UserList, UserView.of, users, call.query, lambda user: (user.email, user.id))

    async def see(self, call: ApiCall[NoQuery, NoBody]) -> UserView:
        return UserView.of(await self.accounts.users.see(call.actor, call.ids["user"]))

    async def bounds(self, call: ApiCall[NoQuery, NoBody]) -> BoundsView:
        """Limits and budgets of a user."""
        return BoundsView.of(await self.accounts.person_bounds.see(call.actor, call.ids["user"]))

    async def set_bounds(self, call: ApiCall[NoQuery, BoundsBody]) -> BoundsView:
        """Set all limits and budgets of a user."""
        bounds = call.body.bounds()
        await self.accounts.person_bounds.set(call.actor, call.ids["user"], bounds)
        return BoundsView.of(bounds)

    async def spending(self, call: ApiCall[NoQuery, NoBody]) -> PersonSpending:
        """Return the state of a user's budgets."""
        found = await self.accounts.person_bounds.spending(call.actor, call.ids["user"])
        return PersonSpending(budgets=[BudgetSpending.of(each) for each in found])

    async def create(self, call: ApiCall[NoQuery, CreateUser]) -> UserView:
        """A user without a password."""
        body = call.body
        made = await self.accounts.users.create(
            call.actor, email=body.email, name=body.name, password=None, operator=body.operator
        )
        return UserView.of(made)

    async def invite(self, call: ApiCall[NoQuery, InviteUser]) -> NewLinkView:
        made = await self.accounts.users.invite(
            call.actor, email=call.body.email, operator=call.body.operator
        )
        return NewLinkView.made(made, self.link_path(made.link.kind, made.token))

    async def invitations(self, call: ApiCall[PageQuery, NoBody]) -> LinkList:
        """Those to the service that nobody has used yet."""
        links = await self.accounts.users.invitations(call.actor)
        return page_of(LinkList, LinkView.of, links, call.query, by_creation)

    async def withdraw(self, call: ApiCall[NoQuery, NoBody]) -> None:
        """Take an invitation to the service back."""
        await self.accounts.users.withdraw(call.actor, call.ids["invitation"])

    async def reset(self, call: ApiCall[NoQuery, NoBody]) -> NewLinkView:
        made = await self.accounts.users.reset_link(call.actor, call.ids["user"])
        return NewLinkView.made(made, self.link_path(made.link.kind, made.token))

    async def remove_factor(self, call: ApiCall[NoQuery, NoBody]) -> None:
        await self.accounts.users.remove_factor(call.actor, call.ids["user"])

    async def disable(self, call: ApiCall[NoQuery, NoBody]) -> UserView:
        return UserView.of(await self.accounts.users.disable(call.actor, call.ids["user"]))

    async def enable(self, call: ApiCall[NoQuery, NoBody]) -> UserView:
        return UserView.of(
            await self.accounts.users.disable(call.actor, call.ids["user"], disabled=False)
        )

    async def set_operator(self, call: ApiCall[NoQuery, SetOperator]) -> UserView:
        """Make an operator, or not any more."""
        return UserView.of(
            await self.accounts.users.make_operator(
                call.actor, call.ids["user"], operator=call.body.operator
            )
        )
