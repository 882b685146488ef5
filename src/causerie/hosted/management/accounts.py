"""Operations on people, projects and keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from msgspec import UNSET
from msgspec.structs import asdict

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.bounds import LimitsAndBudgets
from causerie.hosted.accounts.issuing import KeyDraft, KeyEdit
from causerie.hosted.accounts.keys import ApiKey, NewLink
from causerie.hosted.management.reports import (
    BudgetSpending,
    KeyList,
    LinkList,
    MemberList,
    PersonSpending,
    ProjectList,
    ScopeList,
    ScopeView,
    UserList,
    by_creation,
    page_of,
)
from causerie.hosted.management.requests import (
    AccessBody,
    BoundsBody,
    ChangeMember,
    CreateKey,
    CreateOperatorKey,
    CreateProject,
    CreateUser,
    EditKey,
    InviteMember,
    InviteUser,
    Leaving,
    ManyBounds,
    NoBody,
    NoQuery,
    PageQuery,
    PutCredits,
    RenameProject,
    RotateKey,
    ScopeBody,
    SetNetworks,
    SetOperator,
    SetRecording,
    TransferKey,
)
from causerie.hosted.management.routing import ApiCall, route
from causerie.hosted.management.views import (
    AccessView,
    BoundsView,
    ChangedView,
    CreditsView,
    CreditView,
    KeyView,
    LinkView,
    Me,
    MembershipView,
    MemberView,
    NarrowedView,
    NewKeyView,
    NewLinkView,
    NewOperatorKeyView,
    OperatorKeyList,
    OperatorKeyView,
    ProjectDetails,
    ProjectView,
    UserView,
    amount,
    viewed,
)


@route("GET /me", "Get the identity of the key")
async def me(call: ApiCall[NoQuery, NoBody]) -> Me:
    return viewed(Me, call.actor)


@route("GET /users", "List users")
async def list_users(call: ApiCall[PageQuery, NoBody]) -> UserList:
    users = await call.accounts.users.every(call.actor)
    return page_of(UserList, UserView.of, users, call.query, lambda user: (user.email, user.id))


@route("GET /users/{user}", "Get a user")
async def see_user(call: ApiCall[NoQuery, NoBody]) -> UserView:
    return UserView.of(await call.accounts.users.see(call.actor, call.ids["user"]))


@route("GET /users/{user}/bounds", "Get limits and budgets of a user")
async def see_user_bounds(call: ApiCall[NoQuery, NoBody]) -> BoundsView:
    return BoundsView.of(await call.accounts.person_bounds.see(call.actor, call.ids["user"]))


@route("PUT /users/{user}/bounds", "Set limits and budgets of a user")
async def set_user_bounds(call: ApiCall[NoQuery, BoundsBody]) -> BoundsView:
    bounds = call.body.bounds()
    await call.accounts.person_bounds.set(call.actor, call.ids["user"], bounds)
    return BoundsView.of(bounds)


@route("GET /users/{user}/spending", "Spending against the budgets of a user")
async def user_spending(call: ApiCall[NoQuery, NoBody]) -> PersonSpending:
    found = await call.accounts.person_bounds.spending(call.actor, call.ids["user"])
    return PersonSpending(budgets=[BudgetSpending.of(each) for each in found])


@route("PUT /bounds", "Set limits and budgets of many users and projects")
async def set_many_bounds(call: ApiCall[NoQuery, ManyBounds]) -> ChangedView:
    actor, body = call.actor, call.body
    users = set(body.users)
    if body.everyone:
        users |= {each.id for each in await call.accounts.users.every(actor)}
    if body.members_of is not None:
        members = await call.accounts.projects.members(actor, body.members_of)
        users |= {each.user.id for each in members}
    changed = await call.accounts.bulk_bounds.set(
        actor, body.bounds(), users=[*users], projects=[*body.projects], keep=body.keep
    )
    return ChangedView(changed=changed)


@route("GET /budgets", "List budgets of tags and providers, and what is spent of them")
async def list_scopes(call: ApiCall[NoQuery, NoBody]) -> ScopeList:
    return await _scopes(call)


@route("PUT /budgets", "Set the budgets of a tag or a provider")
async def set_scope(call: ApiCall[NoQuery, ScopeBody]) -> ScopeList:
    body = call.body
    budgets = BoundsBody(budgets=body.budgets).bounds().budgets
    await call.accounts.scope_budgets.set(call.actor, body.kind, body.name, budgets)
    return await _scopes(call)


@route("POST /users 201", "Create a user")
async def create_user(call: ApiCall[NoQuery, CreateUser]) -> UserView:
    body = call.body
    made = await call.accounts.users.create(
        call.actor, email=body.email, name=body.name, password=None, operator=body.operator
    )
    return UserView.of(made)


@route("POST /invitations 201", "Create an invitation to the service")
async def invite_user(call: ApiCall[NoQuery, InviteUser]) -> NewLinkView:
    made = await call.accounts.users.invite(
        call.actor, email=call.body.email, operator=call.body.operator
    )
    return _new_link(call, made)


@route("GET /invitations", "List invitations to the service")
async def list_invitations(call: ApiCall[PageQuery, NoBody]) -> LinkList:
    links = await call.accounts.users.invitations(call.actor)
    return page_of(LinkList, LinkView.of, links, call.query, by_creation)


@route("DELETE /invitations/{invitation}", "Withdraw an invitation to the service")
async def withdraw_invitation(call: ApiCall[NoQuery, NoBody]) -> None:
    await call.accounts.users.withdraw(call.actor, call.ids["invitation"])


@route("POST /users/{user}/password-link 201", "Create a password link")
async def create_password_link(call: ApiCall[NoQuery, NoBody]) -> NewLinkView:
    made = await call.accounts.users.reset_link(call.actor, call.ids["user"])
    return _new_link(call, made)


@route("DELETE /users/{user}/two-factor", "Remove two-factor authentication")
async def remove_factor(call: ApiCall[NoQuery, NoBody]) -> None:
    await call.accounts.users.remove_factor(call.actor, call.ids["user"])


@route("POST /users/{user}/disable", "Disable a user")
async def disable_user(call: ApiCall[NoQuery, NoBody]) -> UserView:
    return UserView.of(await call.accounts.users.disable(call.actor, call.ids["user"]))


@route("POST /users/{user}/enable", "Enable a user")
async def enable_user(call: ApiCall[NoQuery, NoBody]) -> UserView:
    return UserView.of(
        await call.accounts.users.disable(call.actor, call.ids["user"], disabled=False)
    )


@route("PUT /users/{user}/operator", "Set whether a user is an operator")
async def set_operator(call: ApiCall[NoQuery, SetOperator]) -> UserView:
    return UserView.of(
        await call.accounts.users.make_operator(
            call.actor, call.ids["user"], operator=call.body.operator, rights=call.body.rights
        )
    )


@route("GET /operator-keys", "List operator keys")
async def list_operator_keys(call: ApiCall[NoQuery, NoBody]) -> OperatorKeyList:
    found = await call.accounts.operator_keys.every(call.actor)
    return OperatorKeyList(data=[viewed(OperatorKeyView, each) for each in found])


@route("POST /operator-keys 201", "Create an operator key")
async def create_operator_key(call: ApiCall[NoQuery, CreateOperatorKey]) -> NewOperatorKeyView:
    body = call.body
    made = await call.accounts.operator_keys.create(
        call.actor, body.name, body.rights, body.expires_at
    )
    return viewed(NewOperatorKeyView, made.key, credential=made.credential)


@route("DELETE /operator-keys/{key}", "Delete an operator key")
async def delete_operator_key(call: ApiCall[NoQuery, NoBody]) -> None:
    await call.accounts.operator_keys.delete(call.actor, call.ids["key"])


@route("GET /projects", "List projects")
async def list_projects(call: ApiCall[PageQuery, NoBody]) -> ProjectList:
    projects = call.accounts.projects
    if call.actor.project is not None:
        found = [(await projects.see(call.actor, call.actor.project)).project]
    else:
        found = [*await projects.every(call.actor)]
    return page_of(
        ProjectList, ProjectView.of, found, call.query, lambda each: (each.name, each.id)
    )


@route("POST /projects 201", "Create a project")
async def create_project(call: ApiCall[NoQuery, CreateProject]) -> ProjectView:
    made = await call.accounts.projects.create(call.actor, call.body.name, owner=call.body.owner)
    return ProjectView.of(made)


@route("GET /projects/{project}", "Get a project")
async def see_project(call: ApiCall[NoQuery, NoBody]) -> ProjectDetails:
    seen = await call.accounts.projects.see(call.actor, call.ids["project"])
    return ProjectDetails.seen(seen.project, seen.bounds)


@route("PATCH /projects/{project}", "Rename a project")
async def rename_project(call: ApiCall[NoQuery, RenameProject]) -> ProjectView:
    return ProjectView.of(
        await call.accounts.projects.rename(call.actor, call.ids["project"], call.body.name)
    )


@route("POST /projects/{project}/archive", "Archive a project")
async def archive_project(call: ApiCall[NoQuery, NoBody]) -> ProjectView:
    return ProjectView.of(await call.accounts.projects.archive(call.actor, call.ids["project"]))


@route("POST /projects/{project}/restore", "Restore a project")
async def restore_project(call: ApiCall[NoQuery, NoBody]) -> ProjectView:
    return ProjectView.of(
        await call.accounts.projects.archive(call.actor, call.ids["project"], archived=False)
    )


@route("PUT /projects/{project}/bounds", "Set limits and budgets of a project")
async def set_project_bounds(call: ApiCall[NoQuery, BoundsBody]) -> BoundsView:
    bounds = call.body.bounds()
    await call.accounts.projects.set_bounds(call.actor, call.ids["project"], bounds)
    return BoundsView.of(bounds)


async def _see_access(call: ApiCall[NoQuery, NoBody]) -> AccessView:
    project, user = call.ids.get("project", ""), call.ids.get("user", "")
    return AccessView.of(await call.accounts.access.see(call.actor, project, user))


async def _set_access(call: ApiCall[NoQuery, AccessBody]) -> AccessView:
    project, user, access = (
        call.ids.get("project", ""),
        call.ids.get("user", ""),
        call.body.access(),
    )
    await call.accounts.access.set(call.actor, access, project, user)
    return AccessView.of(access)


_WHOSE, _WHAT = "/projects/{project}", "the models and doors that"
see_project_access = route(f"GET {_WHOSE}/access", f"Get {_WHAT} a project may use")(_see_access)
set_project_access = route(f"PUT {_WHOSE}/access", f"Set {_WHAT} a project may use")(_set_access)
see_user_access = route("GET /users/{user}/access", f"Get {_WHAT} a user may use")(_see_access)
set_user_access = route("PUT /users/{user}/access", f"Set {_WHAT} a user may use")(_set_access)
_WHOSE += "/members/{user}"
see_member_access = route(f"GET {_WHOSE}/access", f"Get {_WHAT} a member may use")(_see_access)
set_member_access = route(f"PUT {_WHOSE}/access", f"Set {_WHAT} a member may use")(_set_access)


@route("PUT /projects/{project}/networks", "Set the networks from which keys of a project work")
async def set_networks(call: ApiCall[NoQuery, SetNetworks]) -> ProjectView:
    return ProjectView.of(
        await call.accounts.projects.set_networks(
            call.actor, call.ids["project"], call.body.networks
        )
    )


@route("PUT /projects/{project}/recording", "Set request logging of a project")
async def set_recording(call: ApiCall[NoQuery, SetRecording]) -> ProjectView:
    actor, project = call.actor, call.ids["project"]
    await call.accounts.recordings.keep(actor, project, call.body.days)
    return ProjectView.of((await call.accounts.projects.see(actor, project)).project)


@route("GET /projects/{project}/credits", "Get credits added, spent and left")
async def see_credits(call: ApiCall[NoQuery, NoBody]) -> CreditsView:
    actor, project = call.actor, call.ids["project"]
    balance = await call.accounts.credits.balance(actor, project)
    listed = await call.accounts.credits.of(actor, project)
    sums = {name: amount(getattr(balance, name)) for name in ("put_in", "spent", "left")}
    return CreditsView(**sums, data=[CreditView.of(each) for each in listed])


@route("POST /projects/{project}/credits 201", "Add credits to a project")
async def add_credits(call: ApiCall[NoQuery, PutCredits]) -> CreditView:
    made = await call.accounts.credits.put(
        call.actor, call.ids["project"], call.body.amount, call.body.note
    )
    return CreditView.of(made)


@route("GET /projects/{project}/members", "List members")
async def list_members(call: ApiCall[PageQuery, NoBody]) -> MemberList:
    members = await call.accounts.projects.members(call.actor, call.ids["project"])
    return page_of(
        MemberList,
        MemberView.of,
        members,
        call.query,
        lambda each: (each.user.name, each.user.id),
    )


@route("PUT /projects/{project}/members/{user}", "Add a member")
async def add_member(call: ApiCall[NoQuery, ChangeMember]) -> MembershipView:
    project, user = call.ids["project"], call.ids["user"]
    made = await call.accounts.projects.add(call.actor, project, user, call.body.role)
    return viewed(MembershipView, made, user=user, project=project)


@route("PATCH /projects/{project}/members/{user}", "Change the role of a member")
async def change_member(call: ApiCall[NoQuery, ChangeMember]) -> NarrowedView:
    project, user = call.ids["project"], call.ids["user"]
    found = await call.accounts.projects.change_role(call.actor, project, user, call.body.role)
    return NarrowedView.of(found, call.now)


@route("DELETE /projects/{project}/members/{user}", "Remove a member")
async def remove_member(call: ApiCall[Leaving, NoBody]) -> NarrowedView:
    found = await call.accounts.projects.remove(
        call.actor, call.ids["project"], call.ids["user"], keys_to=call.query.keys_to or None
    )
    return NarrowedView.of(found, call.now)


@route("GET /projects/{project}/invitations", "List invitations to a project")
async def list_project_invitations(call: ApiCall[PageQuery, NoBody]) -> LinkList:
    links = await call.accounts.projects.invitations(call.actor, call.ids["project"])
    return page_of(LinkList, LinkView.of, links, call.query, by_creation)


@route("POST /projects/{project}/invitations 201", "Create an invitation to a project")
async def invite_member(call: ApiCall[NoQuery, InviteMember]) -> NewLinkView:
    made = await call.accounts.projects.invite(
        call.actor, call.ids["project"], call.body.role, email=call.body.email
    )
    return _new_link(call, made)


@route("DELETE /projects/{project}/invitations/{invitation}", "Withdraw an invitation to a project")
async def withdraw_project_invitation(call: ApiCall[NoQuery, NoBody]) -> None:
    await call.accounts.projects.withdraw(call.actor, call.ids["project"], call.ids["invitation"])


@route("GET /projects/{project}/keys", "List keys")
async def list_keys(call: ApiCall[PageQuery, NoBody]) -> KeyList:
    return _key_list(call, call.query, await call.accounts.keys.of(call.actor, call.ids["project"]))


@route("GET /users/{user}/keys", "List the keys that derive from a user")
async def list_user_keys(call: ApiCall[PageQuery, NoBody]) -> KeyList:
    return _key_list(
        call, call.query, await call.accounts.keys.derived(call.actor, call.ids["user"])
    )


async def _scopes(call: ApiCall[Any, Any]) -> ScopeList:
    found = await call.accounts.scope_budgets.every(call.actor)
    return ScopeList(
        data=[
            viewed(ScopeView, each, budgets=[BudgetSpending.of(one) for one in each.spending])
            for each in found
        ]
    )


def _new_link(call: ApiCall[Any, Any], made: NewLink) -> NewLinkView:
    return NewLinkView.made(made, call.services.link_path(made.link.kind, made.token))


def _key_list(call: ApiCall[Any, Any], query: PageQuery, keys: Sequence[ApiKey]) -> KeyList:
    view = partial(KeyView.of, now=call.now)
    return page_of(KeyList, view, keys, query, by_creation, falling=True)


@route("POST /projects/{project}/keys 201", "Create a key")
async def create_key(call: ApiCall[NoQuery, CreateKey]) -> NewKeyView:
    body = call.body
    draft = KeyDraft(**asdict(body) | {"bounds": _bounds(body.bounds)})
    made = await call.accounts.keys.create(call.actor, call.ids["project"], draft)
    return NewKeyView.made(made, call.now)


@route("GET /keys/{key}", "Get a key")
async def see_key(call: ApiCall[NoQuery, NoBody]) -> KeyView:
    return KeyView.of(await call.accounts.keys.see(call.actor, call.ids["key"]), call.now)


@route("PATCH /keys/{key}", "Change a key")
async def edit_key(call: ApiCall[NoQuery, EditKey]) -> KeyView:
    body = call.body
    bounds = UNSET if body.bounds is UNSET else _bounds(body.bounds)
    edit = KeyEdit(**asdict(body) | {"bounds": bounds})
    return KeyView.of(await call.accounts.keys.edit(call.actor, call.ids["key"], edit), call.now)


@route("POST /keys/{key}/rotate", "Rotate the secret of a key")
async def rotate_key(call: ApiCall[NoQuery, RotateKey]) -> NewKeyView:
    grace = timedelta(seconds=call.body.grace_seconds)
    made = await call.accounts.keys.rotate(call.actor, call.ids["key"], grace)
    return NewKeyView.made(made, call.now)


@route("POST /keys/{key}/transfer", "Transfer a key to a member")
async def transfer_key(call: ApiCall[NoQuery, TransferKey]) -> KeyView:
    key = await call.accounts.keys.transfer(call.actor, call.ids["key"], call.body.to)
    return KeyView.of(key, call.now)


@route("POST /keys/{key}/disable", "Disable a key")
async def disable_key(call: ApiCall[NoQuery, NoBody]) -> KeyView:
    return KeyView.of(await call.accounts.keys.disable(call.actor, call.ids["key"]), call.now)


@route("POST /keys/{key}/enable", "Enable a key")
async def enable_key(call: ApiCall[NoQuery, NoBody]) -> KeyView:
    return KeyView.of(await call.accounts.keys.enable(call.actor, call.ids["key"]), call.now)


@route("DELETE /keys/{key}", "Delete a key")
async def delete_key(call: ApiCall[NoQuery, NoBody]) -> None:
    await call.accounts.keys.delete(call.actor, call.ids["key"])


def _bounds(body: BoundsBody) -> LimitsAndBudgets:
    bounds = body.bounds()
    try:
        bounds.check()
    except InvalidRequest as failure:
        raise InvalidRequest(failure.message, param=f"bounds.{failure.param}") from failure
    return bounds
