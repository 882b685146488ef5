"""``causerie rm``: deletes weights from the cache."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.names import same_weights
from causerie.cli.services import services
from causerie.engines.weights import CachedWeights
from causerie.engines.weights.library import Library


def found_weights(
    every: Sequence[CachedWeights], name: str, known: Library
) -> Sequence[CachedWeights]:
    """Return the cached weights of that name. Raises :class:`CommandFailed`."""
    wanted = known.reference(name)
    found = [one for one in every if same_weights(one.ref, wanted)]
    if not found:
        names = ", ".join(dict.fromkeys(known.name(one.ref) for one in every)) or "nothing"
        raise CommandFailed(f"{name} is not in the cache, which holds {names}", ExitCode.USAGE)
    return found


def refuse_running(name: str, known: Library) -> None:
    """Raises :class:`CommandFailed` while a service has the model."""
    for one in services():
        if one.models(name, known):
            raise CommandFailed(
                f"{name} is served by {one.facts.address}; "
                f"stop that by `causerie stop --pid {one.facts.pid}` before"
            )
