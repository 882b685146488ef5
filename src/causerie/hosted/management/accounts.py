"""Operations on people, projects and keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from msgspec import UNSET

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.accounts import Accounts
from causerie.hosted.accounts.authorization import Clock
from causerie.hosted.accounts.bounds import LimitsAndBudgets
from causerie.hosted.accounts.issuing import KeyDraft, KeyEdit
from causerie.hosted.accounts.keys import ApiKey, LinkKind
from causerie.hosted.management.reports import (
    BudgetSpending,
    KeyList,
    LinkList,
    MemberList,
    PersonSpending,
    ProjectList,
    UserList,
    by_creation,
    page_of,
)
from causerie.hosted.management.requests import (
    BoundsBody,
    ChangeMember,
    CreateKey,
    CreateProject,
    CreateUser,
    EditKey,
    InviteMember,
    InviteUser,
    Leaving,
    NoBody,
    NoQuery,
    PageQuery,
    PutCredits,
    RenameProject,
    RotateKey,
    SetOperator,
    SetRecording,
    TransferKey,
)
from causerie.hosted.management.routing import ApiCall
from causerie.hosted.management.views import (
    BoundsView,
    CreditsView,
    CreditView,
    KeyView,
    LinkView,
    Me,
    MemberView,
    NarrowedView,
    NewKeyView,
    NewLinkView,
    ProjectDetails,
    ProjectView,
    UserView,
    amount,
)

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


@dataclass(frozen=True, slots=True)
class ProjectOperations:
    """Projects and their members."""

    accounts: Accounts
    link_path: LinkPath
    clock: Clock

    async def list(self, call: ApiCall[PageQuery, NoBody]) -> ProjectList:
        """The key's own project; for operators, all."""
        projects = self.accounts.projects
        if call.actor.project is not None:
            found = [(await projects.see(call.actor, call.actor.project)).project]
        else:
            found = [*await projects.every(call.actor)]
        return page_of(
            ProjectList, ProjectView.of, found, call.query, lambda each: (each.name, each.id)
        )

    async def create(self, call: ApiCall[NoQuery, CreateProject]) -> ProjectView:
        made = await self.accounts.projects.create(
            call.actor, call.body.name, owner=call.body.owner
        )
        return ProjectView.of(made)

    async def see(self, call: ApiCall[NoQuery, NoBody]) -> ProjectDetails:
        seen = await self.accounts.projects.see(call.actor, call.ids["project"])
        return ProjectDetails.seen(seen.project, seen.bounds)

    async def rename(self, call: ApiCall[NoQuery, RenameProject]) -> ProjectView:
        """Give it another name."""
        return ProjectView.of(
            await self.accounts.projects.rename(call.actor, call.ids["project"], call.body.name)
        )

    async def archive(self, call: ApiCall[NoQuery, NoBody]) -> ProjectView:
        """Stop all its keys."""
        return ProjectView.of(await self.accounts.projects.archive(call.actor, call.ids["project"]))

    async def restore(self, call: ApiCall[NoQuery, NoBody]) -> ProjectView:
        """Let its keys work again."""
        return ProjectView.of(
            await self.accounts.projects.archive(call.actor, call.ids["project"], archived=False)
        )

    async def set_bounds(self, call: ApiCall[NoQuery, BoundsBody]) -> BoundsView:
        bounds = call.body.bounds()
        await self.accounts.projects.set_bounds(call.actor, call.ids["project"], bounds)
        return BoundsView.of(bounds)

    async def set_recording(self, call: ApiCall[NoQuery, SetRecording]) -> ProjectView:
        """Keep what is said, or not any more."""
        actor, project = call.actor, call.ids["project"]
        await self.accounts.recordings.keep(actor, project, call.body.days)
        return ProjectView.of((await self.accounts.projects.see(actor, project)).project)

    async def credits(self, call: ApiCall[NoQuery, NoBody]) -> CreditsView:
        """Return the credits of a project: paid in, spent, left."""
        actor, project = call.actor, call.ids["project"]
        balance = await self.accounts.credits.balance(actor, project)
        listed = await self.accounts.credits.of(actor, project)
        return CreditsView(
            put_in=amount(balance.put_in),
            spent=amount(balance.spent),
            left=amount(balance.left),
            data=[CreditView.of(each) for each in listed],
        )

    async def put_credits(self, call: ApiCall[NoQuery, PutCredits]) -> CreditView:
        made = await self.accounts.credits.put(
            call.actor, call.ids["project"], call.body.amount, call.body.note
        )
        return CreditView.of(made)

    async def members(self, call: ApiCall[PageQuery, NoBody]) -> MemberList:
        members = await self.accounts.projects.members(call.actor, call.ids["project"])
        return page_of(
            MemberList,
            MemberView.of,
            members,
            call.query,
            lambda each: (each.user.name, each.user.id),
        )

    async def change_member(self, call: ApiCall[NoQuery, ChangeMember]) -> NarrowedView:
        """Make a member something else."""
        project, user = call.ids["project"], call.ids["user"]
        found = await self.accounts.projects.change_role(call.actor, project, user, call.body.role)
        return NarrowedView.of(found, self.clock())

    async def remove_member(self, call: ApiCall[Leaving, NoBody]) -> NarrowedView:
        found = await self.accounts.projects.remove(
            call.actor, call.ids["project"], call.ids["user"], keys_to=call.query.keys_to or None
        )
        return NarrowedView.of(found, self.clock())

    async def invitations(self, call: ApiCall[PageQuery, NoBody]) -> LinkList:
        """Those that nobody has used yet."""
        links = await self.accounts.projects.invitations(call.actor, call.ids["project"])
        return page_of(LinkList, LinkView.of, links, call.query, by_creation)

    async def invite(self, call: ApiCall[NoQuery, InviteMember]) -> NewLinkView:
        made = await self.accounts.projects.invite(
            call.actor, call.ids["project"], call.body.role, email=call.body.email
        )
        return NewLinkView.made(made, self.link_path(made.link.kind, made.token))

    async def withdraw(self, call: ApiCall[NoQuery, NoBody]) -> None:
        """Take an invitation back."""
        await self.accounts.projects.withdraw(
            call.actor, call.ids["project"], call.ids["invitation"]
        )


