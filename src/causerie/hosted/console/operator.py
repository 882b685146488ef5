"""Pages for operators of the whole service: users, their rights, operator keys, projects."""

from __future__ import annotations

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.authorization import no_such
from causerie.hosted.accounts.keys import KeyState, OneTimeLink
from causerie.hosted.accounts.people import Action, User
from causerie.hosted.accounts.spending import DAYS, PersonSummary
from causerie.hosted.accounts.usage import By
from causerie.hosted.console.fields import page_of
from causerie.hosted.console.keys import typed_end
from causerie.hosted.console.project import texts_of
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.sign_in import show_new_link


async def show_users(context: RequestContext) -> None:
    users, invites = context.accounts.users, await context.may(Action.USERS_INVITE)
    asked = await context.accounts.sign_ups.asked(context.actor) if invites else ()
    invitations = await users.invitations(context.actor) if invites else ()
    people = await context.accounts.summaries.people(context.actor)
    every: list[PersonSummary | OneTimeLink] = [*asked, *people, *invitations]
    waiting = {link.id for link in asked}
    page = page_of(every, context.query, texts_of, _PERSON_COLUMNS)
    links = [each for each in page.items if isinstance(each, OneTimeLink)]
    shown = [each for each in page.items if isinstance(each, PersonSummary)]
    ids = [each.user.id for each in shown]
    await context.send_page(
        "operator/users.html",
        page=page,
        days=DAYS,
        people=shown,
        spending=await context.accounts.summaries.spending(context.actor, By.USER, ids),
        with_factor=await users.with_factor(context.actor),
        invitations=[link for link in links if link.id not in waiting],
        asked=[link for link in links if link.id in waiting],
    )


async def invite(context: RequestContext) -> None:
    email, operator = context.form.get("email") or None, context.form.get("operator") == "yes"
    made = await context.accounts.users.invite(context.actor, email=email, operator=operator)
    offered = context.services.site.brand.name
    await show_new_link(context, "Your invitation", made, "/operator/users", offered)


async def withdraw(context: RequestContext) -> None:
    await context.accounts.users.withdraw(context.actor, context.params["link"])
    context.go("/operator/users", done="invitation-withdrawn")


async def approve(context: RequestContext) -> None:
    made = await context.accounts.sign_ups.approve(context.actor, context.params["link"])
    await show_new_link(context, f"An account for {made.link.email}", made, "/operator/users")


async def reset_link(context: RequestContext) -> None:
    user = await _find_user(context)
    made = await context.accounts.users.reset_link(context.actor, user.id)
    await show_new_link(context, f"A new password for {user.name}", made, "/operator/users")


async def ask_factor_removal(context: RequestContext) -> None:
    await context.send_page("operator/factor.html", person=await _find_user(context))


async def remove_factor(context: RequestContext) -> None:
    await context.accounts.users.remove_factor(context.actor, context.params["user"])
    context.go("/operator/users", done="users-factor-removed")


async def ask_disable(context: RequestContext) -> None:
    user, now = await _find_user(context), context.services.clock()
    keys = await context.accounts.keys.derived(context.actor, user.id)
    held = [key for key in keys if key.state(now) is KeyState.ACTIVE]
    await context.send_page("operator/disable.html", person=user, held=held)


async def disable(context: RequestContext) -> None:
    user_id = context.params["user"]
    await context.accounts.users.disable(context.actor, user_id)
    if user_id == context.me.id:
        context.go("/sign-in")
    else:
        context.go("/operator/users", done="user-disabled")


async def enable(context: RequestContext) -> None:
    await context.accounts.users.disable(context.actor, context.params["user"], disabled=False)
    context.go("/operator/users", done="user-enabled")


async def ask_operator(context: RequestContext) -> None:
    user = await _find_user(context)
    await context.check_right(Action.OPERATORS_CHANGE)
    held = "all" if user.operator else "some" if user.rights else "none"
    operator = context.form.get("operator", held)
    rights = context.form.every("rights") if context.form else user.rights
    await context.send_page("operator/rights.html", person=user, operator=operator, held=rights)


async def make_operator(context: RequestContext) -> None:
    user_id, users = context.params["user"], context.accounts.users
    operator = context.form.one_of("operator", ("none", "some", "all")) != "none"
    rights = chosen_rights(context)
    await users.make_operator(context.actor, user_id, operator=operator, rights=rights)
    resigned = user_id == context.me.id and (rights or not operator)
    context.go("/" if resigned else "/operator/users", done="operator-saved")


def chosen_rights(context: RequestContext) -> frozenset[str]:
    """Return the chosen rights if a form limits an operator, else none; refuse an empty choice."""
    if context.form.one_of("operator", ("some", "none", "all")) != "some":
        return frozenset()
    found = frozenset(context.form.every("rights"))
    if not found:
        raise InvalidRequest("Choose at least one right, or all of them.", param="rights")
    return found


async def show_keys(context: RequestContext) -> None:
    keys = await context.accounts.operator_keys.every(context.actor)
    page = page_of(keys, context.query, lambda key: (key.name, key.id))
    await context.send_page("operator/keys.html", page=page)


async def make_key(context: RequestContext) -> None:
    form, rights, keys = context.form, chosen_rights(context), context.accounts.operator_keys
    end = typed_end(form, context.services.clock())
    made = await keys.create(context.actor, form.get("name"), rights, end)
    await context.send_page("operator/key_made.html", key=made.key, credential=made.credential)


async def ask_key_deletion(context: RequestContext) -> None:
    await context.check_right(Action.OPERATORS_CHANGE)
    keys = await context.accounts.operator_keys.every(context.actor)
    key = next((each for each in keys if each.id == context.params["key"]), None)
    if key is None:
        raise no_such("operator key")
    await context.send_page("operator/delete_key.html", key=key)


async def delete_key(context: RequestContext) -> None:
    await context.accounts.operator_keys.delete(context.actor, context.params["key"])
    context.go("/operator/keys", done="operator-key-deleted")


async def show_projects(context: RequestContext) -> None:
    summaries = context.accounts.summaries
    found = await summaries.projects(context.actor)
    page = page_of(
        found, context.query, lambda each: (each.project.name, each.project.id), _PROJECT_COLUMNS
    )
    ids = [each.project.id for each in page.items]
    spending = await summaries.spending(context.actor, By.PROJECT, ids)
    await context.send_page("operator/projects.html", page=page, days=DAYS, spending=spending)


async def ask_project(context: RequestContext) -> None:
    await context.check_right(Action.PROJECTS_CREATE)
    users = await context.accounts.users.every(context.actor)
    name, owner = context.form.get("name"), context.form.get("owner") or context.me.id
    await context.send_page("operator/new_project.html", name=name, owner=owner, users=users)


async def make_project(context: RequestContext) -> None:
    name, owner = context.form.get("name"), context.form.get("owner") or context.me.id
    made = await context.accounts.projects.create(context.actor, name, owner=owner)
    context.go(f"/projects/{made.id}", done="project-made")


async def _find_user(context: RequestContext) -> User:
    return await context.accounts.users.see(context.actor, context.params["user"])


_COLUMNS = {"keys": "keys", "cost": "cost", "active": "active_at"}
_PERSON_COLUMNS = _COLUMNS | {"asked": "asked_at", "name": "user.name", "since": "user.created_at"}
_PROJECT_COLUMNS = {"credits": "credits", "name": "project.name", "since": "project.created_at"}
_PROJECT_COLUMNS |= _COLUMNS
