"""The command line of ``causerie list``."""

from __future__ import annotations

from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Set


def show_list(
    names: Annotated[
        bool, typer.Option("--library", help="All short names that can be fetched.")
    ] = False,
    config: Config = None,
    pairs: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List the weights in the cache: name, size, quantization, last use.

    Each name can be given to `serve`, `run`, `show` and `rm`.

    **Examples**

    `causerie list`

    `causerie list --library` shows what `causerie pull NAME` can fetch
    """
    from causerie.cli.cached import print_list

    with reporting():
        print_list(config, pairs, names=names, as_json=as_json)
