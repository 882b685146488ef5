"""The command line of ``causerie init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from causerie.cli.exits import reporting
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
    from causerie.cli.init import _chosen_kind, _may_write, write_configuration

    with reporting():
        _may_write(config, force)
        asks = kind is None
        kind = kind or _chosen_kind()
        write_configuration(config, kind, model, provider, context, asks=asks)
