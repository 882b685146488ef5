"""``causerie users``: who has an account; links by which people make one or choose a password."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from causerie.accounts.links import NewLink
from causerie.accounts.people import SYSTEM, User
from causerie.cli.accounts import as_json, day, link_address, the_user, with_accounts
from causerie.cli.exits import CommandFailed, ExitCode, reporting
from causerie.cli.options import Config, Set
from causerie.cli.tables import print_table
from causerie.management.views import NewLinkView, UserView
from causerie.settings import Settings

if TYPE_CHECKING:
    from causerie.accounts.accounts import Accounts


def create_now(
    email: str, name: str | None, operator: bool, config: Config, pairs: Set, json: bool
) -> None:
    """Create an account with the password on stdin. Raises :class:`CommandFailed`."""
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandFailed("--password-stdin reads a line, and there was none", ExitCode.USAGE)

    async def make(accounts: Accounts) -> User:
        return await accounts.users.create(
            SYSTEM,
            email=email,
            name=name or email.partition("@")[0],
            password=password,
            operator=operator,
        )

    _, user = with_accounts(config, pairs, make)
    show_users([user], json, one=True)


def switch_user(who: str, config: Config, pairs: Set, json: bool, *, disabled: bool) -> None:
    """Switch an account off or on, and print it."""
    with reporting():

        async def switch(accounts: Accounts) -> User:
            user = await the_user(accounts, who)
            return await accounts.users.disable(SYSTEM, user.id, disabled=disabled)

        _, user = with_accounts(config, pairs, switch)
        show_users([user], json, one=True)


def show_users(users: list[User], json: bool, *, one: bool = False) -> None:
    """Print accounts as a table or as JSON; with ``one`` the JSON is an object."""
    if json:
        views = [UserView.of(each) for each in users]
        as_json(views[0] if one else views)
        return
    rows = [
        (each.email, each.name, "operator" if each.operator else "-", _state(each), each.id)
        for each in users
    ]
    print_table(("EMAIL", "NAME", "RIGHTS", "STATE", "ID"), rows)


def _state(user: User) -> str:
    return "active" if user.disabled_at is None else f"disabled {day(user.disabled_at)}"


def show_link(settings: Settings, made: NewLink, json: bool) -> None:
    """Print a new link and until when it works."""
    address = link_address(settings, made.token)
    if json:
        as_json(NewLinkView.made(made, address))
        return
    typer.echo(address)
    whose = f"for {made.link.email} alone, " if made.link.email else ""
    typer.echo(f"It works once, {whose}until {day(made.link.expires_at)} UTC.", err=True)
