"""The command line of ``causerie export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Set


def export_config(
    output: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="File to write. Unset: stdout.")
    ] = None,
    config: Config = None,
    pairs: Set = None,
) -> None:
    """Write the entries of the configuration that the database holds, as a file.

    Entries that are switched off, or do not hold, are comments in it. Keys are
    never written. A file that exists is never written over.

    **Examples**

    `causerie export entries.toml`
    """
    from causerie.cli.database_entries import with_database
    from causerie.cli.export_config import exported
    from causerie.cli.import_config import write

    with reporting():
        loaded, stored = with_database(config, pairs)
        text = exported(stored, loaded)
        if output is None:
            typer.echo(text, nl=False)
        else:
            write(output, text)
