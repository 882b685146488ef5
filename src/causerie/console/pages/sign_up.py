"""Asking for an account without an invitation, where the service is open to all.

The answer is the same whether the address has an account or not: only its holder learns that, by
mail. Without mail an operator gives the link to whoever asks.
"""

from __future__ import annotations

from causerie.accounts import throttle
from causerie.accounts.names import tidy_email
from causerie.accounts.sign_ups import Asked
from causerie.console.pages import links
from causerie.console.request_context import PREFIX, RequestContext
from causerie.errors import ServiceError
from causerie.mail.outbox import Letter


async def show(context: RequestContext) -> None:
    await context.show("sign_in/account.html", email="")


async def enter(context: RequestContext) -> None:
    """Take note of the address, and send its holder a letter."""
    email = context.form.get("email")
    try:  # every sign-up counts, right or not
        email = tidy_email(email)
        await context.accounts.attempts.begin(throttle.of_sign_up(email, context.client.address))
        asked = await context.accounts.sign_ups.ask(email)
    except ServiceError as problem:
        await context.show_problem("sign_in/account.html", problem, email=email)
        return
    if context.services.outbox is not None:
        context.services.outbox.send(_letter(context, email, asked))
    await context.show(
        "sign_in/asked.html", email=email, by_mail=context.services.outbox is not None
    )


def _letter(context: RequestContext, email: str, asked: Asked) -> Letter:
    ending = "\nIf it was not you, ignore this letter; nothing has changed.\n"
    if asked.known:
        text = (
            f"Somebody, probably you, asked for an account at {context.base} with this address.\n"
            f"There is one already. Sign in at\n\n    {context.base}{PREFIX}/sign-in\n\n"
            "If you do not know the password any more, ask an operator of the service for a link.\n"
        )
        return Letter(email, "You have an account already", text + ending)
    text = (
        f"Somebody, probably you, asked for an account at {context.base} with this address.\n"
        f"This link creates it. It works once, within seven days:\n\n"
        f"    {links.address(context.base, asked.made.token)}\n"
    )
    return Letter(email, "Your account", text + ending)
