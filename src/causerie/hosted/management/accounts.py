"""Operations on people, projects and keys, but for those in the table of acts."""

from __future__ import annotations

from causerie.access.allowed import Access
from causerie.hosted.accounts.bounds import LimitsAndBudgets
from causerie.hosted.management import requests, views
from causerie.hosted.management.routing import Call, WithBody, WithQuery, route


@route("GET /me", "Get the identity of the key")
async def me(call: Call) -> views.Me:
    return views.viewed(views.Me, call.actor)


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
        actor,
        LimitsAndBudgets(body.limits, body.budgets),
        users=[*users],
        projects=[*body.projects],
        keep=body.keep,
    )
    return views.ChangedView(changed=changed)


@route("GET /projects", "List projects")
async def list_projects(call: WithQuery[requests.PageQuery]) -> views.ProjectList:
    projects = call.accounts.projects
    if call.actor.project is not None:
        found = [(await projects.see(call.actor, call.actor.project)).project]
    else:
        found = [*await projects.every(call.actor)]
    page: views.ProjectList = views.page_of(views.ProjectList, found, call.query, call)
    return page


async def _see_access(call: Call, project: str = "", user: str = "") -> views.AccessView:
    return views.AccessView.of(await call.accounts.access.see(call.actor, project, user), call)


async def _set_access(
    call: WithBody[Access], project: str = "", user: str = ""
) -> views.AccessView:
    await call.accounts.access.set(call.actor, call.body, project, user)
    return views.AccessView.of(call.body, call)


_WHOSE, _WHAT = "/projects/{project}", "the models and doors that"
see_project_access = route(f"GET {_WHOSE}/access", f"Get {_WHAT} a project may use")(_see_access)
set_project_access = route(f"PUT {_WHOSE}/access", f"Set {_WHAT} a project may use")(_set_access)
see_user_access = route("GET /users/{user}/access", f"Get {_WHAT} a user may use")(_see_access)
set_user_access = route("PUT /users/{user}/access", f"Set {_WHAT} a user may use")(_set_access)
_WHOSE += "/members/{user}"
see_member_access = route(f"GET {_WHOSE}/access", f"Get {_WHAT} a member may use")(_see_access)
set_member_access = route(f"PUT {_WHOSE}/access", f"Set {_WHAT} a member may use")(_set_access)


@route("GET /projects/{project}/credits", "Get credits added, spent and left")
async def see_credits(call: Call, project: str) -> views.CreditsView:
    balance = await call.accounts.credits.balance(call.actor, project)
    listed = await call.accounts.credits.of(call.actor, project)
    sums = {name: views.amount(getattr(balance, name)) for name in ("put_in", "spent", "left")}
    return views.CreditsView(**sums, data=[views.CreditView.of(each, call) for each in listed])
