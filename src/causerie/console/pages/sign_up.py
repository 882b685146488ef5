"""An account without an invitation, where the service is open to all."""

from __future__ import annotations

from causerie.accounts import throttle
from causerie.console.pages.sign_in import go_on
from causerie.console.visit import Visit
from causerie.errors import ServiceError


async def show(visit: Visit) -> None:
    """The form."""
    await visit.show("sign_in/account.html", email="", name="")


async def enter(visit: Visit) -> None:
    """Make the account, and sign in to it."""
    form = visit.form
    email, name, password = form.get("email"), form.get("name"), form.raw("password")
    try:  # what was tried counts, whether it was right or not: every account is one
        await visit.accounts.attempts.begin(throttle.of_address("sign-up", visit.client.address))
        await visit.accounts.users.sign_up(email=email, name=name, password=password)
    except ServiceError as problem:
        await visit.show_problem("sign_in/account.html", problem, email=email, name=name)
        return
    begun = await visit.accounts.sign_in.with_password(
        email, password, visit.client, old_token=visit.token
    )
    go_on(visit, begun, "")
