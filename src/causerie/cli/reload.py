"""``causerie reload``: a running service reads its configuration anew."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from causerie.cli.exits import CommandFailed, ExitCode, reporting
from causerie.composition.control import ControlFailed, ControlSocket, asked, sockets
from causerie.composition.reloading import ReloadOutcome
from causerie.composition.service_facts import ServiceFacts
from causerie.settings.environment import runtime_folder, variables

_SECONDS = 120.0  # secrets may come from slow commands
_FACTS_SECONDS = 5.0

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The service with this configuration file."),
]
Pid = Annotated[int | None, typer.Option("--pid", help="The service with this process id.")]


def reload(config: Config = None, pid: Pid = None) -> None:
    """Tell a running service to read its configuration anew.

    The whole file is checked first. If anything in it is wrong, nothing
    changes, and each problem is shown with its line (exit code 3). Requests
    under way keep what they began with.

    **Examples**

    `causerie reload`

    `causerie reload --config causerie.toml`
    """
    with reporting():
        try:
            chosen = _chosen(sockets(runtime_folder(variables())), config, pid)
            outcome = asked(chosen.path, "reload", ReloadOutcome, _SECONDS)
        except ControlFailed as error:
            raise CommandFailed(str(error)) from error
        if outcome.problems:
            problems = "\n".join(outcome.problems)
            raise CommandFailed(f"nothing has changed:\n{problems}", ExitCode.CONFIGURATION)
        counts = (
            (outcome.doors, "door", "doors"),
            (outcome.models, "model", "models"),
            (outcome.aliases, "alias", "aliases"),
            (outcome.entries, "entry of the catalog", "entries of the catalog"),
        )
        words = [f"{count} {one if count == 1 else more}" for count, one, more in counts if count]
        typer.echo(f"Reloaded: {', '.join(words)}.")
        for note in outcome.notes:
            typer.echo(f"causerie: {note}", err=True)


def _chosen(
    running: Sequence[ControlSocket], config: Path | None, pid: int | None
) -> ControlSocket:
    """The one service that is meant. Raises :class:`CommandFailed`."""
    running = [one for one in running if one.pid == pid] or running  # another may hang
    services = [(one, asked(one.path, "facts", ServiceFacts, _FACTS_SECONDS)) for one in running]
    if not services:
        raise CommandFailed("no service of this user is running; start it by `causerie serve`")
    fitting = [
        (one, facts)
        for one, facts in services
        if (pid is None or one.pid == pid) and (config is None or _is_same(config, facts.file))
    ]
    if len(fitting) == 1:
        return fitting[0][0]
    listed = "\n".join(
        f"  --pid {facts.pid}  {facts.address}  {facts.file or 'without a configuration file'}"
        for _, facts in fitting or services
    )
    if fitting:
        raise CommandFailed(f"several services are running; say which:\n{listed}", ExitCode.USAGE)
    raise CommandFailed(f"no such service is running; there are:\n{listed}", ExitCode.USAGE)


def _is_same(config: Path, file: str | None) -> bool:
    """Return true if both paths lead to one file, through any links and folders."""
    return file is not None and os.path.realpath(config) == os.path.realpath(file)
