"""Allowed models and doors of a project, a member or a user: the form, and what is left."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from causerie.access.allowed import Access
from causerie.errors import InvalidRequest
from causerie.hosted.accounts.people import Action
from causerie.hosted.console.fields import FormFields, page_of
from causerie.hosted.console.keys import chosen
from causerie.hosted.console.project import member_asked
from causerie.hosted.console.request_context import RequestContext
from causerie.protocol.numbers import money

_PRICES = ("prompt_price", "completion_price")


async def show_project(context: RequestContext) -> None:
    """Show the rules for one's own keys in a project, and why a model is not left."""
    rules = await context.rules()
    verdicts = context.service_view.verdicts(rules)
    verdicts = sorted(verdicts, key=lambda each: (bool(each.refusal), each.id))
    await context.show(
        "project/access.html",
        rules=rules,
        page=page_of(verdicts, context.query, lambda each: (each.id, *each.providers)),
        left=sum(not each.refusal for each in verdicts),
    )


async def ask_project(context: RequestContext) -> None:
    view = await context.project()
    await context.check_right(Action.BOUNDS_SET)
    access = await context.accounts.access.of_project(context.actor, view.project.id)
    here = f"/projects/{view.project.id}/access"
    await _form(context, access, f"All keys of {view.project.name}.", f"{here}/change", here)


async def set_project(context: RequestContext) -> None:
    id = (await context.project()).project.id
    await context.accounts.access.set_project(context.actor, id, _typed(context.form))
    context.go(f"/projects/{id}/access", done="access-saved")


async def ask_member(context: RequestContext) -> None:
    member, id = await member_asked(context), context.params["project"]
    await context.check_right(Action.MEMBERS_CHANGE)
    access = await context.accounts.access.of_member(context.actor, id, member.user.id)
    whom = f"{member.user.name} in this project: their keys and playground."
    here = f"/projects/{id}/members/{member.user.id}/access"
    await _form(context, access, whom, here, f"/projects/{id}")


async def set_member(context: RequestContext) -> None:
    member, id = await member_asked(context), context.params["project"]
    access = _typed(context.form)
    await context.accounts.access.set_member(context.actor, id, member.user.id, access)
    context.go(f"/projects/{id}", done="access-saved")


async def ask_user(context: RequestContext) -> None:
    user = await context.accounts.users.see(context.actor, context.params["user"])
    await context.check_right(Action.BOUNDS_SET)
    access = await context.accounts.access.of_user(context.actor, user.id)
    whom = f"{user.name}: their keys and playground, in all projects."
    here = f"/operator/users/{user.id}/access"
    await _form(context, access, whom, here, "/operator/users")


async def set_user(context: RequestContext) -> None:
    access = _typed(context.form)
    await context.accounts.access.set_user(context.actor, context.params["user"], access)
    context.go("/operator/users", done="access-saved")


async def _form(context: RequestContext, kept: Access, whom: str, path: str, back: str) -> None:
    form = context.form
    doors = {each.name for each in context.service_view.doors()}
    verdicts = context.service_view.verdicts(())
    providers = {name for each in verdicts for name in each.providers}
    await context.show(
        "project/access_form.html",
        whom=whom,
        path=path,
        back=back,
        names=form.get("models") if form else "\n".join(sorted(kept.models or ())),
        prices={name: form.get(name) if form else _text(getattr(kept, name)) for name in _PRICES},
        held={"doors": kept.doors, "providers": kept.providers}
        if not form
        else {"doors": chosen(form, "doors"), "providers": chosen(form, "providers")},
        doors=sorted(doors | (kept.doors or frozenset())),
        providers=sorted(providers | (kept.providers or frozenset())),
        models=[each.id for each in verdicts],
    )


def _typed(form: FormFields) -> Access:
    names = frozenset(form.get("models").replace(",", " ").split())
    prices: dict[str, Any] = {name: _price(form, name) for name in _PRICES}
    return Access(names or None, chosen(form, "doors"), chosen(form, "providers"), **prices)


def _price(form: FormFields, name: str) -> Decimal | None:
    text = form.get(name).removeprefix("$")
    try:
        return money(text) if text else None
    except ValueError as failure:
        raise InvalidRequest(
            f"`{text[:20]}` is no price; one looks like 2.50.", param=name
        ) from failure


def _text(price: Decimal | None) -> str:
    return "" if price is None else f"{price.normalize():f}"
