"""What a one-time link leads to: a new account, a project, or a new password.

The secret stands behind the ``#`` of the link, so that it gets into no log and no
``Referer``; a script puts it into the form that asks for it.
"""

from __future__ import annotations

from typing import Any

from causerie.accounts import throttle
from causerie.accounts.links import SIGN_UP, Link, LinkKind
from causerie.accounts.people import SYSTEM
from causerie.console.pages.sign_in import go_on
from causerie.console.visit import PREFIX, Visit
from causerie.errors import NotFound, ServiceError


def address(base: str, token: str) -> str:
    """The link for a token; ``base`` is the service's address without a path."""
    return f"{base}{PREFIX}/link#{token}"


async def show(visit: Visit) -> None:
    """The form that a script fills in and sends."""
    await visit.show("links/token.html")


async def follow(visit: Visit) -> None:
    """Show what the link is for."""
    token = visit.form.get("token")
    try:
        link = await opened(visit, token)
    except ServiceError as problem:
        await visit.show_problem("links/token.html", problem)
        return
    await visit.show(_page(visit, link), **await _values(visit, link, token))


async def opened(visit: Visit, token: str) -> Link:
    """What a link is for; raises :class:`NotFound`, and :class:`RateLimited` after many guesses."""
    async with visit.accounts.attempts.from_address("link", visit.client):
        return await visit.accounts.users.link(token)


async def accept(visit: Visit) -> None:
    """Make the account that an invitation is for, and sign in to it."""
    form, token = visit.form, visit.form.get("token")
    link = await opened(visit, token)
    email, password = link.email or form.get("email"), form.raw("password")
    try:
        await visit.accounts.users.accept(
            token, email=email, name=form.get("name"), password=password
        )
    except NotFound:
        raise
    except ServiceError as problem:
        if problem.code != "taken" or proves_address(link):
            values = await _values(visit, link, token)
            values |= {"email": email, "name": form.get("name")}
            await visit.show_problem("links/account.html", problem, **values)
            return
        await visit.accounts.attempts.begin(throttle.of_address("link", visit.client.address))
    if not proves_address(link):  # whoever has the link may not be who has the address
        visit.go("/sign-in", done="account-ready")
        return
    begun = await visit.accounts.sign_in.with_password(
        email, password, visit.client, old_token=visit.token
    )
    go_on(visit, begun, "")


def proves_address(link: Link) -> bool:
    """Return whether only the holder of the address can have this link.

    Others must not learn from it whether an address has an account.
    """
    return link.kind is LinkKind.OWNER or link.created_by == SIGN_UP.label


async def join(visit: Visit) -> None:
    """Make who is signed in a member."""
    token = visit.form.get("token")
    link = await opened(visit, token)
    try:
        await visit.accounts.users.join(token, visit.me)
    except NotFound:
        raise
    except ServiceError as problem:
        await visit.show_problem("links/join.html", problem, **await _values(visit, link, token))
        return
    if link.project_id is None:
        visit.go("/")
    else:
        visit.go(f"/projects/{link.project_id}/keys", done="joined")


async def reset(visit: Visit) -> None:
    """Take a new password."""
    token = visit.form.get("token")
    link = await opened(visit, token)
    try:
        await visit.accounts.profile.reset_password(token, visit.form.raw("password"))
    except NotFound:
        raise
    except ServiceError as problem:
        values = await _values(visit, link, token)
        await visit.show_problem("links/password.html", problem, **values)
        return
    visit.go("/sign-in", done="password-reset")


def _page(visit: Visit, link: Link) -> str:
    if link.kind is LinkKind.RESET:
        return "links/password.html"
    if link.kind is LinkKind.INVITATION and visit.user is not None:
        return "links/join.html"
    return "links/account.html"


async def _values(visit: Visit, link: Link, token: str) -> dict[str, Any]:
    offered = None
    if link.project_id is not None:  # whoever holds the link may know the project's name
        offered = (await visit.accounts.projects.see(SYSTEM, link.project_id)).project
    return {
        "link": link,
        "token": token,
        "offered": offered,
        "email": link.email or "",
        "name": "",
    }
