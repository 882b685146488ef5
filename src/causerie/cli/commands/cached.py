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
    from causerie.cli.cached import _cached, _cached_table, _library_table, _print
    from causerie.cli.names import library

    with reporting():
        known = library()
        if names:
            _print(known.models, _library_table(known.models), as_json=as_json)
        else:
            rows = _cached(known, config, pairs)
            _print(rows, _cached_table(rows), as_json=as_json)
