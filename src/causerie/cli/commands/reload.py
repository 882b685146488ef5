"""The command line of ``causerie reload``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from causerie.cli.exits import CommandFailed, ExitCode, reporting

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="The service with this configuration file.")
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
    from causerie.cli.reload import ANSWER_SECONDS, chosen_service
    from causerie.composition.control import ControlFailed, asked, sockets
    from causerie.composition.reloading import ReloadOutcome
    from causerie.settings.environment import runtime_folder, variables

    with reporting():
        try:
            chosen = chosen_service(sockets(runtime_folder(variables())), config, pid)
            outcome = asked(chosen.path, "reload", ReloadOutcome, ANSWER_SECONDS)
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
