"""``causerie reload``: a running service reads its configuration anew."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from causerie.cli.exits import CommandFailed, ExitCode
from causerie.composition.control import ControlSocket, asked
from causerie.composition.service_facts import ServiceFacts

ANSWER_SECONDS = 120.0  # secrets may come from slow commands
_FACTS_SECONDS = 5.0


def chosen_service(
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
