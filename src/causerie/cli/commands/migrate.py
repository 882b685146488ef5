"""The command line of ``causerie migrate``."""

from __future__ import annotations

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Set


def migrate(config: Config = None, pairs: Set = None) -> None:
    """Bring the tables of the database to the version of this program.

    A service does the same when it starts. This command does it beforehand, for example in a job of
    a cluster. Several processes may do so at the same time: one migrates, the others wait.

    **Examples**

    `causerie migrate --config causerie.toml`
    """
    import asyncio

    from causerie.cli.in_force import settings_in_force
    from causerie.composition.account_backend import migrated

    with reporting():
        found = asyncio.run(migrated(settings_in_force(config, pairs).settings.store))
    typer.echo(f"The database has revision {found}.")
