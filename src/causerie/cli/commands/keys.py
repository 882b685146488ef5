"""The command line of ``causerie keys``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import AsJson, Config, Set

if TYPE_CHECKING:
    from causerie.accounts.accounts import Accounts


app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Keys of projects, in the database."
)


Named = Annotated[str, typer.Argument(metavar="PROJECT", help="Its id, or its name.")]


Which = Annotated[str, typer.Argument(metavar="KEY", help="Its public part, like ck_5RkT0yQzAbCd.")]


_LONGEST = 36_500


@app.command("create")
def create(
    project: Named,
    name: Annotated[str, typer.Option("--name", help="Its name.")] = "command line",
    management: Annotated[
        bool, typer.Option("--management", help="For the management API, not for requests.")
    ] = False,
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=_LONGEST, help="How long it works.")
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option("--model", help="A model it may use; else all.")
    ] = None,
    doors: Annotated[
        list[str] | None, typer.Option("--door", help="A door it may use; else all.")
    ] = None,
    config: Config = None,
    pairs: Set = None,
    json: AsJson = False,
) -> None:
    """Create a key of a project. It is shown once.

    **Examples**

    `causerie keys create rockets --name "build bot" --days 30 --model small`

    `causerie keys create rockets --management`
    """
    from causerie.accounts.issuing import NewKey
    from causerie.accounts.people import SYSTEM
    from causerie.cli.accounts import the_project, with_accounts
    from causerie.cli.keys import drafted, show_new_key, warn_of_unknown

    with reporting():
        lasts = None if days is None else timedelta(days=days)
        draft = drafted(name, lasts, doors, models, management=management)

        async def make(accounts: Accounts) -> NewKey:
            found = await the_project(accounts, project)
            return await accounts.keys.create(SYSTEM, found.id, draft)

        settings, made = with_accounts(config, pairs, make)
        show_new_key(made, json)
        warn_of_unknown(draft, settings)


@app.command("list")
def list_keys(
    project: Annotated[
        str | None, typer.Argument(metavar="[PROJECT]", help="Its id, or its name; else all.")
    ] = None,
    config: Config = None,
    pairs: Set = None,
    json: AsJson = False,
) -> None:
    """List keys, never their secrets.

    **Examples**

    `causerie keys list rockets`
    """
    from causerie.accounts.keys import ApiKey
    from causerie.accounts.people import SYSTEM
    from causerie.cli.accounts import as_json, the_project, with_accounts
    from causerie.cli.keys import show_keys
    from causerie.management.views import KeyView

    with reporting():

        async def find(accounts: Accounts) -> list[tuple[str, ApiKey]]:
            projects = await accounts.projects.every(SYSTEM)
            if project is not None:
                projects = [await the_project(accounts, project)]
            return [
                (each.name, key)
                for each in projects
                for key in await accounts.keys.of(SYSTEM, each.id)
            ]

        _, found = with_accounts(config, pairs, find)
        if json:
            now = datetime.now(UTC)
            as_json([KeyView.of(key, now) for _, key in found])
        else:
            show_keys(found)


@app.command("rotate")
def rotate(
    which: Which,
    grace: Annotated[
        int | None,
        typer.Option(
            "--grace", min=0, max=720, help="Hours that the old secret goes on. [default: 24]"
        ),
    ] = None,
    config: Config = None,
    pairs: Set = None,
    json: AsJson = False,
) -> None:
    """Give a key a new secret. It is shown once.

    **Examples**

    `causerie keys rotate ck_5RkT0yQzAbCd --grace 0`
    """
    from causerie.accounts.issuing import GRACE, NewKey
    from causerie.accounts.people import SYSTEM
    from causerie.cli.accounts import with_accounts
    from causerie.cli.keys import show_new_key

    with reporting():

        async def turn(accounts: Accounts) -> NewKey:
            lasting = GRACE if grace is None else timedelta(hours=grace)
            return await accounts.keys.rotate(SYSTEM, which, lasting)

        _, made = with_accounts(config, pairs, turn)
        show_new_key(made, json)


@app.command("disable")
def disable(which: Which, config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """Stop a key, within a second, also in a service that runs.

    **Examples**

    `causerie keys disable ck_5RkT0yQzAbCd`
    """
    from causerie.accounts.people import SYSTEM
    from causerie.cli.keys import change_key

    change_key(lambda accounts: accounts.keys.disable(SYSTEM, which), config, pairs, json)


@app.command("enable")
def enable(which: Which, config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """Let a key work again.

    **Examples**

    `causerie keys enable ck_5RkT0yQzAbCd`
    """
    from causerie.accounts.people import SYSTEM
    from causerie.cli.keys import change_key

    change_key(lambda accounts: accounts.keys.enable(SYSTEM, which), config, pairs, json)


@app.command("delete")
def delete(which: Which, config: Config = None, pairs: Set = None) -> None:
    """End a key for good. Its usage stays.

    **Examples**

    `causerie keys delete ck_5RkT0yQzAbCd`
    """
    from causerie.accounts.people import SYSTEM
    from causerie.cli.accounts import with_accounts

    with reporting():

        async def end(accounts: Accounts) -> None:
            await accounts.keys.delete(SYSTEM, which)

        _ = with_accounts(config, pairs, end)
        typer.echo(f"{which} is deleted.", err=True)
