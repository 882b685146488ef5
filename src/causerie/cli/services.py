"""``causerie ps`` and ``causerie stop``: the services of this user on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import typer

from causerie.cli.cached import size_text
from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.names import library, same_weights
from causerie.cli.tables import print_table
from causerie.composition.control import ControlFailed, ControlSocket, asked, sockets
from causerie.composition.service_facts import RunningModel, ServiceFacts
from causerie.engines.weights.errors import BadReference
from causerie.engines.weights.library import Library
from causerie.settings.environment import runtime_folder, variables

ANSWER_SECONDS = 5.0  # for an answer; a service that hangs is left out
LOOK_SECONDS = 0.1
_COLUMNS = ("MODEL", "WEIGHTS", "STATE", "CONTEXT", "BUSY", "MEMORY", "AT MOST", "ADDRESS", "PID")


@dataclass(frozen=True, slots=True)
class Service:
    """A running service that has answered."""

    socket: ControlSocket
    facts: ServiceFacts

    @property
    def base_url(self) -> str:
        """The base URL of its default door, as this machine reaches it."""
        host, _, port = self.facts.address.rpartition(":")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"

    def models(self, name: str, known: Library) -> Sequence[RunningModel]:
        """Return its models with this id, or with the weights that ``name`` means."""
        by_id = [model for model in self.facts.models if model.id == name]
        with suppress(BadReference):
            wanted = known.reference(name)
            return by_id or [
                model for model in self.facts.models if same_weights(model.ref, wanted)
            ]
        return by_id


def services() -> Sequence[Service]:
    """Return the services that answer; one that hangs is named on stderr."""
    found = []
    for one in sockets(runtime_folder(variables())):
        try:
            found.append(Service(one, asked(one.path, "facts", ServiceFacts, ANSWER_SECONDS)))
        except ControlFailed as error:
            typer.echo(f"causerie: of the process {one.pid}, {error}", err=True)
    return found


def chosen_service(found: Sequence[Service], name: str | None, pid: int | None) -> Service:
    """The one service that is meant. Raises :class:`CommandFailed`."""
    if not found:
        raise CommandFailed("no service of this user is running")
    known = library()
    fitting = [
        one
        for one in found
        if pid in (None, one.facts.pid) and (name is None or one.models(name, known))
    ]
    if len(fitting) != 1:
        some = (
            "several services are running; say which"
            if fitting
            else "no such service is running; there are"
        )
        raise CommandFailed(f"{some}:\n{_listed(fitting or found)}", ExitCode.USAGE)
    others = [model.id for model in fitting[0].facts.models]
    if name is not None and pid is None and len(others) > 1:
        advice = f"stop it as a whole by `causerie stop --pid {fitting[0].facts.pid}`"
        raise CommandFailed(f"that service serves {', '.join(others)}; {advice}", ExitCode.USAGE)
    return fitting[0]


def _listed(found: Sequence[Service]) -> str:
    lines = (
        f"  --pid {one.facts.pid}  {one.facts.address}  "
        f"{', '.join(model.id for model in one.facts.models) or 'without models of its own'}"
        for one in found
    )
    return "\n".join(lines)


def show_services(found: Sequence[Service], known: Library) -> None:
    """Print the table of services and their models."""
    rows = [row for one in found for row in _rows(one, known)]
    print_table(_COLUMNS, rows, right={"CONTEXT", "BUSY", "MEMORY", "AT MOST"})


def _rows(service: Service, known: Library) -> Iterator[Sequence[str]]:
    where = (service.facts.address, str(service.facts.pid))
    for model in service.facts.models:
        yield (model.id, *_words(model, known), *where)
        for each in model.members:
            busy, now = f"{each.busy}/{each.slots}", _size(resident(each.pid))
            yield ("", each.address, each.state, "", busy, now, _size(each.memory_bytes), "", "")
    if not service.facts.models:
        yield (*"-" * (len(_COLUMNS) - len(where)), *where)


def _words(model: RunningModel, known: Library) -> tuple[str, ...]:
    return (
        known.name(model.ref) if model.ref else "-",
        model.state,
        _context(model),
        f"{model.busy}/{model.slots}",
        _size(resident(model.pid)),
        _size(model.memory_bytes),
    )


def _context(model: RunningModel) -> str:
    if not model.context:
        return "-"
    return f"{model.context:,}" + (f" of {model.cache_tokens:,}" if model.cache_tokens else "")


def resident(pid: int | None) -> int | None:
    """Return the bytes of memory that an engine has now, where the system says so.

    With the processes that it has started: a program of others runs below a supervising process.
    """
    try:
        return _pages(Path(f"/proc/{pid}")) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _pages(process: Path) -> int:
    """Return the pages that a process and all below it have in memory."""
    pages = int((process / "statm").read_text("ascii").split()[1])
    for task in (process / "task").iterdir():
        for child in (task / "children").read_text("ascii").split():
            pages += _pages(process.with_name(child))
    return pages


def _size(count: int | None) -> str:
    return size_text(count) if count else "-"
