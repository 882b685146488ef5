"""Operations on projects: themselves, who is in them, and what they may use."""

from __future__ import annotations

from dataclasses import dataclass

from causerie.accounts.accounts import Accounts
from causerie.accounts.authorization import Clock
from causerie.management.bodies import (
    BoundsBody,
    ChangeMember,
    CreateProject,
    InviteMember,
    NoBody,
    PutCredits,
    RenameProject,
    SetRecording,
)
from causerie.management.lists import LinkList, MemberList, ProjectList, by_creation, page_of
from causerie.management.people import LinkPath
from causerie.management.queries import Leaving, NoQuery, PageQuery
from causerie.management.route import ApiCall
from causerie.management.views import (
    BoundsView,
    CreditsView,
    CreditView,
    LinkView,
    MemberView,
    NarrowedView,
    NewLinkView,
    ProjectDetails,
    ProjectView,
    amount,
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
