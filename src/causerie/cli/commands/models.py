"""The command line of ``causerie models``."""

from __future__ import annotations

from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Database, Set


def models(
    config: Config = None,
    pairs: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    database: Database = False,
) -> None:
    """List the configured models, and the weights in the cache.

    **Examples**

    `causerie models`

    `causerie models --json`
    """
    import asyncio

    import msgspec

    from causerie.cli.database_entries import with_database
    from causerie.cli.in_force import settings_in_force
    from causerie.cli.models import listed, show_models

    with reporting():
        found = with_database(config, pairs)[0] if database else settings_in_force(config, pairs)
        rows = asyncio.run(listed(found.settings))
        if as_json:
            typer.echo(msgspec.json.encode(rows))
        else:
            show_models(rows)
