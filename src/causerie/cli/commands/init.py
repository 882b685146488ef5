"""The command line of ``causerie init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from causerie.cli.exits import CommandFailed, ExitCode, reporting
from causerie.cli.options import Context

Kind = Literal["model", "gateway", "team"]


def init(
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="What to set up; without it, you are asked.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="A short name or reference; of a provider, one of its models."
        ),
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", help="A known provider, like `openai`.")
    ] = None,
    context: Context = None,
    config: Annotated[Path, typer.Option("--config", "-c", help="File to write.")] = Path(
        "causerie.toml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write a first configuration, with comments.

    Asks three questions. With `--kind` it asks none: options that are absent
    have defaults, but a gateway and a team need `--provider`.

    **Examples**

    `causerie init`

    `causerie init --kind model --model qwen3:4b`

    `causerie init --kind team --provider openai`
    """
    from causerie.cli.init import (
        _chosen_kind,
        _flag,
        _may_write,
        _own,
        _remote,
        _remote_commands,
        _tell,
        _write,
    )
    from causerie.cli.starter import gateway_file, model_file, team_file

    with reporting():
        _may_write(config, force)
        asks = kind is None
        kind = kind or _chosen_kind()
        if kind == "model":
            if provider is not None:
                raise CommandFailed("--provider is for a gateway or a team", ExitCode.USAGE)
            _write(config, model_file(_own(model, context, asks)))
            _tell(config, [f"causerie serve{_flag(config)}", "causerie chat"])
            return
        if context is not None:
            raise CommandFailed("--context is for --kind model", ExitCode.USAGE)
        remote = _remote(provider, model, asks)
        _write(config, team_file(remote) if kind == "team" else gateway_file(remote))
        _tell(config, _remote_commands(config, remote))
