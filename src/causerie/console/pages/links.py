"""Pages of one-time links: a new account, a project, or a new password.

The secret is behind the ``#`` of the link, so that it gets into no log and no ``Referer``; a script
puts it into the form that asks for it.
"""

from __future__ import annotations

from typing import Any

from causerie.accounts import throttle
from causerie.accounts.links import SIGN_UP, LinkKind, OneTimeLink
from causerie.accounts.people import SYSTEM
from causerie.console.pages.sign_in import go_on
from causerie.console.request_context import PREFIX, RequestContext
from causerie.errors import NotFound, ServiceError


def address(base: str, token: str) -> str:
    """The link for a token; ``base`` is the service's address without a path."""
    return f"{base}{PREFIX}/link#{token}"


async def show(context: RequestContext) -> None:
    """The form that a script fills in and sends."""
    await context.show("links/token.html")


async def follow(context: RequestContext) -> None:
    token = context.form.get("token")
    try:
        link = await opened(context, token)
    except ServiceError as problem:
        await context.show_problem("links/token.html", problem)
        return
    await context.show(_page(context, link), **await _values(context, link, token))


async def opened(context: RequestContext, token: str) -> OneTimeLink:
    """Return a link; raise :class:`NotFound`, and :class:`RateLimited` after many guesses."""
    async with context.accounts.attempts.from_address("link", context.client):
        return await context.accounts.users.link(token)


async def accept(context: RequestContext) -> None:
    """Make the account that an invitation is for, and sign in to it."""
    form, token = context.form, context.form.get("token")
    link = await opened(context, token)
    email, password = link.email or form.get("email"), form.raw("password")
    try:
        await context.accounts.users.accept(
            token, email=email, name=form.get("name"), password=password
        )
    except NotFound:
        raise
    except ServiceError as problem:
        if problem.code != "taken" or proves_address(link):
            values = await _values(context, link, token)
            values |= {"email": email, "name": form.get("name")}
            await context.show_problem("links/account.html", problem, **values)
            return
        await context.accounts.attempts.begin(throttle.of_address("link", context.client.address))
    if not proves_address(link):  # whoever has the link may not be who has the address
        context.go("/sign-in", done="account-ready")
        return
    started = await context.accounts.sign_in.with_password(
        email, password, context.client, old_token=context.token
    )
    go_on(context, started, "")


def proves_address(link: OneTimeLink) -> bool:
    """Return whether only the holder of the address can have this link.

    Others must not learn from it whether an address has an account.
    """
    return link.kind is LinkKind.OWNER or link.created_by == SIGN_UP.label


async def join(context: RequestContext) -> None:
    """Make who is signed in a member."""
    token = context.form.get("token")
    link = await opened(context, token)
    try:
        await context.accounts.users.join(token, context.me)
    except NotFound:
        raise
    except ServiceError as problem:
        await context.show_problem(
            "links/join.html", problem, **await _values(context, link, token)
        )
        return
    if link.project_id is None:
        context.go("/")
    else:
        context.go(f"/projects/{link.project_id}/keys", done="joined")


async def reset(context: RequestContext) -> None:
    """Take a new password."""
    token = context.form.get("token")
    link = await opened(context, token)
    try:
        await context.accounts.profile.reset_password(token, context.form.raw("password"))
    except NotFound:
        raise
    except ServiceError as problem:
        values = await _values(context, link, token)
        await context.show_problem("links/password.html", problem, **values)
        return
    context.go("/sign-in", done="password-reset")


def _page(context: RequestContext, link: OneTimeLink) -> str:
    if link.kind is LinkKind.RESET:
        return "links/password.html"
    if link.kind is LinkKind.INVITATION and context.user is not None:
        return "links/join.html"
    return "links/account.html"


async def _values(context: RequestContext, link: OneTimeLink, token: str) -> dict[str, Any]:
    offered = None
    if link.project_id is not None:  # whoever holds the link may know the project's name
        offered = (await context.accounts.projects.see(SYSTEM, link.project_id)).project
    return {"link": link, "token": token, "offered": offered, "email": link.email or "", "name": ""}
