"""Pages of a project: members and invitations, limits and budgets, settings, and credits."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.authorization import no_such
from causerie.hosted.accounts.bounds import Credit, LimitsAndBudgets
from causerie.hosted.accounts.keys import KeyState, OneTimeLink
from causerie.hosted.accounts.people import Action, Extent, ProjectMember, Role, RoleColumn, extent
from causerie.hosted.accounts.recordings import contents_lines
from causerie.hosted.accounts.spending import PersonSummary
from causerie.hosted.accounts.usage import By
from causerie.hosted.console.bounds import bounds_fields, offered, typed_bounds
from causerie.hosted.console.fields import FormFields, listed, page_of, typed_money
from causerie.hosted.console.request_context import PREFIX, RequestContext
from causerie.hosted.console.sign_in import show_new_link
from causerie.http.answers import Export
from causerie.protocol.money import exact


async def show(context: RequestContext) -> None:
    projects = context.accounts.projects
    people: list[ProjectMember | OneTimeLink] = [
        *await projects.members(context.actor, context.project.id),
        *await projects.invitations(context.actor, context.project.id),
    ]
    page = page_of(people, context.query, texts_of)
    await context.send_page(
        "project/project.html",
        page=page,
        members=[each for each in page.items if isinstance(each, ProjectMember)],
        invitations=[each for each in page.items if isinstance(each, OneTimeLink)],
    )


async def ask_own(context: RequestContext) -> None:
    """Show the form with which a user creates a project of their own."""
    if context.problem is None and not (await context.frame())["creates"]:
        await context.check_right(Action.PROJECTS_CREATE)
    await context.send_page("operator/new_project.html", name=context.form.get("name"), users=())


async def make_own(context: RequestContext) -> None:
    made = await context.accounts.projects.create_own(context.me, context.form.get("name"))
    context.go(f"/projects/{made.id}", done="project-made")


async def show_limits(context: RequestContext) -> None:
    view, id, usage = context.overview, context.project.id, context.accounts.usage
    spent = await usage.spending(context.actor, By.PROJECT, {id: view.bounds.budgets}, id)
    await context.send_page("project/limits.html", view=view, spending=spent[id])


async def show_logging(context: RequestContext) -> None:
    days = context.form.get("days", str(context.project.recording_days or ""))
    may_log = context.accounts.recordings.may_log((await context.frame())["columns"])
    longest = context.accounts.recordings.most_days
    await context.send_page("project/logging.html", longest=longest, days=days, may_log=may_log)


async def show_settings(context: RequestContext) -> None:
    await context.check_right(Action.PROJECT_RENAME)
    name = context.form.get("name", context.project.name)
    networks = context.form.get("networks", ", ".join(context.project.networks or ()))
    await context.send_page("project/settings.html", name=name, networks=networks)


async def rename(context: RequestContext) -> None:
    project_id = context.project.id
    await context.accounts.projects.rename(context.actor, project_id, context.form.get("name"))
    context.go(f"/projects/{project_id}/settings", done="project-renamed")


async def set_networks(context: RequestContext) -> None:
    project_id, networks = context.project.id, listed(context.form.get("networks"))
    await context.accounts.projects.set_networks(context.actor, project_id, networks)
    context.go(f"/projects/{project_id}/settings", done="networks-saved")


async def ask_bounds(context: RequestContext) -> None:
    view = context.overview
    await context.check_right(Action.BOUNDS_SET)
    words = f"For all keys of {view.project.name} together. Where several apply, all are enforced."
    await _show_bounds_form(context, "bounds", words, view.granted)


async def ask_lower(context: RequestContext) -> None:
    """Show the form of the limits and budgets that owners set for the project or a member."""
    view = context.overview
    await context.check_right(Action.BOUNDS_LOWER)
    if "user" not in context.params:
        words = f"Your own for {view.project.name}, beside those that operators have set."
        await _show_bounds_form(context, "lower", words, view.own)
        return
    user, projects = (await _find_member(context)).user, context.accounts.projects
    found = await projects.member_bounds(context.actor, view.project.id, user.id)
    words = f"For all keys of {user.name} in {view.project.name}, and their playground there."
    await _show_bounds_form(context, f"members/{user.id}/bounds", words, found)


async def _show_bounds_form(
    context: RequestContext, form_path: str, intro: str, bounds: LimitsAndBudgets
) -> None:
    shown = offered(context, FormFields(bounds_fields(bounds)))
    await context.send_page("project/bounds.html", action=form_path, words=intro, **shown)


async def lower(context: RequestContext) -> None:
    id, user = context.project.id, context.params.get("user", "")
    bounds = typed_bounds(context.form)
    await context.accounts.projects.lower(context.actor, id, bounds, user)
    context.go(f"/projects/{id}{'' if user else '/limits'}", done="bounds-saved")


async def set_bounds(context: RequestContext) -> None:
    project_id, bounds = context.project.id, typed_bounds(context.form)
    await context.accounts.projects.set_bounds(context.actor, project_id, bounds)
    context.go(f"/projects/{project_id}/limits", done="bounds-saved")


async def set_recording(context: RequestContext) -> None:
    project_id, text = context.project.id, context.form.get("days")
    off = context.form.get("off") == "yes"
    if not off and not (text.isascii() and text.isdigit() and len(text) < 4):
        most = context.accounts.recordings.most_days
        raise InvalidRequest(f"Choose 1 to {most} days.", param="days")
    await context.accounts.recordings.keep(context.actor, project_id, None if off else int(text))
    context.go(f"/projects/{project_id}/logging", done="recording-off" if off else "recording-on")


async def export_contents(context: RequestContext) -> None:
    """Send the logged prompts and replies as JSON lines."""
    pieces = contents_lines(context.accounts.recordings, context.actor, context.project.id)
    await context.save(Export("application/jsonl", "contents.jsonl", pieces))


async def archive(context: RequestContext, *, archived: bool) -> None:
    project_id = context.project.id
    await context.accounts.projects.archive(context.actor, project_id, archived=archived)
    done = "project-archived" if archived else "project-restored"
    context.go(f"/projects/{project_id}/settings", done=done)


def texts_of(each: ProjectMember | PersonSummary | OneTimeLink) -> tuple[str, ...]:
    """Return the texts by which a person or invitation is searched: name and e-mail address."""
    if isinstance(each, OneTimeLink):
        return (each.email or "",)
    return each.user.name, each.user.email


async def invite(context: RequestContext) -> None:
    project_id, projects = context.project.id, context.accounts.projects
    email, role = context.form.get("email") or None, _parse_role(context)
    made = await projects.invite(context.actor, project_id, role, email=email)
    offered = f"{context.project.name} ({context.services.site.brand.name})"
    await show_new_link(context, "Your invitation", made, f"/projects/{project_id}", offered)


async def withdraw(context: RequestContext) -> None:
    project_id = context.project.id
    await context.accounts.projects.withdraw(context.actor, project_id, context.params["link"])
    context.go(f"/projects/{project_id}", done="invitation-withdrawn")


async def show_member(context: RequestContext) -> None:
    member = await _find_member(context)
    await context.check_right(Action.MEMBERS_CHANGE)
    role, held = context.form.get("role", member.role), await _get_key_heir_values(context, member)
    await context.send_page("project/member.html", member=member, role=role, **held)


async def change_member(context: RequestContext) -> None:
    member, role = await _find_member(context), _parse_role(context)
    project_id = context.project.id
    await context.accounts.projects.change_role(context.actor, project_id, member.user.id, role)
    context.go(f"/projects/{project_id}", done="member-changed")


async def ask_removal(context: RequestContext) -> None:
    member = await _find_member(context)
    await context.check_right(Action.MEMBERS_REMOVE, member.user.id)
    held = await _get_key_heir_values(context, member)
    await context.send_page("project/remove.html", member=member, **held)


async def remove_member(context: RequestContext) -> None:
    user_id, project_id = (await _find_member(context)).user.id, context.project.id
    projects, keys_to = context.accounts.projects, context.form.get("keys_to")
    await projects.remove(context.actor, project_id, user_id, keys_to=keys_to)
    if user_id == context.me.id and not context.me.operates:
        context.go("/", done="left")
    else:
        context.go(f"/projects/{project_id}", done="member-removed")


async def _get_key_heir_values(context: RequestContext, member: ProjectMember) -> dict[str, Any]:
    project_id, now = context.params["project"], context.services.clock()
    keys = await context.accounts.keys.of(context.actor, project_id)
    mine = [key for key in keys if key.person == member.user.id]
    others = await heirs(context, project_id, but=member.user.id)
    return {
        "held": [key for key in mine if key.state(now) is KeyState.ACTIVE],
        "fates": [("", "Stop"), *((id, f"Transfer to {name}") for id, name in others)],
        "keys_to": context.form.get("keys_to"),
    }


async def _find_member(context: RequestContext) -> ProjectMember:
    project_id = context.project.id
    for member in await context.accounts.projects.members(context.actor, project_id):
        if member.user.id == context.params["user"]:
            return member
    raise no_such("member")


async def heirs(
    context: RequestContext, project_id: str, *, but: str | None = None
) -> Sequence[tuple[str, str]]:
    """Return id and name of the members that a key may be transferred to, oneself first."""
    members = [
        each
        for each in await context.accounts.projects.members(context.actor, project_id)
        if each.user.id != but
        and each.user.disabled_at is None
        and extent(Action.KEYS_CREATE, [RoleColumn(each.role)]) is Extent.ALL
    ]
    members.sort(key=lambda each: each.user.id != context.me.id)
    return [
        (each.user.id, "me" if each.user.id == context.me.id else each.user.name)
        for each in members
    ]


def _parse_role(context: RequestContext) -> Role:
    try:
        return Role(context.form.get("role"))
    except ValueError as failure:
        raise InvalidRequest("Choose a role.", param="role") from failure


async def show_credits(context: RequestContext) -> None:
    project_id, credits = context.project.id, context.accounts.credits
    found = await credits.of(context.actor, project_id)
    await context.send_page(
        "project/credits.html",
        account=await credits.balance(context.actor, project_id),
        page=page_of(found, context.query, lambda each: (each.note, each.id)),
        sales=context.services.open_to.sales,
        who=_describe_credit_author_kind,
    )


def _describe_credit_author_kind(credit: Credit) -> str:
    kind, _, id = credit.by.partition(":")
    authors = {"system": id.replace("cli", "command line"), "key": "operator key"}
    return authors.get(kind, "operator")


async def buy_credits(context: RequestContext) -> None:
    """Begin a payment of credits, and show a link to its page, to which no form may lead."""
    project_id, sales = context.project.id, context.services.open_to.sales
    await context.accounts.credits.require(context.actor, Action.CREDITS_BUY, project_id)
    if sales.stripe is None:
        raise NotFound("Credits are not sold here.")
    amount = typed_money(context.form.get("amount"), "amount")
    if not sales.least <= amount <= sales.most:
        words = f"An amount is from {exact(sales.least)} to {exact(sales.most)}."
        raise InvalidRequest(words, param="amount")
    if amount != amount.quantize(Decimal("0.01")):
        raise InvalidRequest("An amount has two decimals.", param="amount")
    back = f"{context.base}{PREFIX}/projects/{project_id}/credits"
    address = await sales.stripe.begin(context.me, project_id, amount, back)
    await context.send_page("project/pay.html", address=address, amount=amount)


async def put_credits(context: RequestContext) -> None:
    project_id, note = context.project.id, context.form.get("note")
    amount = typed_money(context.form.get("put"), "put", signed=True)
    try:
        await context.accounts.credits.put(context.actor, project_id, amount, note)
    except InvalidRequest as problem:
        problem.param = "put" if problem.param == "amount" else problem.param
        raise
    context.go(f"/projects/{project_id}/credits", done="credits-put")
