"""Signing in and out. Accounts decide if a password or a code is right."""

from __future__ import annotations

from urllib.parse import quote

from causerie.accounts.names import new_token
from causerie.accounts.sessions import LIFE, SECOND_FACTOR_LIFE, NewSession, Stage
from causerie.console.request_context import PREFIX, RequestContext
from causerie.errors import ServiceError, Unauthenticated

_START = "/"


async def show(context: RequestContext) -> None:
    """The form for address and password."""
    if context.user is not None:
        context.go(next_path(context.query.get("next")))
        return
    await context.show("sign_in/password.html", next=context.query.get("next"), email="")


async def enter(context: RequestContext) -> None:
    """Take address and password."""
    email, after = context.form.get("email"), context.form.get("next")
    password = context.form.raw("password")
    try:
        started = await context.accounts.sign_in.with_password(
            email, password, context.client, old_token=context.token
        )
    except ServiceError as problem:
        await context.show_problem("sign_in/password.html", problem, next=after, email=email)
        return
    go_on(context, started, after)


async def show_code(context: RequestContext) -> None:
    """The form for two-factor authentication."""
    await context.show("sign_in/code.html", next=context.query.get("next"))


async def enter_code(context: RequestContext) -> None:
    """Take the code of two-factor authentication."""
    after = context.form.get("next")
    try:
        started = await context.accounts.sign_in.with_code(
            context.token, context.form.get("code"), context.client
        )
    except ServiceError as problem:
        if isinstance(problem, Unauthenticated) and problem.code == "session_ended":
            context.go(f"/sign-in?done=session-ended&next={quote(after)}")
            return
        await context.show_problem("sign_in/code.html", problem, next=after)
        return
    go_on(context, started, after)


async def leave(context: RequestContext) -> None:
    if context.session is not None:
        await context.accounts.sign_in.end(context.me, context.session.id)
    context.keep(new_token(), None)
    context.go("/sign-in", done="signed-out")


def go_on(context: RequestContext, started: NewSession, after: str) -> None:
    """Take the new session's token, and lead to the code that it waits for, or in."""
    if started.session.stage is Stage.SECOND_FACTOR:
        context.keep(started.token, SECOND_FACTOR_LIFE)
        context.go(f"/sign-in/code?next={quote(after)}")
        return
    context.keep(started.token, LIFE)
    context.go(next_path(after))


def next_path(given: str) -> str:
    """Return the page after signing in: one of the console, whatever was requested."""
    inside = given.startswith(f"{PREFIX}/") and given.isascii() and given.isprintable()
    if not inside or "//" in given or "\\" in given:
        return _START
    return given.removeprefix(PREFIX)
