"""Credits of a project: balance, history, purchase, and what operators add or take."""

from __future__ import annotations

from decimal import Decimal

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.bounds import Credit
from causerie.hosted.accounts.people import Action
from causerie.hosted.console.fields import page_of, typed_money
from causerie.hosted.console.request_context import PREFIX, RequestContext
from causerie.protocol.money import exact


async def show(context: RequestContext) -> None:
    project_id = context.project.id
    credits = context.accounts.credits
    found = await credits.of(context.actor, project_id)
    page = page_of(found, context.query, lambda each: (each.note, each.id))
    sales = context.services.sales
    await context.show(
        "project/credits.html",
        account=await credits.balance(context.actor, project_id),
        page=page,
        total=len(found),
        sales=sales,
        shop=sales.page_for(project_id),
        amount=context.form.get("amount"),
        put=context.form.get("put"),
        note=context.form.get("note"),
        who=_who,
    )


def _who(credit: Credit) -> str:
    kind, _, id = credit.by.partition(":")
    return {"system": id.replace("cli", "command line"), "key": "operator key"}.get(
        kind, "operator"
    )


async def buy(context: RequestContext) -> None:
    """Show a link to the page of the payment: the content policy lets no form lead there."""
    project_id, sales = context.project.id, context.services.sales
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
    await context.show("project/pay.html", address=address, amount=amount)


async def put(context: RequestContext) -> None:
    project_id = context.project.id
    amount = typed_money(context.form.get("put"), "put", signed=True)
    note = context.form.get("note")
    try:
        await context.accounts.credits.put(context.actor, project_id, amount, note)
    except InvalidRequest as problem:
        problem.param = "put" if problem.param == "amount" else problem.param
        raise
    context.go(f"/projects/{project_id}/credits", done="credits-put")
