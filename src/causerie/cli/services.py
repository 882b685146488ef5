"""``causerie ps``, ``stop`` and ``reload``: the services of this user on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

import causerie
from causerie.cli.command import (
    CommandFailed,
    ExitCode,
    WrongUsage,
    library,
    local_url,
    print_json,
    same_weights,
    size_text,
)

if TYPE_CHECKING:
    from causerie.composition.control import ControlSocket, RunningModel, ServiceFacts
    from causerie.engines.weights.reference import Library

A = TypeVar("A")


def ps(as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False) -> None:
    """Show the running services of this user, and their models.

    CONTEXT is in force for one request, prompt and output together; `of` more
    tokens, if all requests share those. MEMORY is what a model has now, AT MOST
    an estimate of what it may take. UNTIL is when it is unloaded, unless a
    request comes. Below a pool stand its servers. A service of all models of
    the cache has a line for each that is loaded.

    **Examples**

    `causerie ps`

    `causerie ps --json`
    """
    found = services()
    if as_json:
        print_json([one.facts for one in found])
    else:
        show_services(found, library())


def stop(
    name: Annotated[
        str | None, typer.Argument(help="Id, short name or reference of its model.")
    ] = None,
    pid: Annotated[int | None, typer.Option("--pid", help="The service with this id.")] = None,
) -> None:
    """Stop a running service, as Ctrl-C does, or unload one of its models.

    Without NAME it is the only service. If it has further models, or all of
    the cache, the named one is unloaded, and the next request loads it again.
    Running answers may finish.

    **Examples**

    `causerie stop`

    `causerie stop qwen3:4b`
    """
    known = library()
    chosen = _require_single_service(
        lambda one: name is None or bool(one.models(name, known)),
        lambda one: ", ".join(each.id for each in one.facts.models) or "without models of its own",
        pid,
        f"has the id {pid}" if name is None else f"has the model {name}",
    )
    outlives_models = chosen.facts.serves_cache or len(chosen.facts.models) > 1
    if name is not None and pid is None and outlives_models:
        [model, *_] = chosen.models(name, known)
        loaded = model.state != _ABSENT
        if loaded:
            chosen.unload(model.id)
        done = f"Unloaded {model.id}" if loaded else f"{model.id} was not loaded"
        typer.echo(f"{done}; {chosen.facts.address} goes on.")
        return
    chosen.end()
    typer.echo(f"Stopped {chosen.facts.address}.")


_ABSENT, _READY = "absent", "ready"  # states of a model
ANSWER_SECONDS = 5.0  # for an answer; a service that hangs is left out
_RELOAD_SECONDS = 120.0  # commands give secrets slowly
_LOAD_SECONDS = 3600.0  # the service has a bound of its own
_UNLOAD_SECONDS = 30.0  # for an engine to end
_COLUMNS = (
    *("MODEL", "WEIGHTS", "STATE", "CONTEXT", "BUSY", "MEMORY", "AT MOST", "UNTIL"),
    *("ADDRESS", "PID"),
)


@dataclass(frozen=True, slots=True)
class Service:
    """A running service that has answered."""

    socket: ControlSocket
    facts: ServiceFacts

    @property
    def base_url(self) -> str:
        """Return the base URL of the service's default door, as this machine reaches it."""
        host, _, port = self.facts.address.rpartition(":")
        return f"{local_url(host, port)}/v1"

    @property
    def key(self) -> str | None:
        """Return the key of a service that `causerie run` has started; ``None`` for others."""
        from causerie.composition.control import KEY_SUFFIX

        with suppress(FileNotFoundError):
            return self.socket.path.with_suffix(KEY_SUFFIX).read_text("ascii")
        return None

    @property
    def outdated(self) -> bool:
        """Return whether the service runs another version of the program than this command."""
        return self.facts.version != causerie.__version__

    def again(self) -> Service:
        """Ask the service for its facts anew, and return it with them. Raises ``CommandFailed``."""
        return Service(self.socket, self.ask("facts", type(self.facts), ANSWER_SECONDS))

    def load(self, id: str) -> None:
        """Have the service load a model, and wait until it has. Raises :class:`CommandFailed`."""
        if self.outdated or any(one.id == id and one.state == _READY for one in self.facts.models):
            return  # another version may not know how; the first request loads it
        from rich.console import Console

        from causerie.composition.reloading import ReloadOutcome

        with Console(stderr=True).status(f"Loading {id}"):
            outcome = self.ask(f"load {id}", ReloadOutcome, _LOAD_SECONDS)
        if outcome.problems:
            raise CommandFailed(f"{id} did not load: {outcome.problems[0]}")

    def unload(self, id: str) -> None:
        """Unload a model as soon as nobody uses it. Raises :class:`CommandFailed`."""
        _ = self.ask(f"unload {id}", type(self.facts), _UNLOAD_SECONDS)

    def end(self) -> None:
        """Stop the service, and wait until it has ended. Raises :class:`CommandFailed`."""
        from causerie.composition.control import sockets

        _ = self.ask("stop", type(self.facts), ANSWER_SECONDS)
        while any(one.pid == self.facts.pid for one in sockets(self.socket.path.parent)):
            time.sleep(0.1)

    def ask(self, what: str, kind: type[A], seconds: float) -> A:
        """Return the service's answer to a command. Raises :class:`CommandFailed`."""
        from causerie.composition.control import ControlFailed, asked

        try:
            return asked(self.socket.path, what, kind, seconds)
        except ControlFailed as error:
            raise CommandFailed(str(error)) from error

    def models(self, name: str, known: Library) -> Sequence[RunningModel]:
        """Return the service's models with the id ``name``, else those of the weights so named."""
        from causerie.engines.weights.errors import BadReference

        found = [model for model in self.facts.models if model.id == name.lower()]
        with suppress(BadReference):
            wanted = known.reference(name)
            found = found or [each for each in self.facts.models if same_weights(each.ref, wanted)]
        return found


