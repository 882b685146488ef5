"""Asking for an account without an invitation, where the service is open to all.

The answer is the same whether the address has an account or not: only its holder learns that, by
mail. Without mail an operator gives the link to whoever asks.
"""

from __future__ import annotations

from causerie.accounts import throttle
from causerie.accounts.names import tidy_email
from causerie.accounts.sign_ups import Asked
from causerie.console.pages import links
from causerie.console.visit import PREFIX, Visit
from causerie.errors import ServiceError
from causerie.mail import Letter


async def show(visit: Visit) -> None:
    """The form."""
    await visit.show("sign_in/account.html", email="")


async def enter(visit: Visit) -> None:
    """Take note of the address, and send its holder a letter."""
    email = visit.form.get("email")
    try:  # every sign-up counts, right or not
        email = tidy_email(email)
        await visit.accounts.attempts.begin(throttle.of_sign_up(email, visit.client.address))
        asked = await visit.accounts.sign_ups.ask(email)
    except ServiceError as problem:
        await visit.show_problem("sign_in/account.html", problem, email=email)
        return
    if visit.desk.outbox is not None:
        visit.desk.outbox.send(_letter(visit, email, asked))
    await visit.show("sign_in/asked.html", email=email, by_mail=visit.desk.outbox is not None)


def _letter(visit: Visit, email: str, asked: Asked) -> Letter:
    ending = "\nIf it was not you, ignore this letter; nothing has changed.\n"
    if asked.known:
        text = (
            f"Somebody, probably you, asked for an account at {visit.base} with this address.\n"
            f"There is one already. Sign in at\n\n    {visit.base}{PREFIX}/sign-in\n\n"
            "If you do not know the password any more, ask an operator of the service for a link.\n"
        )
        return Letter(email, "You have an account already", text + ending)
    text = (
        f"Somebody, probably you, asked for an account at {visit.base} with this address.\n"
        f"This link creates it. It works once, within seven days:\n\n"
        f"    {links.address(visit.base, asked.made.token)}\n"
    )
    return Letter(email, "Your account", text + ending)
