"""The command line of ``causerie ps`` and ``stop``."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from causerie.cli.exits import CommandFailed, reporting


def ps(as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False) -> None:
    """Show the running services of this user, and their models.

    CONTEXT is in force for one request, prompt and output together; `of` more
    tokens, if all requests share those. MEMORY is what a model has now, AT MOST
    an estimate of what it may take. Below a pool stand its servers.

    **Examples**

    `causerie ps`

    `causerie ps --json`
    """
    import msgspec

    from causerie.cli.names import library
    from causerie.cli.services import services, show_services

    with reporting():
        found = services()
        if as_json:
            typer.echo(msgspec.json.encode([one.facts for one in found]))
            return
        show_services(found, library())


def stop(
    name: Annotated[
        str | None, typer.Argument(help="Id, short name or reference of its model.")
    ] = None,
    pid: Annotated[int | None, typer.Option("--pid", help="The service with this id.")] = None,
) -> None:
    """Stop a running service, as Ctrl-C does: running answers may finish.

    Without NAME it is the only one. A service with further models is stopped
    by `--pid` only.

    **Examples**

    `causerie stop`

    `causerie stop qwen3:4b`
    """
    from causerie.cli.services import ANSWER_SECONDS, LOOK_SECONDS, chosen_service, services
    from causerie.composition.control import ControlFailed, asked, sockets
    from causerie.composition.service_facts import ServiceFacts

    with reporting():
        chosen = chosen_service(services(), name, pid)
        try:
            _ = asked(chosen.socket.path, "stop", ServiceFacts, ANSWER_SECONDS)
        except ControlFailed as error:
            raise CommandFailed(str(error)) from error
        while any(one.pid == chosen.facts.pid for one in sockets(chosen.socket.path.parent)):
            time.sleep(LOOK_SECONDS)
        typer.echo(f"Stopped {chosen.facts.address}.")
