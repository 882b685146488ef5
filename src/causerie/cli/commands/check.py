"""The command line of ``causerie check``."""

from __future__ import annotations

from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Database, Set


def check(
    config: Config = None,
    pairs: Set = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the exit code.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show the defaults too.")] = False,
    database: Database = False,
) -> None:
    """Check the configuration and show what is set, and where each value comes from.

    With `--all` the defaults are shown too. What is printed is a valid
    configuration file itself; a table of the doors stands at its end. Secrets
    are left out. Those in variables and files are looked for, and so are weights
    that are named by a path; commands that give secrets are not run, and nothing
    is fetched.

    With `--database` the entries that operators have made are shown too, and on
    stderr those that are not in force, with the reason.

    **Examples**

    `causerie check`

    `causerie check --config other.toml --quiet && echo fine`
    """
    from causerie.cli.check import in_force, tell_left_out
    from causerie.cli.database_entries import with_database
    from causerie.cli.doors import door_table
    from causerie.cli.in_force import settings_in_force
    from causerie.composition.validated import checked
    from causerie.settings.notes import notes

    with reporting():
        loaded, _ = checked(lambda: settings_in_force(config, pairs), commands=False, weights=True)
        if database:
            loaded, stored = with_database(config, pairs)
            tell_left_out(stored, loaded)
        for name in loaded.ignored:
            typer.echo(f"causerie: the variable {name} sets nothing", err=True)
        for note in notes(loaded.settings):
            typer.echo(f"causerie: {note}", err=True)
        if not quiet:
            typer.echo("\n".join([*in_force(loaded, everything), "", *door_table(loaded.settings)]))
