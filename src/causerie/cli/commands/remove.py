"""The command line of ``causerie rm``."""

from __future__ import annotations

from typing import Annotated

import typer

from causerie.cli.exits import confirm, reporting
from causerie.cli.options import Config, Set


def remove(
    name: Annotated[str, typer.Argument(help="A name or reference from `causerie list`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: Config = None,
    pairs: Set = None,
) -> None:
    """Delete weights from the cache, after a question.

    Weights that a running service serves are kept.

    **Examples**

    `causerie rm qwen3:4b`

    `causerie rm hf:org/repo:Q4_K_M --yes`
    """
    import asyncio

    from causerie.cli.cached import size_text
    from causerie.cli.in_force import settings_in_force
    from causerie.cli.names import library
    from causerie.cli.remove import found_weights, refuse_running
    from causerie.composition.app import cached_weights, remove_weights

    with reporting():
        settings = settings_in_force(config, pairs).settings
        known = library()
        found = found_weights(cached_weights(settings), name, known)
        refuse_running(name, known)
        size = size_text(sum(one.size for one in found))
        if not yes:
            confirm(f"Delete {name} ({size})?")
        for one in found:
            asyncio.run(remove_weights(settings, one))
        typer.echo(f"Deleted {name}: {size}.")
