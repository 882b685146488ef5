"""The command line of ``causerie projects``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import AsJson, Config, Set

if TYPE_CHECKING:
    from causerie.accounts.accounts import Accounts


app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="What keys, members and usage belong to."
)


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="USER", help="Address or id of its owner.")
    ] = None,
    config: Config = None,
    pairs: Set = None,
    json: AsJson = False,
) -> None:
    """Make a project.

    **Examples**

    `causerie projects create rockets --owner ann@example.org`
    """
    from causerie.accounts.people import SYSTEM, Project
    from causerie.cli.accounts import as_json, the_user, with_accounts
    from causerie.cli.projects import show_projects
    from causerie.management.views import ProjectView

    with reporting():

        async def make(accounts: Accounts) -> Project:
            id = None if owner is None else (await the_user(accounts, owner)).id
            return await accounts.projects.create(SYSTEM, name, owner=id)

        _, made = with_accounts(config, pairs, make)
        if json:
            as_json(ProjectView.of(made))
        else:
            show_projects([made])


@app.command("list")
def list_projects(config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """List all projects.

    **Examples**

    `causerie projects list`
    """
    from causerie.accounts.people import SYSTEM, Project
    from causerie.cli.accounts import as_json, with_accounts
    from causerie.cli.projects import show_projects
    from causerie.management.views import ProjectView

    with reporting():

        async def find(accounts: Accounts) -> list[Project]:
            return [*await accounts.projects.every(SYSTEM)]

        _, found = with_accounts(config, pairs, find)
        if json:
            as_json([ProjectView.of(each) for each in found])
        else:
            show_projects(found)
