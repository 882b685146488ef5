"""``causerie users``: who has an account; links by which people make one or choose a password."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from causerie.accounts.links import NewLink
from causerie.accounts.people import SYSTEM, User
from causerie.cli.accounts import AsJson, as_json, day, link_address, table, the_user, with_accounts
from causerie.cli.exits import CommandFailed, ExitCode, reporting
from causerie.cli.options import Config, Set
from causerie.management.views import NewLinkView, UserView
from causerie.settings import Settings

if TYPE_CHECKING:
    from causerie.accounts.accounts import Accounts

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Who has an account.")
Who = Annotated[str, typer.Argument(metavar="USER", help="Address or id.")]


@app.command("create")
def create(
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="Their address.")],
    name: Annotated[str | None, typer.Option("--name", help="Their name.")] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="They see to the whole service.")
    ] = False,
    password: Annotated[
        bool, typer.Option("--password-stdin", help="Read their password from stdin.")
    ] = False,
    config: Config = None,
    pairs: Set = None,
    json: AsJson = False,
) -> None:
    """Let somebody create an account: prints a link that works once, for this address.

    With a password the account is made at once.

    **Examples**

    `causerie users create ann@example.org --operator`

    `pass show ann | causerie users create ann@example.org --password-stdin`
    """
    with reporting():
        if password:
            _create_now(email, name, operator, config, pairs, json)
            return

        async def invite(accounts: Accounts) -> NewLink:
            return await accounts.users.invite(SYSTEM, email=email, operator=operator)

        settings, made = with_accounts(config, pairs, invite)
        _show_link(settings, made, json)


def _create_now(
    email: str,
    name: str | None,
    operator: bool,
    config: Config,
    pairs: Set,
    json: bool,
) -> None:
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
    _show([user], json, one=True)


@app.command("list")
def list_users(config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """List everybody who has an account.

    **Examples**

    `causerie users list`
    """
    with reporting():

        async def find(accounts: Accounts) -> list[User]:
            return [*await accounts.users.every(SYSTEM)]

        _, found = with_accounts(config, pairs, find)
        _show(found, json)


@app.command("disable")
def disable(who: Who, config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """Shut somebody out: their sessions end. Keys of projects stay.

    **Examples**

    `causerie users disable ann@example.org`
    """
    _switch(who, config, pairs, json, disabled=True)


@app.command("enable")
def enable(who: Who, config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """Let somebody in again.

    **Examples**

    `causerie users enable ann@example.org`
    """
    _switch(who, config, pairs, json, disabled=False)


def _switch(who: str, config: Config, pairs: Set, json: bool, *, disabled: bool) -> None:
    with reporting():

        async def switch(accounts: Accounts) -> User:
            user = await the_user(accounts, who)
            return await accounts.users.disable(SYSTEM, user.id, disabled=disabled)

        _, user = with_accounts(config, pairs, switch)
        _show([user], json, one=True)


@app.command("link")
def link(who: Who, config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """Print a link by which somebody chooses a new password, within two hours.

    **Examples**

    `causerie users link ann@example.org`
    """
    with reporting():

        async def make(accounts: Accounts) -> NewLink:
            user = await the_user(accounts, who)
            return await accounts.users.reset_link(SYSTEM, user.id)

        settings, made = with_accounts(config, pairs, make)
        _show_link(settings, made, json)


@app.command("remove-factor")
def remove_factor(who: Who, config: Config = None, pairs: Set = None) -> None:
    """Remove two-factor authentication that was lost, codes and all: their sessions end.

    The password alone lets them in again; make sure that it is them who ask.

    **Examples**

    `causerie users remove-factor ann@example.org`
    """
    with reporting():

        async def remove(accounts: Accounts) -> User:
            user = await the_user(accounts, who)
            return await accounts.users.remove_factor(SYSTEM, user.id)

        _, user = with_accounts(config, pairs, remove)
        typer.echo(f"Two-factor authentication of {user.email} is removed.", err=True)


@app.command("operator")
def operator(
    who: Who,
    revoke: Annotated[bool, typer.Option("--revoke", help="Not any more.")] = False,
    config: Config = None,
    pairs: Set = None,
    json: AsJson = False,
) -> None:
    """Let somebody see to the whole service.

    **Examples**

    `causerie users operator ann@example.org`

    `causerie users operator ann@example.org --revoke`
    """
    with reporting():

        async def change(accounts: Accounts) -> User:
            user = await the_user(accounts, who)
            return await accounts.users.make_operator(SYSTEM, user.id, operator=not revoke)

        _, user = with_accounts(config, pairs, change)
        _show([user], json, one=True)


def _show(users: list[User], json: bool, *, one: bool = False) -> None:
    if json:
        views = [UserView.of(each) for each in users]
        as_json(views[0] if one else views)
        return
    rows = [
        (each.email, each.name, "operator" if each.operator else "-", _state(each), each.id)
        for each in users
    ]
    table(("EMAIL", "NAME", "RIGHTS", "STATE", "ID"), rows)


def _state(user: User) -> str:
    return "active" if user.disabled_at is None else f"disabled {day(user.disabled_at)}"


def _show_link(settings: Settings, made: NewLink, json: bool) -> None:
    address = link_address(settings, made.token)
    if json:
        as_json(NewLinkView.made(made, address))
        return
    typer.echo(address)
    whose = f"for {made.link.email} alone, " if made.link.email else ""
    typer.echo(f"It works once, {whose}until {day(made.link.expires_at)} UTC.", err=True)
