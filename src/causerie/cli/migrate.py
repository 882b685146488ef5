"""``causerie migrate``: bring the database to the version of this program."""

from __future__ import annotations

import asyncio

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Set, settings_in_force


def migrate(config: Config = None, pairs: Set = None) -> None:
    """Bring the tables of the database to the version of this program.

    A service does the same when it starts. This command does it beforehand, for example in a job of
    a cluster. Several processes may do so at the same time: one migrates, the others wait.

    **Examples**

    `causerie migrate --config causerie.toml`
    """
    from causerie.composition.account_backend import migrated  # noqa: PLC0415 - not for all other commands

    with reporting():
        found = asyncio.run(migrated(settings_in_force(config, pairs).settings.store))
    typer.echo(f"The database has revision {found}.")