@dataclass(frozen=True, slots=True)
class KeyOperations:
    """The keys of projects."""

    accounts: Accounts
    clock: Clock

    async def list(self, call: ApiCall[PageQuery, NoBody]) -> KeyList:
        return self._page(call.query, await self.accounts.keys.of(call.actor, call.ids["project"]))

    async def of_user(self, call: ApiCall[PageQuery, NoBody]) -> KeyList:
        """Those of all projects that derive from a user."""
        return self._page(
            call.query, await self.accounts.keys.derived(call.actor, call.ids["user"])
        )

    def _page(self, query: PageQuery, keys: Sequence[ApiKey]) -> KeyList:
        view = partial(KeyView.of, now=self.clock())
        return page_of(KeyList, view, keys, query, by_creation, falling=True)

    async def create(self, call: ApiCall[NoQuery, CreateKey]) -> NewKeyView:
        """A new one; its secret is in the answer, and nowhere else."""
        body = call.body
        draft = KeyDraft(
            name=body.name,
            purpose=body.purpose,
            expires_at=body.expires_at,
            doors=body.doors,
            models=body.models,
            bounds=_bounds(body.bounds),
        )
        made = await self.accounts.keys.create(call.actor, call.ids["project"], draft)
        return NewKeyView.made(made, self.clock())

    async def see(self, call: ApiCall[NoQuery, NoBody]) -> KeyView:
        return KeyView.of(await self.accounts.keys.see(call.actor, call.ids["key"]), self.clock())

    async def edit(self, call: ApiCall[NoQuery, EditKey]) -> KeyView:
        body = call.body
        edit = KeyEdit(
            name=body.name,
            expires_at=body.expires_at,
            doors=body.doors,
            models=body.models,
            bounds=UNSET if body.bounds is UNSET else _bounds(body.bounds),
        )
        return KeyView.of(
            await self.accounts.keys.edit(call.actor, call.ids["key"], edit), self.clock()
        )

    async def rotate(self, call: ApiCall[NoQuery, RotateKey]) -> NewKeyView:
        """A new secret for the same key."""
        grace = timedelta(seconds=call.body.grace_seconds)
        made = await self.accounts.keys.rotate(call.actor, call.ids["key"], grace)
        return NewKeyView.made(made, self.clock())

    async def transfer(self, call: ApiCall[NoQuery, TransferKey]) -> KeyView:
        """Let it derive from a member."""
        key = await self.accounts.keys.transfer(call.actor, call.ids["key"], call.body.to)
        return KeyView.of(key, self.clock())

    async def disable(self, call: ApiCall[NoQuery, NoBody]) -> KeyView:
        return KeyView.of(
            await self.accounts.keys.disable(call.actor, call.ids["key"]), self.clock()
        )

    async def enable(self, call: ApiCall[NoQuery, NoBody]) -> KeyView:
        """Let it work again."""
        return KeyView.of(
            await self.accounts.keys.enable(call.actor, call.ids["key"]), self.clock()
        )

    async def delete(self, call: ApiCall[NoQuery, NoBody]) -> None:
        await self.accounts.keys.delete(call.actor, call.ids["key"])


def _bounds(body: BoundsBody) -> LimitsAndBudgets:
    bounds = body.bounds()
    try:
        bounds.check()
    except InvalidRequest as failure:
        raise InvalidRequest(failure.message, param=f"bounds.{failure.param}") from failure
    return bounds
