"""The command line of ``causerie key``."""

from __future__ import annotations

from typing import Annotated

import typer

from causerie.cli.exits import reporting


def key(
    digest: Annotated[
        bool, typer.Option("--digest", help="Read an existing key from stdin; print its digest.")
    ] = False,
) -> None:
    """Make a new key, and the digest that goes into the configuration.

    The key is shown once and kept nowhere; the configuration holds only its
    digest.

    **Examples**

    `causerie key` creates a key

    `pass show llm/key | causerie key --digest` gives the digest of one you have
    """
    from causerie.cli.key import digest_line, existing_key, new_key

    with reporting():
        if digest:
            typer.echo(digest_line(existing_key()))
            return
        made = new_key()
        typer.echo(f"key:    {made}")
        typer.echo(f'digest: "{digest_line(made)}"')
        typer.echo(
            "Give the key to the client. Put the digest into `keys` of a door, or of [server].",
            err=True,
        )
