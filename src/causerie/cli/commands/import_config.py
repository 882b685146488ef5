"""The command line of ``causerie import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from causerie.cli.exits import CommandFailed, ExitCode, reporting
from causerie.cli.options import Config, Set


def import_config(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Entries as `causerie export` writes them."),
    ] = None,
    litellm: Annotated[
        Path | None, typer.Option("--litellm", metavar="FILE", help="LiteLLM's `config.yaml`.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write, with --litellm. Unset: stdout."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: Config = None,
    pairs: Set = None,
) -> None:
    """Take entries of a file over into the database, or LiteLLM's configuration into a file.

    The entries of FILE are checked together with the configuration and with
    those that the database holds. What would change is shown, and you are
    asked; then all is written, or nothing. Keys are read where FILE says that
    they are. Entries that FILE does not name stay.

    With `--litellm` the configuration of LiteLLM's proxy becomes a
    `causerie.toml`: models, providers, wildcards, fallbacks, limits, prices
    and the master key. What is not carried over is listed on stderr, each with
    its place and what to do instead. A file that exists is never written over.

    **Examples**

    `causerie import entries.toml --yes`

    `causerie import --litellm config.yaml -o causerie.toml && causerie check`
    """
    from causerie.cli.import_config import import_litellm
    from causerie.cli.import_entries import import_entries

    with reporting():
        if file is not None and litellm is None and output is None:
            import_entries(file, config, pairs, yes=yes)
        elif litellm is not None and file is None:
            import_litellm(litellm, output)
        else:
            raise CommandFailed("name one file: FILE, or `--litellm FILE`", ExitCode.USAGE)
