"""``causerie users``, ``projects`` and ``migrate``: the accounts in the database.

They work on the database that the settings name, also while the service runs, with the rights
of the machine's owner.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from causerie.cli.command import (
    AsJson,
    Config,
    Set,
    WrongUsage,
    local_url,
    print_found,
    print_json,
    settings_in_force,
)

if TYPE_CHECKING:
    from causerie.hosted.accounts.accounts import Accounts
    from causerie.hosted.accounts.keys import NewLink
    from causerie.hosted.accounts.people import Actor, Project, User
    from causerie.hosted.accounts.users import Users
    from causerie.settings.tree import Settings


users = typer.Typer()
Who = Annotated[str, typer.Argument(metavar="USER", help="Address or id.")]


@users.command("create")
def create_user(
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
    """Invite somebody: print a link by which they create an account, once, for this address.

    With a password the account is made at once.

    **Examples**

    `causerie users create ann@example.org --operator`

    `pass show ann | causerie users create ann@example.org --password-stdin`
    """
    if not password:
        settings, created = with_accounts(
            config,
            pairs,
            lambda accounts, by: accounts.users.invite(by, email=email, operator=operator),
        )
        show_link(settings, created, json)
        return
    said = sys.stdin.readline().rstrip("\r\n")
    if not said:
        raise WrongUsage("--password-stdin reads a line, and there was none")
    called = name or email.partition("@")[0]
    _, user = with_accounts(
        config,
        pairs,
        lambda accounts, by: accounts.users.create(
            by, email=email, name=called, password=said, operator=operator
        ),
    )
    show_users([user], json, alone=True)


@users.command("list")
def list_users(config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """List everybody who has an account.

    **Examples**

    `causerie users list`
    """
    _, found = with_accounts(config, pairs, lambda accounts, by: accounts.users.every(by))
    show_users(found, json)


@users.command("disable")
def disable_user(who: Who, config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """Disable an account, and end its sessions and its keys, which answer 401 until it is enabled.

    **Examples**

    `causerie users disable ann@example.org`
    """
    _change_and_print_user(who, config, pairs, json, lambda users, by, id: users.disable(by, id))


@users.command("enable")
def enable_user(who: Who, config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """Enable an account that was disabled.

    **Examples**

    `causerie users enable ann@example.org`
    """
    _change_and_print_user(
        who, config, pairs, json, lambda users, by, id: users.disable(by, id, disabled=False)
    )


@users.command("link")
def link_to_reset(who: Who, config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """Print a link by which somebody chooses a new password, within two hours.

    **Examples**

    `causerie users link ann@example.org`
    """
    settings, created = _run_for_user(
        who, config, pairs, lambda users, by, id: users.reset_link(by, id)
    )
    show_link(settings, created, json)


@users.command("remove-factor")
def remove_factor(who: Who, config: Config = None, pairs: Set = None) -> None:
    """Remove a user's lost two-factor authentication, codes and all, and end their sessions.

    The password alone lets them in again; make sure that it is them who ask.

    **Examples**

    `causerie users remove-factor ann@example.org`
    """
    _, user = _run_for_user(who, config, pairs, lambda users, by, id: users.remove_factor(by, id))
    typer.echo(f"Two-factor authentication of {user.email} is removed.", err=True)


@users.command("operator")
def make_operator(
    who: Who,
    revoke: Annotated[bool, typer.Option("--revoke", help="Not any more.")] = False,
    config: Config = None,
    pairs: Set = None,
    json: AsJson = False,
) -> None:
    """Make somebody an operator of the whole service, or revoke that.

    **Examples**

    `causerie users operator ann@example.org`

    `causerie users operator ann@example.org --revoke`
    """
    _change_and_print_user(
        *(who, config, pairs, json),
        lambda users, by, id: users.make_operator(by, id, operator=not revoke),
    )


def _change_and_print_user(
    id_or_email: str,
    config: Config,
    overrides: Set,
    as_json: bool,
    change: Callable[[Users, Actor, str], Coroutine[Any, Any, User]],
) -> None:
    show_users([_run_for_user(id_or_email, config, overrides, change)[1]], as_json, alone=True)


def show_users(users: Sequence[User], json: bool, *, alone: bool = False) -> None:
    from causerie.hosted.management.views import UserView, viewed

    views = [viewed(UserView, each) for each in users]
    rows = [
        (
            each.email,
            each.name,
            "operator" if each.operator else ",".join(sorted(each.rights)) or "-",
            _format_state("disabled", each.disabled_at),
            each.id,
        )
        for each in users
    ]
    titles = ("EMAIL", "NAME", "RIGHTS", "STATE", "ID")
    print_found(views[0] if alone else views, titles, rows, json=json)


def _format_state(end_word: str, ended_at: datetime | None) -> str:
    return "active" if ended_at is None else f"{end_word} {day(ended_at)}"


def show_link(settings: Settings, made: NewLink, json: bool) -> None:
    from causerie.hosted.management.views import NewLinkView, viewed

    base = settings.console.address or local_url(settings.server.host, settings.server.port)
    address = f"{base.rstrip('/')}/console/link#{made.token}"
    if json:
        print_json(viewed(NewLinkView, made.link, token=made.token, path=address))
        return
    typer.echo(address)
    whose = f"for {made.link.email} alone, " if made.link.email else ""
    typer.echo(f"It works once, {whose}until {day(made.link.expires_at)} UTC.", err=True)


projects = typer.Typer()


@projects.command("create")
def create_project(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="USER", help="Address or id of its owner.")
    ] = None,
    config: Config = None,
    pairs: Set = None,
    json: AsJson = False,
) -> None:
    """Create a project.

    **Examples**

    `causerie projects create rockets --owner ann@example.org`
    """

    async def create(accounts: Accounts, by: Actor) -> Project:
        id = None if owner is None else (await _find_user(accounts, by, owner)).id
        return await accounts.projects.create(by, name, owner=id)

    show_projects([with_accounts(config, pairs, create)[1]], json, alone=True)


@projects.command("list")
def list_projects(config: Config = None, pairs: Set = None, json: AsJson = False) -> None:
    """List all projects.

    **Examples**

    `causerie projects list`
    """
    _, found = with_accounts(config, pairs, lambda accounts, by: accounts.projects.every(by))
    show_projects(found, json)


def show_projects(projects: Sequence[Project], json: bool, *, alone: bool = False) -> None:
    from causerie.hosted.management.views import ProjectView, viewed

    views = [viewed(ProjectView, each) for each in projects]
    rows = [
        (each.name, _format_state("archived", each.archived_at), day(each.created_at), each.id)
        for each in projects
    ]
    print_found(views[0] if alone else views, ("NAME", "STATE", "MADE", "ID"), rows, json=json)


def migrate(
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would change, and change nothing.")
    ] = False,
    config: Config = None,
    pairs: Set = None,
) -> None:
    """Bring the tables of the database to the version of this program.

    A service does the same when it starts. This command does it beforehand, for example in a job of
    a cluster. Several processes may do so at the same time: one migrates, the others wait.

    With `--plan` it shows the changes with their statements, and whether the version before can
    serve the tables afterwards.

    **Examples**

    `causerie migrate --plan --config causerie.toml`
    """
    from causerie.composition.account_backend import migrated, planned
    from causerie.errors import counted

    store = settings_in_force(config, pairs).settings.store
    if not plan:
        typer.echo(f"The database has revision {asyncio.run(migrated(store))}.")
        return
    found = asyncio.run(planned(store))
    state = f"has revision {found.revision}" if found.revision else "has no tables yet"
    changes = counted(len(found.steps), "change") if found.steps else "no change"
    typer.echo(f"The database {state}; an upgrade makes {changes}.")
    for step in found.steps:
        typer.echo("\n    ".join([f"\n{step.revision}  {step.words}", *step.statements]))
    if found.steps and found.revision:
        lacks = f"lacks revision {found.served_from}: back up the database first"
        can = "can serve these tables too" if found.returns else f"cannot: it {lacks}"
        typer.echo(f"\nAfterwards the version that runs now {can}.")


T = TypeVar("T")


def with_accounts(
    config: Path | None,
    pairs: list[str] | None,
    work: Callable[[Accounts, Actor], Coroutine[Any, Any, T]],
) -> tuple[Settings, T]:
    """Run a function on the accounts with all rights; return the settings and its result."""
    from causerie.composition.account_backend import accounts_of
    from causerie.hosted.accounts.people import SYSTEM

    settings = settings_in_force(config, pairs).settings

    async def main() -> T:
        async with accounts_of(settings.store) as accounts:
            return await work(accounts, SYSTEM)

    return settings, asyncio.run(main())


def _run_for_user(
    id_or_email: str,
    config: Path | None,
    overrides: list[str] | None,
    action: Callable[[Users, Actor, str], Coroutine[Any, Any, T]],
) -> tuple[Settings, T]:

    async def find_and_work(accounts: Accounts, by: Actor) -> T:
        return await action(accounts.users, by, (await _find_user(accounts, by, id_or_email)).id)

    return with_accounts(config, overrides, find_and_work)


async def _find_user(accounts: Accounts, actor: Actor, id_or_email: str) -> User:
    for user in await accounts.users.every(actor):
        if id_or_email == user.id or id_or_email.strip().lower() == user.email:
            return user
    raise WrongUsage(f"there is no user {id_or_email!r}; `causerie users list` shows who there is")


async def find_project(accounts: Accounts, by: Actor, given: str) -> Project:
    """Return the project with this id, or the only one with this name.

    Raises :class:`CommandFailed`.
    """
    found = [each for each in await accounts.projects.every(by) if given in (each.id, each.name)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(each.id for each in found)
        raise WrongUsage(f"several projects are named {given!r}: {ids}")
    raise WrongUsage(f"there is no project {given!r}; `causerie projects list` shows all")


def day(moment: datetime | None) -> str:
    """Return the date and time of a moment for tables, in UTC, or a dash without one."""
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M}"
