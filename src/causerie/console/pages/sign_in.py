"""Signing in and out. Whether a password or a code is right, accounts decide."""

from __future__ import annotations

from urllib.parse import quote

from causerie.accounts.names import new_token
from causerie.accounts.sessions import LIFE, SECOND_FACTOR_LIFE, NewSession, Stage
from causerie.console.visit import PREFIX, Visit
from causerie.errors import ServiceError, Unauthenticated

_START = "/"


async def show(visit: Visit) -> None:
    """The form for address and password."""
    if visit.user is not None:
        visit.go(next_path(visit.query.get("next")))
        return
    await visit.show("sign_in/password.html", next=visit.query.get("next"), email="")


async def enter(visit: Visit) -> None:
    """Take address and password."""
    email, after = visit.form.get("email"), visit.form.get("next")
    password = visit.form.raw("password")
    try:
        begun = await visit.accounts.sign_in.with_password(
            email, password, visit.client, old_token=visit.token
        )
    except ServiceError as problem:
        await visit.show_problem("sign_in/password.html", problem, next=after, email=email)
        return
    go_on(visit, begun, after)


async def show_code(visit: Visit) -> None:
    """The form for the second factor."""
    await visit.show("sign_in/code.html", next=visit.query.get("next"))


async def enter_code(visit: Visit) -> None:
    """Take the code of the second factor."""
    after = visit.form.get("next")
    try:
        begun = await visit.accounts.sign_in.with_code(
            visit.token, visit.form.get("code"), visit.client
        )
    except ServiceError as problem:
        if isinstance(problem, Unauthenticated) and problem.code == "session_ended":
            visit.go(f"/sign-in?done=session-ended&next={quote(after)}")
            return
        await visit.show_problem("sign_in/code.html", problem, next=after)
        return
    go_on(visit, begun, after)


async def leave(visit: Visit) -> None:
    """Sign out."""
    if visit.session is not None:
        await visit.accounts.sign_in.end(visit.me, visit.session.id)
    visit.keep(new_token(), None)
    visit.go("/sign-in", done="signed-out")


def go_on(visit: Visit, begun: NewSession, after: str) -> None:
    """Take the new session's token, and lead to the code that it waits for, or in."""
    if begun.session.stage is Stage.SECOND_FACTOR:
        visit.keep(begun.token, SECOND_FACTOR_LIFE)
        visit.go(f"/sign-in/code?next={quote(after)}")
        return
    visit.keep(begun.token, LIFE)
    visit.go(next_path(after))


def next_path(given: str) -> str:
    """Where to after signing in: a page of the console, whatever was asked for."""
    inside = given.startswith(f"{PREFIX}/") and given.isascii() and given.isprintable()
    if not inside or "//" in given or "\\" in given:
        return _START
    return given.removeprefix(PREFIX)
