"""``causerie rm``: deletes weights from the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from causerie.cli.cached import size_text
from causerie.cli.exits import CommandFailed, ExitCode, reporting
from causerie.cli.names import library, same_weights
from causerie.cli.options import Config, Set, settings_in_force
from causerie.cli.services import services
from causerie.composition.app import cached_weights, remove_weights
from causerie.engines.weights import CachedWeights
from causerie.engines.weights.library import Library


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
    with reporting():
        settings = settings_in_force(config, pairs).settings
        known = library()
        found = _found(cached_weights(settings), name, known)
        _refuse_running(name, known)
        size = size_text(sum(one.size for one in found))
        if not yes:
            typer.confirm(f"Delete {name} ({size})?", abort=True)
        for one in found:
            asyncio.run(remove_weights(settings, one))
        typer.echo(f"Deleted {name}: {size}.")


def _found(every: Sequence[CachedWeights], name: str, known: Library) -> Sequence[CachedWeights]:
    wanted = known.reference(name)
    found = [one for one in every if same_weights(one.ref, wanted)]
    if not found:
        names = ", ".join(dict.fromkeys(known.name(one.ref) for one in every)) or "nothing"
        raise CommandFailed(f"{name} is not in the cache, which holds {names}", ExitCode.USAGE)
    return found


def _refuse_running(name: str, known: Library) -> None:
    for one in services():
        if one.models(name, known):
            raise CommandFailed(
                f"{name} is served by {one.facts.address}; "
                f"stop that by `causerie stop --pid {one.facts.pid}` before"
            )
