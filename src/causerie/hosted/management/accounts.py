"""Operations on people, projects and keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any

from msgspec import UNSET
from msgspec.structs import asdict

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.bounds import LimitsAndBudgets
from causerie.hosted.accounts.issuing import KeyDraft, KeyEdit
from causerie.hosted.accounts.keys import ApiKey, NewLink
from causerie.hosted.management import reports, requests, views
from causerie.hosted.management.routing import ApiCall, Call, WithBody, WithQuery, route


@route("GET /me", "Get the identity of the key")
async def me(call: Call) -> views.Me:
    return views.viewed(views.Me, call.actor)


@route("GET /users", "List users")
async def list_users(call: WithQuery[requests.PageQuery]) -> reports.UserList:
    users = await call.accounts.users.every(call.actor)
    return reports.page_of(
        reports.UserList, views.UserView.of, users, call.query, attrgetter("email", "id")
    )


@route("GET /users/{user}", "Get a user")
async def see_user(call: Call, user: str) -> views.UserView:
    return views.UserView.of(await call.accounts.users.see(call.actor, user))


@route("GET /users/{user}/bounds", "Get limits and budgets of a user")
async def see_user_bounds(call: Call, user: str) -> views.BoundsView:
    return views.BoundsView.of(await call.accounts.person_bounds.see(call.actor, user))


@route("PUT /users/{user}/bounds", "Set limits and budgets of a user")
async def set_user_bounds(call: WithBody[requests.BoundsBody], user: str) -> views.BoundsView:
    bounds = call.body.bounds()
    await call.accounts.person_bounds.set(call.actor, user, bounds)
    return views.BoundsView.of(bounds)


@route("GET /users/{user}/spending", "Spending against the budgets of a user")
async def user_spending(call: Call, user: str) -> reports.PersonSpending:
    found = await call.accounts.person_bounds.spending(call.actor, user)
    return reports.PersonSpending(budgets=[reports.BudgetSpending.of(each) for each in found])


@route("PUT /bounds", "Set limits and budgets of many users and projects")
async def set_many_bounds(call: WithBody[requests.ManyBounds]) -> views.ChangedView:
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
    return views.ChangedView(changed=changed)


@route("GET /budgets", "List budgets of tags and providers, and what is spent of them")
async def list_scopes(call: Call) -> reports.ScopeList:
    return await _scopes(call)


@route("PUT /budgets", "Set the budgets of a tag or a provider")
async def set_scope(call: WithBody[requests.ScopeBody]) -> reports.ScopeList:
    body = call.body
    budgets = requests.BoundsBody(budgets=body.budgets).bounds().budgets
    await call.accounts.scope_budgets.set(call.actor, body.kind, body.name, budgets)
    return await _scopes(call)


@route("POST /users 201", "Create a user")
async def create_user(call: WithBody[requests.CreateUser]) -> views.UserView:
    body = call.body
    made = await call.accounts.users.create(
        call.actor, email=body.email, name=body.name, password=None, operator=body.operator
    )
    return views.UserView.of(made)


@route("POST /invitations 201", "Create an invitation to the service")
async def invite_user(call: WithBody[requests.InviteUser]) -> views.NewLinkView:
    made = await call.accounts.users.invite(
        call.actor, email=call.body.email, operator=call.body.operator
    )
    return _new_link(call, made)


@route("GET /invitations", "List invitations to the service")
async def list_invitations(call: WithQuery[requests.PageQuery]) -> reports.LinkList:
    links = await call.accounts.users.invitations(call.actor)
    return reports.page_of(reports.LinkList, views.LinkView.of, links, call.query)


@route("DELETE /invitations/{invitation}", "Withdraw an invitation to the service")
async def withdraw_invitation(call: Call, invitation: str) -> None:
    await call.accounts.users.withdraw(call.actor, invitation)


@route("POST /users/{user}/password-link 201", "Create a password link")
async def create_password_link(call: Call, user: str) -> views.NewLinkView:
    made = await call.accounts.users.reset_link(call.actor, user)
    return _new_link(call, made)


@route("DELETE /users/{user}/two-factor", "Remove two-factor authentication")
async def remove_factor(call: Call, user: str) -> None:
    await call.accounts.users.remove_factor(call.actor, user)


@route("POST /users/{user}/disable", "Disable a user")
async def disable_user(call: Call, user: str) -> views.UserView:
    return views.UserView.of(await call.accounts.users.disable(call.actor, user))


@route("POST /users/{user}/enable", "Enable a user")
async def enable_user(call: Call, user: str) -> views.UserView:
    return views.UserView.of(await call.accounts.users.disable(call.actor, user, disabled=False))


@route("PUT /users/{user}/operator", "Set whether a user is an operator")
async def set_operator(call: WithBody[requests.SetOperator], user: str) -> views.UserView:
    return views.UserView.of(
        await call.accounts.users.make_operator(
            call.actor, user, operator=call.body.operator, rights=call.body.rights
        )
    )


@route("GET /operator-keys", "List operator keys")
async def list_operator_keys(call: Call) -> views.OperatorKeyList:
    found = await call.accounts.operator_keys.every(call.actor)
    return views.OperatorKeyList(data=[views.viewed(views.OperatorKeyView, each) for each in found])


@route("POST /operator-keys 201", "Create an operator key")
async def create_operator_key(
    call: WithBody[requests.CreateOperatorKey],
) -> views.NewOperatorKeyView:
    body = call.body
    made = await call.accounts.operator_keys.create(
        call.actor, body.name, body.rights, body.expires_at
    )
    return views.viewed(views.NewOperatorKeyView, made.key, credential=made.credential)


@route("DELETE /operator-keys/{key}", "Delete an operator key")
async def delete_operator_key(call: Call, key: str) -> None:
    await call.accounts.operator_keys.delete(call.actor, key)


@route("GET /projects", "List projects")
async def list_projects(call: WithQuery[requests.PageQuery]) -> reports.ProjectList:
    projects = call.accounts.projects
    if call.actor.project is not None:
        found = [(await projects.see(call.actor, call.actor.project)).project]
    else:
        found = [*await projects.every(call.actor)]
    return reports.page_of(
        reports.ProjectList, views.ProjectView.of, found, call.query, attrgetter("name", "id")
    )


@route("POST /projects 201", "Create a project")
async def create_project(call: WithBody[requests.CreateProject]) -> views.ProjectView:
    made = await call.accounts.projects.create(call.actor, call.body.name, owner=call.body.owner)
    return views.ProjectView.of(made)


@route("GET /projects/{project}", "Get a project")
async def see_project(call: Call, project: str) -> views.ProjectDetails:
    seen = await call.accounts.projects.see(call.actor, project)
    return views.ProjectDetails.seen(seen.project, seen.bounds)


@route("PATCH /projects/{project}", "Rename a project")
async def rename_project(call: WithBody[requests.RenameProject], project: str) -> views.ProjectView:
    return views.ProjectView.of(
        await call.accounts.projects.rename(call.actor, project, call.body.name)
    )


@route("POST /projects/{project}/archive", "Archive a project")
async def archive_project(call: Call, project: str) -> views.ProjectView:
    return views.ProjectView.of(await call.accounts.projects.archive(call.actor, project))


@route("POST /projects/{project}/restore", "Restore a project")
async def restore_project(call: Call, project: str) -> views.ProjectView:
    return views.ProjectView.of(
        await call.accounts.projects.archive(call.actor, project, archived=False)
    )


@route("PUT /projects/{project}/bounds", "Set limits and budgets of a project")
async def set_project_bounds(call: WithBody[requests.BoundsBody], project: str) -> views.BoundsView:
    bounds = call.body.bounds()
    await call.accounts.projects.set_bounds(call.actor, project, bounds)
    return views.BoundsView.of(bounds)


@route("PUT /projects/{project}/own-bounds", "Set lower limits and budgets of a project")
async def lower_bounds(call: WithBody[requests.BoundsBody], project: str) -> views.BoundsView:
    bounds = call.body.bounds()
    await call.accounts.projects.lower(call.actor, project, bounds)
    return views.BoundsView.of(bounds)


async def _see_access(call: Call, project: str = "", user: str = "") -> views.AccessView:
    return views.AccessView.of(await call.accounts.access.see(call.actor, project, user))


async def _set_access(
    call: WithBody[requests.AccessBody], project: str = "", user: str = ""
) -> views.AccessView:
    access = call.body.access()
    await call.accounts.access.set(call.actor, access, project, user)
    return views.AccessView.of(access)


_WHOSE, _WHAT = "/projects/{project}", "the models and doors that"
see_project_access = route(f"GET {_WHOSE}/access", f"Get {_WHAT} a project may use")(_see_access)
set_project_access = route(f"PUT {_WHOSE}/access", f"Set {_WHAT} a project may use")(_set_access)
see_user_access = route("GET /users/{user}/access", f"Get {_WHAT} a user may use")(_see_access)
set_user_access = route("PUT /users/{user}/access", f"Set {_WHAT} a user may use")(_set_access)
_WHOSE += "/members/{user}"
see_member_access = route(f"GET {_WHOSE}/access", f"Get {_WHAT} a member may use")(_see_access)
set_member_access = route(f"PUT {_WHOSE}/access", f"Set {_WHAT} a member may use")(_set_access)


@route("PUT /projects/{project}/networks", "Set the networks from which keys of a project work")
async def set_networks(call: WithBody[requests.SetNetworks], project: str) -> views.ProjectView:
    return views.ProjectView.of(
        await call.accounts.projects.set_networks(call.actor, project, call.body.networks)
    )


@route("PUT /projects/{project}/recording", "Set request logging of a project")
async def set_recording(call: WithBody[requests.SetRecording], project: str) -> views.ProjectView:
    await call.accounts.recordings.keep(call.actor, project, call.body.days)
    return views.ProjectView.of((await call.accounts.projects.see(call.actor, project)).project)


@route("GET /projects/{project}/credits", "Get credits added, spent and left")
async def see_credits(call: Call, project: str) -> views.CreditsView:
    balance = await call.accounts.credits.balance(call.actor, project)
    listed = await call.accounts.credits.of(call.actor, project)
    sums = {name: views.amount(getattr(balance, name)) for name in ("put_in", "spent", "left")}
    return views.CreditsView(**sums, data=[views.CreditView.of(each) for each in listed])


@route("POST /projects/{project}/credits 201", "Add credits to a project")
async def add_credits(call: WithBody[requests.PutCredits], project: str) -> views.CreditView:
    body = call.body
    made = await call.accounts.credits.put(
        call.actor, project, body.amount, body.note, body.payment
    )
    return views.CreditView.of(made)


@route("GET /projects/{project}/members", "List members")
async def list_members(call: WithQuery[requests.PageQuery], project: str) -> reports.MemberList:
    members = await call.accounts.projects.members(call.actor, project)
    by_name = attrgetter("user.name", "user.id")
    return reports.page_of(reports.MemberList, views.MemberView.of, members, call.query, by_name)


@route("PUT /projects/{project}/members/{user}", "Add a member")
async def add_member(
    call: WithBody[requests.ChangeMember], project: str, user: str
) -> views.MembershipView:
    made = await call.accounts.projects.add(call.actor, project, user, call.body.role)
    return views.viewed(views.MembershipView, made, user=user, project=project)


@route("PATCH /projects/{project}/members/{user}", "Change the role of a member")
async def change_member(
    call: WithBody[requests.ChangeMember], project: str, user: str
) -> views.NarrowedView:
    found = await call.accounts.projects.change_role(call.actor, project, user, call.body.role)
    return views.NarrowedView.of(found, call.now)


@route("DELETE /projects/{project}/members/{user}", "Remove a member")
async def remove_member(
    call: WithQuery[requests.Leaving], project: str, user: str
) -> views.NarrowedView:
    found = await call.accounts.projects.remove(
        call.actor, project, user, keys_to=call.query.keys_to or None
    )
    return views.NarrowedView.of(found, call.now)


@route("GET /projects/{project}/invitations", "List invitations to a project")
async def list_project_invitations(
    call: WithQuery[requests.PageQuery], project: str
) -> reports.LinkList:
    links = await call.accounts.projects.invitations(call.actor, project)
    return reports.page_of(reports.LinkList, views.LinkView.of, links, call.query)


@route("POST /projects/{project}/invitations 201", "Create an invitation to a project")
async def invite_member(call: WithBody[requests.InviteMember], project: str) -> views.NewLinkView:
    made = await call.accounts.projects.invite(
        call.actor, project, call.body.role, email=call.body.email
    )
    return _new_link(call, made)


@route("DELETE /projects/{project}/invitations/{invitation}", "Withdraw an invitation to a project")
async def withdraw_project_invitation(call: Call, project: str, invitation: str) -> None:
    await call.accounts.projects.withdraw(call.actor, project, invitation)


@route("GET /projects/{project}/keys", "List keys")
async def list_keys(call: WithQuery[requests.PageQuery], project: str) -> reports.KeyList:
    return _key_list(call, call.query, await call.accounts.keys.of(call.actor, project))


@route("GET /users/{user}/keys", "List the keys that derive from a user")
async def list_user_keys(call: WithQuery[requests.PageQuery], user: str) -> reports.KeyList:
    return _key_list(call, call.query, await call.accounts.keys.derived(call.actor, user))


async def _scopes(call: ApiCall[Any, Any]) -> reports.ScopeList:
    found = await call.accounts.scope_budgets.every(call.actor)
    return reports.ScopeList(data=[reports.ScopeView.of(each) for each in found])


def _new_link(call: ApiCall[Any, Any], made: NewLink) -> views.NewLinkView:
    return views.NewLinkView.made(made, call.link_path(made.link.kind, made.token))


def _key_list(
    call: ApiCall[Any, Any], query: requests.PageQuery, keys: Sequence[ApiKey]
) -> reports.KeyList:
    view = partial(views.KeyView.of, now=call.now)
    return reports.page_of(reports.KeyList, view, keys, query, falling=True)


@route("POST /projects/{project}/keys 201", "Create a key")
async def create_key(call: WithBody[requests.CreateKey], project: str) -> views.NewKeyView:
    body = call.body
    draft = KeyDraft(**asdict(body) | {"bounds": _bounds(body.bounds)})
    made = await call.accounts.keys.create(call.actor, project, draft)
    return views.NewKeyView.made(made, call.now)


@route("GET /keys/{key}", "Get a key")
async def see_key(call: Call, key: str) -> views.KeyView:
    return views.KeyView.of(await call.accounts.keys.see(call.actor, key), call.now)


@route("PATCH /keys/{key}", "Change a key")
async def edit_key(call: WithBody[requests.EditKey], key: str) -> views.KeyView:
    body = call.body
    bounds = UNSET if body.bounds is UNSET else _bounds(body.bounds)
    edit = KeyEdit(**asdict(body) | {"bounds": bounds})
    return views.KeyView.of(await call.accounts.keys.edit(call.actor, key, edit), call.now)


@route("POST /keys/{key}/rotate", "Rotate the secret of a key")
async def rotate_key(call: WithBody[requests.RotateKey], key: str) -> views.NewKeyView:
    grace = timedelta(seconds=call.body.grace_seconds)
    made = await call.accounts.keys.rotate(call.actor, key, grace)
    return views.NewKeyView.made(made, call.now)


@route("POST /keys/{key}/transfer", "Transfer a key to a member")
async def transfer_key(call: WithBody[requests.TransferKey], key: str) -> views.KeyView:
    made = await call.accounts.keys.transfer(call.actor, key, call.body.to)
    return views.KeyView.of(made, call.now)


@route("POST /keys/{key}/disable", "Disable a key")
async def disable_key(call: Call, key: str) -> views.KeyView:
    return views.KeyView.of(await call.accounts.keys.disable(call.actor, key), call.now)


@route("POST /keys/{key}/enable", "Enable a key")
async def enable_key(call: Call, key: str) -> views.KeyView:
    return views.KeyView.of(await call.accounts.keys.enable(call.actor, key), call.now)


@route("DELETE /keys/{key}", "Delete a key")
async def delete_key(call: Call, key: str) -> None:
    await call.accounts.keys.delete(call.actor, key)


def _bounds(body: requests.BoundsBody) -> LimitsAndBudgets:
    bounds = body.bounds()
    try:
        bounds.check()
    except InvalidRequest as failure:
        raise InvalidRequest(failure.message, param=f"bounds.{failure.param}") from failure
    return bounds