def runtime_folder_of_user() -> Path:
    """Return the folder of the user's service sockets, made if absent; raise ``CommandFailed``."""
    from causerie.composition.control import own_folder
    from causerie.settings.environment import runtime_folder, variables

    if sys.platform == "win32":
        raise CommandFailed(
            "`run` starts a service that it finds by a socket with a path, which this system has "
            "not; use `causerie serve` and `causerie chat`"
        )
    folder = runtime_folder(variables())
    try:
        own_folder(folder)
    except OSError as error:
        advice = "set XDG_RUNTIME_DIR to a folder of yours, or unset it"
        raise CommandFailed(f"commands cannot find a service here: {error}; {advice}") from error
    return folder


def services(pid: int | None = None) -> Sequence[Service]:
    """Return the answering services: the one with this process id, or all if none has it.

    One that hangs is named on stderr.
    """
    from causerie.composition.control import ControlFailed, ServiceFacts, asked, sockets
    from causerie.settings.environment import runtime_folder, variables

    found = []
    every = sockets(runtime_folder(variables()))
    for one in [one for one in every if one.pid == pid] or every:
        try:
            found.append(Service(one, asked(one.path, "facts", ServiceFacts, ANSWER_SECONDS)))
        except ControlFailed as error:
            typer.echo(f"causerie: of the process {one.pid}, {error}", err=True)
    return found


def show_services(found: Sequence[Service], known: Library) -> None:
    from causerie.cli.terminal import print_table

    rows = [row for one in found for row in _build_service_rows(one, known)]
    print_table(_COLUMNS, rows, right={"CONTEXT", "BUSY", "MEMORY", "AT MOST"})


def _build_service_rows(service: Service, weights_library: Library) -> Iterator[Sequence[str]]:
    where = (service.facts.address, str(service.facts.pid))
    models = [
        model
        for model in service.facts.models
        if not (service.facts.serves_cache and model.state == _ABSENT)
    ]
    for model in models:
        shared = f" of {model.cache_tokens:,}" if model.cache_tokens else ""
        yield (
            model.id,
            weights_library.name(model.ref) if model.ref else "-",
            model.state,
            f"{model.context:,}{shared}" if model.context else "-",
            "-" if model.state == _ABSENT else f"{model.busy}/{model.slots}",
            _format_size_or_dash(resident(model.pid)),
            _format_size_or_dash(model.memory_bytes),
            _format_time_left(model.unload_seconds),
            *where,
        )
        for each in model.members:
            busy, now = f"{each.busy}/{each.slots}", _format_size_or_dash(resident(each.pid))
            most = _format_size_or_dash(each.memory_bytes)
            yield ("", each.address, each.state, "", busy, now, most, "", "", "")
    if not models:
        from causerie.errors import counted

        ready = len(service.facts.models)
        none = f"{counted(ready, 'model')}, none loaded" if ready else "-"
        yield (none, *"-" * (len(_COLUMNS) - len(where) - 1), *where)


def _format_time_left(seconds: float | None) -> str:
    from causerie.errors import counted

    if seconds is None:
        return "-"
    if seconds < 60:
        return f"in {seconds:.0f} s"
    return f"in {counted(round(seconds / 60), 'minute')}"


def resident(pid: int | None) -> int | None:
    """Return the resident memory of an engine and its child processes, in bytes.

    ``None`` where the system does not report it.
    """
    try:
        return _count_process_tree_pages(Path(f"/proc/{pid}")) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _count_process_tree_pages(process_folder: Path) -> int:
    pages = int((process_folder / "statm").read_text("ascii").split()[1])
    for task in (process_folder / "task").iterdir():
        for child in (task / "children").read_text("ascii").split():
            pages += _count_process_tree_pages(process_folder.with_name(child))
    return pages


def _format_size_or_dash(byte_count: int | None) -> str:
    return size_text(byte_count) if byte_count else "-"


def reload(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The service with this configuration file."),
    ] = None,
    pid: Annotated[
        int | None, typer.Option("--pid", help="The service with this process id.")
    ] = None,
) -> None:
    """Tell a running service to read its configuration anew.

    The whole file is checked first. If anything in it is wrong, nothing
    changes, and each problem is shown with its line (exit code 3). Requests
    under way keep what they began with.

    **Examples**

    `causerie reload`

    `causerie reload --config causerie.toml`
    """
    from causerie.composition.reloading import ReloadOutcome

    real = None if config is None else os.path.realpath(config)
    chosen = _require_single_service(
        lambda one: real is None or (one.facts.file and os.path.realpath(one.facts.file)) == real,
        lambda one: one.facts.file or "without a configuration file",
        pid,
        f"has the id {pid}" if config is None else f"has the file {config}",
        "; start it by `causerie serve`",
    )
    outcome = chosen.ask("reload", ReloadOutcome, _RELOAD_SECONDS)
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


def _require_single_service(
    is_match: Callable[[Service], bool],
    describe: Callable[[Service], str],
    pid: int | None,
    criterion: str,
    advice: str = "",
) -> Service:
    found = services(pid)
    if not found:
        raise CommandFailed(f"no service of this user is running{advice}")
    fitting = [one for one in found if pid in (None, one.socket.pid) and is_match(one)]
    if len(fitting) == 1:
        return fitting[0]
    several = "several services are running; say which"
    some = several if fitting else f"no running service {criterion}; there are"
    lines = (
        f"  --pid {one.facts.pid}  {one.facts.address}  {describe(one)}" for one in fitting or found
    )
    raise WrongUsage("\n".join((f"{some}:", *lines)))
