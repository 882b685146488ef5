"""Helpers of the commands on people, projects and keys: the database, and lookup by name or id.

They work on the database that the settings name, also while the service runs, with the rights of
the machine's owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import typer

from causerie.accounts.people import SYSTEM, Project, User
from causerie.cli.doors import root
from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.in_force import settings_in_force
from causerie.settings import Settings

if TYPE_CHECKING:
    from causerie.accounts.accounts import Accounts

T = TypeVar("T")


def with_accounts(
    config: Path | None, pairs: list[str] | None, work: Callable[[Accounts], Coroutine[Any, Any, T]]
) -> tuple[Settings, T]:
    """Do something with the accounts of the database that the settings name."""
    from causerie.composition.account_backend import accounts_of  # noqa: PLC0415 - not for all other commands

    settings = settings_in_force(config, pairs).settings

    async def main() -> T:
        async with accounts_of(settings.store) as accounts:
            return await work(accounts)

    return settings, asyncio.run(main())


async def the_user(accounts: Accounts, given: str) -> User:
    """The user with this id or address."""
    for user in await accounts.users.every(SYSTEM):
        if given == user.id or given.strip().lower() == user.email:
            return user
    raise CommandFailed(
        f"there is no user {given!r}; `causerie users list` shows who there is", ExitCode.USAGE
    )


async def the_project(accounts: Accounts, given: str) -> Project:
    """The project with this id, or alone with this name."""
    found = [
        each for each in await accounts.projects.every(SYSTEM) if given in (each.id, each.name)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(each.id for each in found)
        raise CommandFailed(f"several projects are named {given!r}: {ids}", ExitCode.USAGE)
    raise CommandFailed(
        f"there is no project {given!r}; `causerie projects list` shows all", ExitCode.USAGE
    )


def link_address(settings: Settings, token: str) -> str:
    """Return the URL at which a browser uses a one-time link."""
    base = settings.console.address or root(settings)
    return f"{base.rstrip('/')}/console/link#{token}"


def as_json(value: object) -> None:
    typer.echo(msgspec.json.encode(value))


def day(moment: datetime | None) -> str:
    """A moment as a table shows it, in UTC."""
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M}"
