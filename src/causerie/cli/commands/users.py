"""The command line of ``causerie users``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import AsJson, Config, Set

if TYPE_CHECKING:
    from causerie.accounts.accounts import Accounts


app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Who has an account.")


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
    from causerie.accounts.links import NewLink
    from causerie.accounts.people import SYSTEM
    from causerie.cli.accounts import with_accounts
    from causerie.cli.users import create_now, show_link

    with reporting():
        if password:
            create_now(email, name, operator, config, pairs, json)
            return

        async def invite(accounts: Accounts) -> NewLink:
            return await accounts.users.invite(SYSTEM, email=email, operator=operator)

        settings, made = with_accounts(config, pairs, invite)
        show_link(settings, made, json)


@app.command("list")
def list_users(config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """List everybody who has an account.

    **Examples**

    `causerie users list`
    """
    from causerie.accounts.people import SYSTEM, User
    from causerie.cli.accounts import with_accounts
    from causerie.cli.users import show_users

    with reporting():

        async def find(accounts: Accounts) -> list[User]:
            return [*await accounts.users.every(SYSTEM)]

        _, found = with_accounts(config, pairs, find)
        show_users(found, json)


@app.command("disable")
def disable(who: Who, config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """Shut somebody out: their sessions end. Keys of projects stay.

    **Examples**

    `causerie users disable ann@example.org`
    """
    from causerie.cli.users import switch_user

    switch_user(who, config, pairs, json, disabled=True)


@app.command("enable")
def enable(who: Who, config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """Let somebody in again.

    **Examples**

    `causerie users enable ann@example.org`
    """
    from causerie.cli.users import switch_user

    switch_user(who, config, pairs, json, disabled=False)


@app.command("link")
def link(who: Who, config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """Print a link by which somebody chooses a new password, within two hours.

    **Examples**

    `causerie users link ann@example.org`
    """
    from causerie.accounts.links import NewLink
    from causerie.accounts.people import SYSTEM
    from causerie.cli.accounts import the_user, with_accounts
    from causerie.cli.users import show_link

    with reporting():

        async def make(accounts: Accounts) -> NewLink:
            user = await the_user(accounts, who)
            return await accounts.users.reset_link(SYSTEM, user.id)

        settings, made = with_accounts(config, pairs, make)
        show_link(settings, made, json)


@app.command("remove-factor")
def remove_factor(who: Who, config: Config = None, pairs: Set = None) -> None:
    """Remove two-factor authentication that was lost, codes and all: their sessions end.

    The password alone lets them in again; make sure that it is them who ask.

    **Examples**

    `causerie users remove-factor ann@example.org`
    """
    from causerie.accounts.people import SYSTEM, User
    from causerie.cli.accounts import the_user, with_accounts

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
    from causerie.accounts.people import SYSTEM, User
    from causerie.cli.accounts import the_user, with_accounts
    from causerie.cli.users import show_users

    with reporting():

        async def change(accounts: Accounts) -> User:
            user = await the_user(accounts, who)
            return await accounts.users.make_operator(SYSTEM, user.id, operator=not revoke)

        _, user = with_accounts(config, pairs, change)
        show_users([user], json, one=True)
