"""Allowed models and doors of a project, a member or a user: the form, and what is left."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

from causerie.access.allowed import Access
from causerie.errors import InvalidRequest
from causerie.hosted.accounts.people import Action
from causerie.hosted.console.fields import FormFields, page_of
from causerie.hosted.console.keys import chosen
from causerie.hosted.console.request_context import RequestContext
from causerie.protocol.numbers import money

_PRICES = ("prompt_price", "completion_price")


async def show_project(context: RequestContext) -> None:
    """Show the rules for one's own keys in a project, and why a model is not left."""
    rules = await context.rules()
    verdicts = await asyncio.to_thread(context.service_view.verdicts, rules)  # of thousands
    verdicts = sorted(verdicts, key=lambda each: (bool(each.refusal), each.id))
    await context.show(
        "project/access.html",
        rules=rules,
        page=page_of(verdicts, context.query, lambda each: (each.id, *each.providers)),
        left=sum(not each.refusal for each in verdicts),
    )


async def ask(context: RequestContext) -> None:
    """Show the form of a project, a member or (without a project) a user."""
    form, (project, user) = context.form, _ids(context)
    if project:
        await context.project()
    await context.check_right(Action.MEMBERS_CHANGE if project and user else Action.BOUNDS_SET)
    kept = await context.accounts.access.see(context.actor, project, user)
    verdicts = await asyncio.to_thread(context.service_view.verdicts, ())
    providers = {name for each in verdicts for name in each.providers}
    doors, held = {each.name for each in context.service_view.doors()}, kept
    if form:
        held = Access(doors=chosen(form, "doors"), providers=chosen(form, "providers"))
    names = form.get("models") if form else "\n".join(sorted(kept.models or ()))
    await context.show(
        "project/access_form.html",
        project_id=project,
        user_id=user,
        path=context.exchange.path,
        back=_back(project, user),
        names=names,
        prices={name: form.get(name) if form else _text(getattr(kept, name)) for name in _PRICES},
        held=held,
        doors=sorted(doors | (kept.doors or frozenset())),
        providers=sorted(providers | (kept.providers or frozenset())),
    )


async def change(context: RequestContext) -> None:
    project, user = _ids(context)
    await context.accounts.access.set(context.actor, _typed(context.form), project, user)
    context.go(_back(project, user), done="access-saved")


def _ids(context: RequestContext) -> tuple[str, str]:
    return context.params.get("project", ""), context.params.get("user", "")


def _back(project: str, user: str) -> str:
    if not project:
        return "/operator/users"
    return f"/projects/{project}" if user else f"/projects/{project}/access"


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
